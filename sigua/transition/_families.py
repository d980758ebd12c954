"""Transition matrices to corrupt labels by: asymmetric ones and random ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sigua import checks
from sigua.transition._sparse import Csr
from sigua.transition.matrix import SPARSE_ABOVE, TransitionMatrix, rate_and_size


def mapped_transition(
    mapping: Mapping[int, int], noise_rate: float, num_classes: int
) -> TransitionMatrix:
    """Return asymmetric noise: each class of `mapping` is mistaken for the one it maps to.

    With more than 1000 classes T is kept sparse.

    Args:
        mapping: from a true class to what it is mistaken for; other classes are free of noise.
        noise_rate: share of wrong labels *within* each class of `mapping`, in [0, 1).
        num_classes: k >= 2.

    Raises:
        ValueError: also for a T that cannot be inverted, such as two classes swapped at 0.5.

    >>> mapped_transition({2: 0}, 0.25, 3).rows.tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.25, 0.0, 0.75]]
    """
    rate, k = rate_and_size(noise_rate, num_classes)
    if not isinstance(mapping, Mapping):
        raise ValueError(
            "mapping: must be a dict from a class to what it is mistaken for, got a "
            f"{type(mapping).__name__}; try {{9: 1, 2: 0}}"
        )
    for source, target in mapping.items():
        for label in (source, target):
            if checks.whole("mapping", label, 0, "number the classes from 0") >= k:
                raise ValueError(f"mapping: must lie in [0, {k}), got {label}; try counting from 0")
        if source == target:
            raise ValueError(
                f"mapping: must map a class to another one, got {source} for {source}; "
                "try leaving it out, which makes it free of noise"
            )
    sources, targets = (np.array(list(part), dtype=int) for part in (mapping, mapping.values()))
    rows = Csr.of_pairs(sources, targets, rate, k)
    return TransitionMatrix(rows if k > SPARSE_ABOVE else rows.dense())


def random_transition(
    num_classes: int,
    *,
    noise_rate: float | None = None,
    trace: float | None = None,
    seed: int | np.random.Generator = 0,
) -> TransitionMatrix:
    """Return a random T with a given trace, or, which is the same, rate for balanced classes.

    The diagonal varies around its mean by up to half of what is left below or above it; the rest of
    a row is drawn uniformly from all that have the right sum (Dirichlet).

    Args:
        num_classes: k >= 2.
        noise_rate: 1 - trace / k, in [0, 1).
        trace: the diagonal's sum, in (0, k], instead.
        seed: an integer, or a `numpy.random.Generator` that is advanced.

    Raises:
        ValueError: also after a hundred draws without one that can be inverted.

    >>> float(random_transition(4, trace=2.0).rows.trace().round(12))
    2.0
    """
    k = checks.whole("num_classes", num_classes, 2, "try the number of classes")
    if (noise_rate is None) == (trace is None):
        raise ValueError(
            f"noise_rate: must be given, or else trace, got noise_rate={noise_rate} and "
            f"trace={trace}; try one of the two"
        )
    if trace is not None:
        noise_rate = 1 - checks.number("trace", trace, 0, k, "try the sum of the diagonal") / k
    rate = checks.number("noise_rate", noise_rate, 0, 1, "try the share", closed=False)
    rng = checks.generator(seed)
    for _ in range(100):
        try:
            return TransitionMatrix(_random_rows(rate, k, rng))
        except ValueError as error:
            last = error
    raise last


def _random_rows(rate: float, k: int, rng: np.random.Generator) -> NDArray[np.float64]:
    around = rng.uniform(-0.5, 0.5, k)
    diagonal = 1 - rate + min(rate, 1 - rate) * (around - around.mean())
    rows = np.zeros((k, k))
    rows[~np.eye(k, dtype=bool)] = rng.dirichlet(np.ones(k - 1), k).ravel()
    rows *= (1 - diagonal)[:, None]
    return rows + np.diag(diagonal)
