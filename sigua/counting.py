"""Shares, pairs of classes, the noise rate and T, counted, and their exact intervals.

What is counted on checked labels, pairs (given, true), assumes nothing about a model or the noise:
the errors may follow from the input. But the checked examples must have been drawn at random from
all, not picked as suspicious. What does not fit raises ValueError.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks
from sigua.transition import TransitionMatrix
from sigua.transition.matrix import matrix_from, require_matrix, symmetric_rows

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


def count_noise_rate(labels: ArrayLike, true_labels: ArrayLike) -> Interval:
    """Return the share of wrong labels among those checked, with its exact 95 % interval.

    Both are integers from 0 up, of shape (m,), m >= 1: as given, and as they should be.

    >>> print(count_noise_rate([0, 0, 1, 1, 2], [0, 1, 1, 1, 2]))
    20 % (1 to 72)
    """
    given, true = _pairs(labels, true_labels, float("inf"))
    return counted(int((given != true).sum()), len(given))


def count_transition(
    labels: ArrayLike,
    true_labels: ArrayLike,
    num_classes: int,
    *,
    prior: TransitionMatrix | None = None,
    strength: float | None = None,
) -> TransitionMatrix:
    """Return T counted on checked labels, smoothed: (counts + strength * prior) / (n_i + strength).

    That is the mean of a Dirichlet posterior: no label becomes impossible, and the fewer of a class
    were checked, the nearer its row is to the prior's.

    Args:
        labels: as given, integers in [0, num_classes), shape (m,).
        true_labels: as they should be, integers in [0, num_classes), shape (m,).
        num_classes: k >= 2.
        prior: T before anything is counted, such as `estimate_transition(p, y)`; by default
            symmetric noise at the counted rate.
        strength: how many checked labels of each class the prior is worth, above 0; k by default.

    Raises:
        ValueError: also for a T without a usable inverse (see `TransitionMatrix`).

    >>> prior = TransitionMatrix([[0.9, 0.1], [0.1, 0.9]])
    >>> count_transition([0, 0, 1, 1], [0, 0, 0, 0], 2, prior=prior, strength=4).rows.round(2)
    array([[0.7, 0.3],
           [0.1, 0.9]])
    """
    k = checks.whole("num_classes", num_classes, 2, "try the number of classes")
    given, true = _pairs(labels, true_labels, k)
    counts = count_pairs(true, given, k)
    weight = k if strength is None else strength
    weight = checks.number("strength", weight, 0, float("inf"), "try a number of labels")
    if weight == 0:
        raise ValueError(f"strength: must be above 0, got {strength!r}; try 1")
    if prior is not None and require_matrix("prior", prior).num_classes != k:
        raise ValueError(
            f"prior: must have {k} classes, got {prior.num_classes}; try estimating it anew"
        )
    rate = (counts.sum() - counts.trace() + 0.5) / (counts.sum() + 1)  # neither 0 nor 1
    before = symmetric_rows(rate, k) if prior is None else prior.rows
    rows = (counts + weight * before) / (counts.sum(axis=1, keepdims=True) + weight)
    advice = "checking more labels, or merging classes that look alike"
    return matrix_from(rows, "labels", "counted", advice)


def transition_intervals(
    labels: ArrayLike, true_labels: ArrayLike, num_classes: int
) -> tuple[Floats, Floats]:
    """Return the ends of the exact 95 % interval of each entry of T, float64, (k, k) each.

    The interval is [0, 1] in the row of a class of which no example was checked.

    >>> low, high = transition_intervals([0, 0, 0, 1], [0, 0, 0, 0], 2)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([[0.19, 0.01], [0.0, 0.0]], [[0.99, 0.81], [1.0, 1.0]])
    """
    k = checks.whole("num_classes", num_classes, 2, "try the number of classes")
    given, true = _pairs(labels, true_labels, k)
    counts = count_pairs(true, given, k)
    return clopper_pearson(counts, counts.sum(axis=1, keepdims=True))


def _pairs(labels: Any, true_labels: Any, k: float) -> tuple[NDArray[Any], NDArray[Any]]:
    given = checks.labels("labels", labels, k).astype(np.int64)
    true = checks.labels("true_labels", true_labels, k).astype(np.int64)
    checks.same_length("true_labels", true, "labels", given)
    checks.same_order("true_labels", true_labels, labels, "labels")
    if not len(given):
        raise ValueError("labels: must have at least one checked label, got none; try checking 100")
    return given, true


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
