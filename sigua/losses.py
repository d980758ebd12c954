"""Generalised cross-entropy, a loss for noisy labels: the spec, in NumPy and float64.

PyTorch's is `sigua_torch.losses.generalized_cross_entropy`; Keras has one of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua.reference import cross_entropy


def generalized_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, q: float = 0.7
) -> NDArray[np.float64]:
    """Return (1 - p_y^q) / q, (n,), and cross-entropy for q = 0.

    Zhang and Sabuncu 2018, "Generalized cross entropy loss for training deep neural networks with
    noisy labels".

    Args:
        logits: float, (n, k).
        labels: integers in [0, k), (n,).
        q: in [0, 1].

    Raises:
        ValueError: logits or labels of another shape or range.

    >>> generalized_cross_entropy([[0.0, 0.0]], [1], q=1.0)
    array([0.5])
    """
    loss = cross_entropy(logits, labels)
    return -np.expm1(-q * loss) / q if q else loss
