"""An estimate with its interval, and the exact interval of a share that was counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
"""How often an interval holds what it is for."""


@dataclass(frozen=True)
class Interval:
    """An estimate of a share, and the 95 % interval around it; fractions in [0, 1].

    >>> print(Interval(0.25, 0.1, 0.4))
    25 % (10 to 40)
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.value:.0f} % ({100 * self.low:.0f} to {100 * self.high:.0f})"


def counted(count: int, size: int) -> Interval:
    """Return a share that was counted, count / size, with its exact interval; size >= 1."""
    low, high = clopper_pearson(np.array(count), np.array(size))
    return Interval(count / size, float(low), float(high))


def clopper_pearson(counts: NDArray[np.int64], sizes: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the ends of the exact 95 % intervals of counts / sizes (Clopper and Pearson 1934).

    The low end is the rate at which as many or more are 2.5 % likely, the high end that at which as
    few or fewer are; 0 and 1 where no such rate is, as for 0 of 0.

    >>> low, high = clopper_pearson(np.array([0, 5]), np.array([10, 10]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.187], [0.308, 0.813])
    """
    shape = np.broadcast_shapes(counts.shape, sizes.shape)
    pairs = np.stack([np.broadcast_to(a, shape).ravel() for a in (counts, sizes)], axis=1)
    few, back = np.unique(pairs, axis=0, return_inverse=True)
    ends = np.array([_ends(int(count), int(size)) for count, size in few]).reshape(-1, 2)
    low, high = ends[back.reshape(-1)].T
    return low.reshape(shape), high.reshape(shape)


def _ends(count: int, size: int) -> tuple[float, float]:
    tail = (1 - LEVEL) / 2
    low = 0.0 if count == 0 else _solve(lambda rate: 1 - _at_most(count - 1, size, rate), tail)
    high = 1.0 if count == size else _solve(lambda rate: -_at_most(count, size, rate), -tail)
    return low, high


def _solve(increasing: object, level: float) -> float:
    """Return where a function of a rate reaches a level, by halving."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if increasing(middle) < level:  # type: ignore[operator]
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _at_most(count: int, size: int, rate: float) -> float:
    """Return the probability of `count` or fewer successes among `size`, 0 < rate < 1."""
    steps = np.arange(1, size + 1, dtype=np.float64)
    log_ways = np.concatenate([[0.0], np.cumsum(np.log((size - steps + 1) / steps))])
    successes = np.arange(size + 1)
    logs = log_ways + successes * np.log(rate) + (size - successes) * np.log1p(-rate)
    return float(np.exp(logs[: count + 1]).sum())
