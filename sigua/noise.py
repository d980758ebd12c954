"""Corrupt labels and inputs on purpose, to see how a method copes.

Columns (n, 1) and one-hot rows are refused: for one class nobody can tell the two apart. What else
does not fit, or is out of range, raises ValueError, too. `seed` is an integer, or a
`numpy.random.Generator` that is advanced.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks
from sigua.schedules import rate_to_count, rate_to_parts
from sigua.transition import TransitionMatrix, require_matrix


def corrupt_labels(
    y: ArrayLike, T: TransitionMatrix, seed: int | np.random.Generator = 0
) -> NDArray[np.integer]:
    """Return a copy of `y` in which each label is redrawn from its row of T.

    Args:
        y: integers in [0, k), shape (n,); not changed. The result has its dtype.
        T: the transition matrix, k x k.
        seed: see above.

    >>> corrupt_labels([0, 1, 2, 3], TransitionMatrix.pair(0.0, 4))
    array([0, 1, 2, 3])
    """
    y = _labels(y, require_matrix("T", T).num_classes)
    return _drawn(T, y, checks.generator(seed)).astype(y.dtype)


def _drawn(
    T: TransitionMatrix, labels: NDArray[Any], rng: np.random.Generator
) -> NDArray[np.integer]:
    """Return an observed label for each true one."""
    if T.csr is not None:
        return T.csr.draw(labels, rng)
    if T.flip_rate is not None:
        flipped = rng.random(len(labels)) < T.flip_rate
        step = rng.integers(1, T.num_classes, len(labels))
        return np.where(flipped, (labels + step) % T.num_classes, labels)
    drawn = labels.copy()
    for label in np.unique(labels):
        of = np.flatnonzero(labels == label)
        drawn[of] = rng.choice(T.num_classes, size=len(of), p=T.rows[label])
    return drawn


def corrupt_labels_by_instance(
    x: ArrayLike,
    y: ArrayLike,
    noise_rate: float,
    num_classes: int,
    seed: int | np.random.Generator = 0,
    *,
    spread: float = 0.1,
) -> NDArray[np.integer]:
    """Return a copy of `y` with noise that depends on the instance (Xia et al. 2020).

    Each example has its own flip rate, drawn from a truncated normal around `noise_rate`. The class
    it flips to is drawn from a softmax of x @ W over the other classes, with a standard normal W of
    shape (d, k) for each true class. The larger the inputs, the sharper the softmax: standardise
    them. The normal is truncated to the widest interval within [0, 1] whose middle
    is `noise_rate`, so that this is the mean rate; Xia et al. truncate to [0, 1].

    Args:
        x: real and finite, shape (n, ...); flattened to (n, d).
        y: integers in [0, k), shape (n,); not changed.
        noise_rate: share of wrong labels, in [0, 1].
        num_classes: k >= 2.
        seed: see above.
        spread: standard deviation of the flip rates before truncation, at least 0.

    >>> corrupt_labels_by_instance([[1.0, 2.0], [3.0, 4.0]], [1, 0], 0.0, num_classes=3)
    array([1, 0])
    """
    rate = checks.number("noise_rate", noise_rate, 0, 1, "try the share of wrong labels")
    spread = checks.number("spread", spread, 0, float("inf"), "try 0 for one rate for all")
    y = _labels(y, checks.whole("num_classes", num_classes, 2, "try the number of classes"))
    x = _inputs(x, y)
    rng = checks.generator(seed)
    flipped = rng.random(len(y)) < _truncated_normal(rate, spread, len(y), rng)
    noisy = y.copy()
    for label in range(num_classes):
        weights = rng.standard_normal((x.shape[1], num_classes))
        rows = np.flatnonzero(flipped & (y == label))
        scores = x[rows] @ weights
        scores[:, label] = -np.inf
        noisy[rows] = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)  # draws from softmax
    return noisy


def replace_inputs(
    x: ArrayLike, foreign: ArrayLike, noise_rate: float, seed: int | np.random.Generator = 0
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return a copy of `x` with some examples replaced, and which: open-set noise (Section 4).

    Labels stay as they are and become wrong, because no class is right for a foreign input.
    floor(n * noise_rate) examples are replaced, each by a different foreign input as long as there
    are enough. The second result is a mask, bool, (n,).

    Args:
        x: any array, shape (n, ...); not changed.
        foreign: inputs of no class, shape (m, ...), of a dtype that x's can hold.
        noise_rate: the share to replace, in [0, 1].
        seed: see above.

    >>> replace_inputs([[1], [2], [3]], [[-1], [-2]], 1 / 3)[0].ravel().tolist()
    [1, 2, -2]
    """
    rate = checks.number("noise_rate", noise_rate, 0, 1, "try the share to replace")
    x, foreign = checks.array("x", x).copy(), checks.array("foreign", foreign)
    if x.ndim == 0 or x.shape[1:] != foreign.shape[1:] or foreign.ndim != x.ndim:
        raise ValueError(
            "foreign: must have entries of the shape of an entry of x, "
            f"got {foreign.shape} for x of {x.shape}; try resizing or cropping them"
        )
    if not np.can_cast(foreign.dtype, x.dtype):
        raise ValueError(
            f"foreign: must have a dtype that x's can hold, got {foreign.dtype} for x of "
            f"{x.dtype}; try astype on one of them"
        )
    count = rate_to_count(len(x), rate_to_parts(rate))
    if count and not len(foreign):
        raise ValueError("foreign: must have an example, got none; try inputs of other data")
    rng = checks.generator(seed)
    replaced = np.zeros(len(x), dtype=bool)
    replaced[rng.choice(len(x), size=count, replace=False)] = True
    x[replaced] = foreign[rng.choice(len(foreign), size=count, replace=count > len(foreign))]
    return x, replaced


def _labels(y: ArrayLike, num_classes: int) -> NDArray[Any]:
    y = checks.labels("y", y, num_classes)
    if np.iinfo(y.dtype).max < num_classes - 1:
        raise ValueError(
            f"y: must have a dtype that holds every class, got {y.dtype} for {num_classes} "
            "classes; try y.astype(int)"
        )
    return y


def _inputs(x: ArrayLike, y: NDArray[Any]) -> NDArray[np.float64]:
    """Return x as (n, d), checked; float64 unless it is another floating dtype."""
    x = checks.array("x", x)
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    checks.same_length("x", np.atleast_1d(x), "y", y)
    x = x.reshape(len(y), -1) if len(y) else np.zeros((0, 1))
    wrong = ~np.isfinite(x).all(axis=1)
    if wrong.any():
        raise ValueError(
            f"x: must be finite, got NaN or inf in x[{int(wrong.argmax())}]; "
            "try filling in or dropping such examples"
        )
    return x


def _truncated_normal(
    mean: float, spread: float, size: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return draws from a normal, truncated to within min(mean, 1 - mean) of its mean."""
    reach = min(mean, 1 - mean)
    if reach == 0 or spread == 0:
        return np.full(size, mean)
    if spread > 10 * reach:  # flat within reach, where hardly any draw would fall
        return rng.uniform(mean - reach, mean + reach, size)
    offsets = rng.standard_normal(size) * spread
    while (outside := np.abs(offsets) > reach).any():
        offsets[outside] = rng.standard_normal(outside.sum()) * spread
    return mean + offsets
