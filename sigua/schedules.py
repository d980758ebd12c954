"""What changes from epoch to epoch, and the one place where a rate becomes a count.

Epochs count from 0 and may be fractional: step / steps_per_epoch. What is out of range raises
ValueError.
"""

from __future__ import annotations

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

INF = float("inf")
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
    epoch = epoch_number(epoch)
    advice = "try the share of wrong labels"
    noise_rate = checks.number("noise_rate", noise_rate, 0, 1, advice, closed=False)
    warmup = checks.number("warmup", warmup, 0, INF, "try epochs, 0 for no warm-up")
    return float(keep_rates(np.array(epoch), noise_rate, warmup))


def keep_rates(epochs: Epochs, noise_rate: float, warmup: float) -> Epochs:
    """Return `keep_rate` of many epochs at once, unchecked."""
    return 1.0 - noise_rate * (np.minimum(epochs / warmup, 1.0) if warmup else np.ones_like(epochs))


def at_one(at_each: Callable[[Epochs], Sequence[NDArray[Any]]], epoch: float) -> tuple[Any, ...]:
    """Return the numbers at one epoch of a function that has an array per number for many."""
    return tuple(column[0].item() for column in at_each(np.array([epoch_number(epoch)])))


def epoch_number(epoch: float) -> float:
    """Return an epoch as a float, or raise ValueError unless it is a number of at least 0."""
    return checks.number("epoch", epoch, 0, INF, "try counting epochs from 0")


@dataclass(frozen=True)
class Knots:
    """A piecewise linear function of the epoch, constant outside its knots.

    Args:
        points: (epoch, value) pairs of finite numbers, at least one, with increasing epochs.

    >>> ramp = Knots([(0, 0.0), (10, 0.2)])
    >>> [ramp(t) for t in (0, 5, 10, 200)]
    [0.0, 0.1, 0.2, 0.2]
    """

    points: Sequence[tuple[float, float]]

    def __post_init__(self) -> None:
        array = checks.floats("points", self.points)
        array = array if array.size else np.empty((0, 2))
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
        epoch = checks.number("epoch", epoch, -INF, INF, "try a number")
        return float(self.at_each(np.array(epoch)))

    def at_each(self, epochs: Epochs) -> Epochs:
        """Return the function of many epochs at once."""
        return np.asarray(np.interp(epochs, *np.array(self.points).T))


def values_at(name: str, schedule: Schedule, epochs: Epochs, high: float = 1.0) -> Epochs:
    """Return the schedule's values; a function is asked for each, a number in [0, high]."""
    if not callable(schedule):
        return np.full(len(epochs), float(schedule))
    if type(schedule) is Knots:
        return schedule.at_each(epochs)
    return np.array(
        [
            checks.number(name, schedule(t), 0, high, f"try another value at epoch {t:g}")
            for t in epochs.tolist()
        ]
    )


def horizon(schedule: object) -> float:
    """Return the epoch from which a schedule or a condition stays the same; inf if unknown."""
    return float(getattr(schedule, "horizon", INF if callable(schedule) else 0.0))


def rate_to_parts(rate: float) -> int:
    """Return a rate in whole billionths, rounded up unless it is barely above a whole number.

    >>> rate_to_parts(0.29), rate_to_parts(1 / 3)
    (290000000, 333333334)
    """
    rate = checks.number("rate", rate, 0, 1, "try a fraction, such as 0.5")
    return int(rates_to_parts(np.array(rate)))


def rates_to_parts(rates: Epochs) -> NDArray[np.int64]:
    """Return `rate_to_parts` of many rates at once, unchecked."""
    return np.ceil(rates * PARTS - 1e-3).astype(np.int64)


def rate_to_count(size: Any, parts: Any) -> Any:
    """Return floor(size * rate), exactly, for a rate in billionths.

    Integer operators only: the same lines serve Python integers and integer tensors. In 64 bits the
    product is exact up to 9 billion examples. In 32 bits, all that JAX has by default, it is a long
    multiplication in base 1000 that drops the last nine decimal digits: exact for every size.

    >>> rate_to_count(100, rate_to_parts(0.29))
    29
    """
    if "32" not in _kind("size", size) + _kind("parts", parts):
        return size * parts // PARTS
    (a, b, c), (d, e, f) = ((x // 1000000, x // 1000 % 1000, x % 1000) for x in (size, parts))
    carried = (c * e + b * f + c * f // 1000) // 1000
    carried = (c * d + b * e + a * f + carried) // 1000
    return a * d * 1000 + b * d + a * e + carried


def _kind(name: str, number: Any) -> str:
    """Return the dtype of what counts, nothing for an integer of Python's; refuse what does not."""
    kind = "" if isinstance(number, int) else str(getattr(number, "dtype", "float"))
    if "float" in kind or (not kind and number < 0):
        raise ValueError(
            f"{name}: must be an integer of at least 0, or integers, got {number!r}; "
            "try rate_to_parts(rate) for a rate"
        )
    return kind
