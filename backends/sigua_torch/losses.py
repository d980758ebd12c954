"""Losses for `SIGUALoss(method, loss)` that PyTorch does not have; each is per example.

    loss = functools.partial(generalized_cross_entropy, q=0.5)
    criterion = SIGUALoss(sigua.sigua_sl(noise_rate=0.5, delta=0.15), loss)

Each takes what `F.cross_entropy` takes: logits (k,), (N, k) or (N, k, d1, ...), and class indices
without the class dimension, or class probabilities of the same shape, over which it is averaged.
The result has a loss per example, in nats where it is a cross-entropy; 0 for the class index
`ignore_index`. `sigua.losses` is the spec.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from sigua import checks

__all__ = ["bootstrapping", "focal", "generalized_cross_entropy", "symmetric_cross_entropy"]


def generalized_cross_entropy(
    input: Tensor, target: Tensor, q: float = 0.7, ignore_index: int = -100
) -> Tensor:
    """Return (1 - p_y^q) / q, for q in [0, 1]: from cross-entropy (q -> 0) to 1 - p_y (q = 1).

    Zhang and Sabuncu 2018, "Generalized cross entropy loss for training deep neural networks with
    noisy labels".

    Raises:
        ValueError: q outside [0, 1].

    >>> generalized_cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), q=1.0)
    tensor([0.5000])
    """
    checks.number("q", q, 0, 1, "try 0.7, the paper's")
    return _of_cross_entropy(
        lambda loss: -(-q * loss).expm1() / q if q else loss, input, target, ignore_index
    )


def symmetric_cross_entropy(
    input: Tensor,
    target: Tensor,
    alpha: float = 0.1,
    beta: float = 1.0,
    log_zero: float = -4.0,
    ignore_index: int = -100,
) -> Tensor:
    """Return alpha * cross-entropy + beta * reverse cross-entropy, -sum_j p_j log q_j.

    q is the target, whose log 0 is `log_zero`, in [-80, 0], and so is a smaller log q_j: for class
    indices the second part is -log_zero * (1 - p_y). The paper takes 0.1 and 1 for CIFAR-10.

    Wang et al. 2019, "Symmetric cross entropy for robust learning with noisy labels".

    Raises:
        ValueError: a parameter out of range.
    """
    checks.number("alpha", alpha, 0, float("inf"), "try 0.1, the paper's for CIFAR-10")
    checks.number("beta", beta, 0, float("inf"), "try 1.0, the paper's for CIFAR-10")
    checks.number("log_zero", log_zero, -80, 0, "try -4.0, the default")
    plain = F.cross_entropy(input, target, reduction="none", ignore_index=ignore_index)
    if target.is_floating_point():
        dim = min(input.ndim - 1, 1)
        reverse = -(input.softmax(dim) * target.log().clamp_min(log_zero)).sum(dim)
    else:
        reverse = log_zero * (-plain).expm1()
    return alpha * plain + beta * reverse


def bootstrapping(
    input: Tensor,
    target: Tensor,
    beta: float | None = None,
    hard: bool = False,
    ignore_index: int = -100,
) -> Tensor:
    """Return the cross-entropy against beta * target + (1 - beta) * the model's own prediction.

    The prediction is p itself ("soft": the gradient flows through it, so the second part is the
    entropy of p) or the class of the largest p ("hard"); beta, in [0, 1], is by default the
    paper's, 0.95 for soft and 0.8 for hard.

    Reed et al. 2014, "Training deep neural networks on noisy labels with bootstrapping".

    Raises:
        ValueError: beta outside [0, 1].
    """
    beta = (0.8 if hard else 0.95) if beta is None else beta
    checks.number("beta", beta, 0, 1, "try the paper's, 0.95 for soft and 0.8 for hard")
    plain = F.cross_entropy(input, target, reduction="none", ignore_index=ignore_index)
    dim = min(input.ndim - 1, 1)
    log_p = input.log_softmax(dim)
    if hard:
        own = -log_p.max(dim).values
    else:  # a class with logit -inf adds 0, and so does its gradient
        own = -(log_p.exp() * log_p.clamp_min(torch.finfo(log_p.dtype).min)).sum(dim)
    if not target.is_floating_point():
        own = own.masked_fill(target == ignore_index, 0.0)
    return beta * plain + (1 - beta) * own


def focal(input: Tensor, target: Tensor, gamma: float = 2.0, ignore_index: int = -100) -> Tensor:
    """Return -(1 - p_y)^gamma log p_y, gamma >= 0: small for examples that are already learnt.

    Lin et al. 2017, "Focal loss for dense object detection", over a softmax.

    Raises:
        ValueError: gamma below 0.
    """
    checks.number("gamma", gamma, 0, float("inf"), "try 2.0, the paper's")

    def weighted(loss: Tensor) -> Tensor:
        limits = torch.finfo(loss.dtype)
        # At 1 - p = 0 the slope of a power below 1 is infinite, and inf * 0 is NaN.
        rest = (-(-loss).expm1()).clamp_min(limits.tiny)
        # An infinite loss stays infinite, but must not make the slope NaN either.
        return torch.where(loss.isinf(), loss, loss.clamp_max(limits.max) * rest**gamma)

    return _of_cross_entropy(weighted, input, target, ignore_index)


def _of_cross_entropy(
    function: Callable[[Tensor], Tensor], input: Tensor, target: Tensor, ignore_index: int
) -> Tensor:
    """Return a function of the cross-entropy at the label, or its mean over probabilities.

    The function of 0 is 0, so that an ignored label costs nothing.
    """
    if target.is_floating_point() and target.shape == input.shape:
        dim = min(input.ndim - 1, 1)
        return (function(-input.log_softmax(dim)) * target).sum(dim)
    plain = F.cross_entropy(input, target, reduction="none", ignore_index=ignore_index)
    return function(plain)
