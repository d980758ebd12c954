"""A loss for noisy labels that PyTorch does not have, for `SIGUALoss(method, loss)`.

    loss = functools.partial(generalized_cross_entropy, q=0.5)
    criterion = SIGUALoss(sigua.sigua_sl(noise_rate=0.5, delta=0.15), loss)

`sigua.losses` is the spec.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from sigua import checks

__all__ = ["generalized_cross_entropy"]


def generalized_cross_entropy(
    input: Tensor, target: Tensor, q: float = 0.7, ignore_index: int = -100
) -> Tensor:
    """Return (1 - p_y^q) / q, for q in [0, 1]: from cross-entropy (q -> 0) to 1 - p_y (q = 1).

    Zhang and Sabuncu 2018, "Generalized cross entropy loss for training deep neural networks with
    noisy labels".

    Args:
        input: logits, (k,), (N, k) or (N, k, d1, ...).
        target: class indices without the class dimension; or class probabilities of the input's
            shape, over which the loss is averaged.
        q: in [0, 1].
        ignore_index: the class index whose loss is 0.

    Returns:
        A loss per example.

    Raises:
        ValueError: q outside [0, 1].

    >>> import torch
    >>> generalized_cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), q=1.0)
    tensor([0.5000])
    """
    checks.number("q", q, 0, 1, "try 0.7, the paper's")
    soft = target.is_floating_point() and target.shape == input.shape
    dim = min(input.ndim - 1, 1)
    if soft:
        loss = -input.log_softmax(dim)
    else:
        loss = F.cross_entropy(input, target, reduction="none", ignore_index=ignore_index)
    loss = -(-q * loss).expm1() / q if q else loss
    return (loss * target).sum(dim) if soft else loss
