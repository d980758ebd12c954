"""Losses for noisy labels besides cross-entropy: the spec, in NumPy and float64.

    logits: shape (n, k); labels: integers in [0, k), shape (n,); result: float64, shape (n,)

Whatever has another shape or range raises ValueError.
The `losses` modules of the adapters equal these where the framework has no such loss of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua.reference import cross_entropy, log_softmax

Floats = NDArray[np.float64]


def generalized_cross_entropy(logits: ArrayLike, labels: ArrayLike, q: float = 0.7) -> Floats:
    """Return (1 - p_y^q) / q, and cross-entropy for q = 0.

    Zhang and Sabuncu 2018, "Generalized cross entropy loss for training deep neural networks with
    noisy labels".

    >>> generalized_cross_entropy([[0.0, 0.0]], [1], q=1.0)
    array([0.5])
    """
    loss = cross_entropy(logits, labels)
    return -np.expm1(-q * loss) / q if q else loss


def symmetric_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    alpha: float = 0.1,
    beta: float = 1.0,
    log_zero: float = -4.0,
) -> Floats:
    """Return -alpha log p_y - beta log_zero (1 - p_y).

    The second part is the cross-entropy of the one-hot label under p, -sum_j p_j log y_j, with
    log 1 = 0 and log 0 = log_zero.

    Wang et al. 2019, "Symmetric cross entropy for robust learning with noisy labels".
    """
    loss = cross_entropy(logits, labels)
    return alpha * loss + beta * log_zero * np.expm1(-loss)


def bootstrapping(
    logits: ArrayLike, labels: ArrayLike, beta: float | None = None, hard: bool = False
) -> Floats:
    """Return -sum_j (beta y_j + (1 - beta) z_j) log p_j for the one-hot y.

    z is p ("soft", beta 0.95 by default) or one-hot at the largest p ("hard", beta 0.8).

    Reed et al. 2014, "Training deep neural networks on noisy labels with bootstrapping".
    """
    beta = (0.8 if hard else 0.95) if beta is None else beta
    log_p = log_softmax(logits)
    finite = np.maximum(log_p, np.finfo(np.float64).min)  # a class with p = 0 adds 0
    own = -log_p.max(axis=1) if hard else -(np.exp(log_p) * finite).sum(axis=1)
    return np.asarray(beta * cross_entropy(logits, labels) + (1 - beta) * own)


def focal(logits: ArrayLike, labels: ArrayLike, gamma: float = 2.0) -> Floats:
    """Return -(1 - p_y)^gamma log p_y.

    Lin et al. 2017, "Focal loss for dense object detection", over a softmax.
    """
    loss = cross_entropy(logits, labels)
    return np.asarray((-np.expm1(-loss)) ** gamma * loss)
