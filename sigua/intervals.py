"""An estimate with its interval, and the exact interval of a share that was counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
"""How often an interval contains the true value."""


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

    At the lower end, this count or a larger one has a probability of 2.5 %; at the upper end, this
    count or a smaller one has. The ends are 0 and 1 where there is no such rate, as for 0 of 0.

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
    """Return the two ends for a single count."""
    steps = np.arange(1, size + 1, dtype=np.float64)
    log_ways = np.concatenate([[0.0], np.cumsum(np.log((size - steps + 1) / steps))])
    low = 0.0 if count == 0 else _solve(log_ways, slice(count, None), rising=True)
    high = 1.0 if count == size else _solve(log_ways, slice(count + 1), rising=False)
    return low, high


def _solve(log_ways: Floats, part: slice, rising: bool) -> float:
    """Return the rate at which some outcomes of a binomial have probability (1 - `LEVEL`) / 2."""
    size, successes, ways = len(log_ways) - 1, np.arange(len(log_ways))[part], log_ways[part]
    low, high = 0.0, 1.0
    for _ in range(45):  # halvings
        rate = (low + high) / 2
        logs = ways + successes * np.log(rate) + (size - successes) * np.log1p(-rate)
        if (np.exp(logs).sum() < (1 - LEVEL) / 2) == rising:
            low = rate
        else:
            high = rate
    return (low + high) / 2
