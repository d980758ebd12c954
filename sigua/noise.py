"""Corrupting labels on purpose, to see what a method makes of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks
from sigua.transition import TransitionMatrix


def corrupt_labels(
    y: ArrayLike, T: TransitionMatrix, seed: int | np.random.Generator = 0
) -> NDArray[np.integer]:
    """Return a copy of `y` in which each label was redrawn from its row of T.

    Args:
        y: integers in [0, k), shape (n,); left as it is.
        T: the transition matrix, k x k.
        seed: an integer, or a `numpy.random.Generator` that is advanced.

    Returns:
        Noisy labels, shape and dtype of `y`. What was flipped is `y != noisy`.

    Raises:
        ValueError: labels of another shape or dtype, or outside [0, k), or a dtype that cannot
            hold k - 1.

    >>> corrupt_labels([0, 1, 2, 3], TransitionMatrix.pair(0.0, 4))
    array([0, 1, 2, 3])
    """
    y = checks.labels("y", y, T.num_classes)
    if np.iinfo(y.dtype).max < T.num_classes - 1:
        came = f"{y.dtype} came for {T.num_classes} classes"
        raise checks.refuse("y", "its dtype must hold every class", came, "use y.astype(int)")
    rng = np.random.default_rng(seed)
    if T.flip_rate is not None:
        flipped = rng.random(len(y)) < T.flip_rate
        step = rng.integers(1, T.num_classes, len(y))
        return np.where(flipped, (y + step) % T.num_classes, y).astype(y.dtype)
    noisy = y.copy()
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        noisy[rows] = rng.choice(T.num_classes, size=len(rows), p=T.rows[label])
    return noisy
