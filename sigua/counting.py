"""The noise rate and T counted on checked labels: pairs (given, true) of examples drawn at random.

Nothing is assumed about a model or the noise: the errors may follow from the input. But the checked
examples must have been drawn at random from all, not picked as suspicious. What does not fit raises
ValueError.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks
from sigua.intervals import Floats, Interval, clopper_pearson, count_pairs, counted
from sigua.transition import TransitionMatrix
from sigua.transition.matrix import matrix_from, require_matrix, symmetric_rows


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
