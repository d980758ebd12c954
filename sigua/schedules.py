"""What changes from epoch to epoch, and the one place where a rate becomes a count.

Epochs count from 0 and may be fractional: step / steps_per_epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigua import checks

Epochs = NDArray[np.float64]
Schedule = float | Callable[[float], float]
"""A constant, or a function of the epoch: `Knots`, or any callable."""

PARTS = 10**9
"""Rates are counted in whole billionths, because floor(n * rate) in floating point is off by one
for some everyday inputs: 100 * 0.29 is 28.999999999999996."""


def keep_rate(epoch: float, noise_rate: float, warmup: float = 10) -> float:
    """Return rho(t) = 1 - noise_rate * min(t / warmup, 1), the share to keep (Eq. 4).

    The text after the paper's equation says that more and more is selected. The equation is right:
    it starts with everything and selects less and less.

    Args:
        epoch: t >= 0.
        noise_rate: share of wrong labels, in [0, 1).
        warmup: T_k >= 0, in epochs; 0 means no warm-up.

    >>> [keep_rate(t, noise_rate=0.5, warmup=10) for t in (0, 5, 10, 200)]
    [1.0, 0.75, 0.5, 0.5]
    """
    return 1.0 - noise_rate * (min(epoch / warmup, 1.0) if warmup else 1.0)


def keep_rates(epochs: Epochs, noise_rate: float, warmup: float = 10) -> Epochs:
    """Return `keep_rate` of many epochs at once."""
    return 1.0 - noise_rate * (np.minimum(epochs / warmup, 1.0) if warmup else np.ones_like(epochs))


@dataclass(frozen=True)
class Knots:
    """A piecewise linear function of the epoch, constant outside its knots.

    Args:
        points: (epoch, value) pairs with strictly increasing epochs, at least one.

    Raises:
        ValueError: no point, a point that is not a pair of finite numbers, or epochs that do not
            increase.

    >>> ramp = Knots([(0, 0.0), (10, 0.2)])
    >>> [ramp(t) for t in (0, 5, 10, 200)]
    [0.0, 0.1, 0.2, 0.2]
    """

    points: Sequence[tuple[float, float]]

    def __post_init__(self) -> None:
        array = checks.floats("points", self.points) if len(self.points) else np.empty((0, 2))
        if array.ndim != 2 or array.shape[1] != 2 or not np.isfinite(array).all():
            raise ValueError(
                "points: must be pairs of finite numbers (epoch, value), "
                f"got {self.points!r}; try [(0, 0.0), (9, 0.2)]"
            )
        epochs = array[:, 0].tolist()
        if not epochs or any(a >= b for a, b in pairwise(epochs)):
            raise ValueError(
                f"points: must have epochs that increase, at least one, got {epochs}; "
                "try sorting them, each once"
            )
        object.__setattr__(self, "points", tuple(map(tuple, array.tolist())))

    @property
    def horizon(self) -> float:
        return self.points[-1][0]

    def __call__(self, epoch: float) -> float:
        before = [point for point in self.points if point[0] <= epoch]
        after = self.points[len(before) :]
        if not before or not after:
            return (before or after)[-1 if before else 0][1]
        (t0, v0), (t1, v1) = before[-1], after[0]
        return v0 + (v1 - v0) * (epoch - t0) / (t1 - t0)

    def at_each(self, epochs: Epochs) -> Epochs:
        """Return the function of many epochs at once."""
        knots, values = np.array(self.points).T
        epochs = np.maximum(epochs, knots[0])
        i = np.searchsorted(knots, epochs, side="right") - 1
        rise, width = np.append(np.diff(values), 0.0), np.append(np.diff(knots), 1.0)
        return np.asarray(values[i] + rise[i] * (epochs - knots[i]) / width[i])


def value_at(name: str, schedule: Schedule, epoch: float, high: float = 1.0) -> float:
    """Return the schedule's value at `epoch`.

    Raises:
        ValueError: the value is not a number in [0, high].
    """
    value = schedule(epoch) if callable(schedule) else schedule
    return checks.number(name, value, 0, high, f"try another value at epoch {epoch:g}")


def values_at(name: str, schedule: Schedule, epochs: Epochs, high: float = 1.0) -> Epochs:
    """Return `value_at` for many epochs at once, and raise ValueError as it does."""
    if type(schedule) is Knots:
        return schedule.at_each(epochs)
    if callable(schedule):
        return np.array([value_at(name, schedule, epoch, high) for epoch in epochs.tolist()])
    return np.full(len(epochs), value_at(name, schedule, 0.0, high))


def horizon(schedule: object) -> float:
    """Return the epoch from which a schedule or a condition stays the same; inf if unknown."""
    return float(getattr(schedule, "horizon", float("inf") if callable(schedule) else 0.0))


def rate_to_parts(rate: float) -> int:
    """Return a rate in whole billionths, rounded up unless it is barely above a whole number.

    >>> rate_to_parts(0.29), rate_to_parts(1 / 3)
    (290000000, 333333334)
    """
    return math.ceil(rate * PARTS - 1e-3)


def rates_to_parts(rates: Epochs) -> NDArray[np.int64]:
    """Return `rate_to_parts` of many rates at once."""
    return np.ceil(rates * PARTS - 1e-3).astype(np.int64)


def rate_to_count(size: Any, parts: Any) -> Any:
    """Return floor(size * rate), exactly, for a rate in billionths.

    Integer operators only: the same lines serve Python integers and integer tensors. In 64 bits the
    product is exact up to 9 billion examples. In 32 bits, all that JAX has by default, it is a long
    division in base 1000, in which no intermediate exceeds 1001 * size: exact up to 2,145,000.

    >>> rate_to_count(100, rate_to_parts(0.29))
    29
    """
    counts = [number for number in (size, parts) if not isinstance(number, int)]
    if not any("32" in str(number.dtype) for number in counts):
        return size * parts // PARTS
    low = size * (parts % 1000) // 1000
    middle = (size * (parts // 1000 % 1000) + low) // 1000
    return (size * (parts // 1000000) + middle) // 1000
