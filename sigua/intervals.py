"""An estimate with its interval, and what is counted: shares, pairs, exact intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
"""How often an interval contains the true value."""
NORMAL = 1.96
"""Of a mean, it ends this many standard errors away."""


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


def counted(count: int, size: int, level: float = LEVEL) -> Interval:
    """Return a share that was counted, count / size, with its exact interval; size >= 1."""
    low, high = clopper_pearson(np.array(count), np.array(size), level)
    return Interval(count / size, float(low), float(high))


def share_of(mask: NDArray[np.bool_]) -> Interval | None:
    """Return the share of True as `counted`; None of nothing."""
    return counted(int(mask.sum()), len(mask)) if len(mask) else None


def count_pairs(rows: NDArray[Any], columns: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Return how often each pair of classes occurs, (k, k)."""
    return np.bincount(rows * k + columns, minlength=k * k).reshape(k, k)


def clopper_pearson(
    counts: NDArray[np.int64], sizes: NDArray[np.int64], level: float = LEVEL
) -> tuple[Floats, Floats]:
    """Return the ends of the exact intervals of counts / sizes (Clopper and Pearson 1934).

    At the lower end, this count or a larger one has a probability of (1 - level) / 2; at the upper
    end, this count or a smaller one has. The ends are 0 and 1 where there is no such rate, as for 0
    of 0.

    >>> low, high = clopper_pearson(np.array([0, 5]), np.array([10, 10]))
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0, 0.187], [0.308, 0.813])
    """
    each = cache(lambda count, size: _ends(count, size, 1 - level))  # most pairs come again
    low, high = np.vectorize(each, otypes=[float, float])(counts, sizes)
    return low, high


def _ends(count: int, size: int, beyond: float) -> tuple[float, float]:
    """Return the two ends for a single count, in O(sqrt(size)).

    Both are near the share. There the counts that lie further away than some twenty standard
    deviations are too improbable to matter in a float64.
    """
    near = 100 + math.ceil(20 * math.sqrt(min(count, size - count)))
    counts = np.arange(max(count - near, 0), min(count + near, size) + 1)
    ways = np.log((size - counts[1:] + 1) / counts[1:])
    log_ways = np.concatenate([[0.0], np.cumsum(ways)])  # compared with those of the first count
    low, high = 0.0, 1.0
    if count > 0:
        below = max(count - near / 4, 0) / size
        low = _solve(log_ways, counts >= count, below, count / size, beyond / 2)
    if count < size:
        above = min(count + near / 4, size) / size
        high = _solve(log_ways, counts <= count, above, count / size, beyond / 2)
    return low, high


def _solve(
    log_ways: Floats, tail: NDArray[np.bool_], outside: float, inside: float, chance: float
) -> float:
    """Return the rate at which a tail has this probability: more of it inside, less outside.

    By the Illinois rule: where a straight line between two rates meets the chance lies the next
    one; a rate that stays for a second time counts half.
    """
    steps = np.arange(len(log_ways))
    less, more, side, rate = -chance, 0.5 - chance, 0, inside  # about what the ends have beyond it
    for _ in range(60):
        rate = (outside * more - inside * less) / (more - less)
        logs = log_ways + steps * (math.log(rate) - math.log1p(-rate))
        chances = np.exp(logs - logs.max())
        beyond = float(chances[tail].sum() / chances.sum()) - chance
        if abs(beyond) < 1e-13 * chance or rate in (outside, inside):
            break
        if beyond < 0:
            outside, less, more = rate, beyond, more / (2 if side < 0 else 1)
        else:
            inside, more, less = rate, beyond, less / (2 if side > 0 else 1)
        side = -1 if beyond < 0 else 1
    return rate
