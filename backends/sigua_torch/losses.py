"""Losses for `SIGUALoss(method, base=...)` that PyTorch does not have; each is per example.

    base = functools.partial(generalized_cross_entropy, q=0.5)
    criterion = SIGUALoss(sigua.sigua_sl(noise_rate=0.5, delta=0.15), base=base)

`input` is (k,), (N, k) or (N, k, d1, ...). `target` holds class indices and lacks the class
dimension, or class probabilities and has the input's shape. The result has a loss per example, in
nats where it is a cross-entropy; 0 for the class index `ignore_index`. `sigua.losses` is the spec.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from sigua import checks
from sigua_torch._measure import class_dim, is_index
from sigua_torch._sigmoid import two_way

__all__ = [
    "bootstrapping",
    "focal",
    "generalized_cross_entropy",
    "huber",
    "log_sum",
    "symmetric_cross_entropy",
    "two_way",
]


def generalized_cross_entropy(
    input: Tensor, target: Tensor, q: float = 0.7, ignore_index: int = -100
) -> Tensor:
    """Return (1 - p_y^q) / q: from cross-entropy (q -> 0) to 1 - p_y (q = 1).

    Zhang and Sabuncu 2018, "Generalized cross entropy loss for training deep neural networks with
    noisy labels".

    Args:
        input: logits, float.
        target: class indices, or probabilities, over which the loss is averaged.
        q: in [0, 1].
        ignore_index: the class index whose loss is 0.

    Raises:
        ValueError: q outside [0, 1], or shapes that do not fit.

    >>> generalized_cross_entropy(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), q=1.0)
    tensor([0.5000])
    """
    checks.number("q", q, 0, 1, "try 0.7, the paper's")

    def loss(log_p: Tensor) -> Tensor:
        return -(q * log_p).expm1() / q if q else -log_p

    return _at_label(loss, input, target, ignore_index)


def symmetric_cross_entropy(
    input: Tensor,
    target: Tensor,
    alpha: float = 0.1,
    beta: float = 1.0,
    log_zero: float = -4.0,
    ignore_index: int = -100,
) -> Tensor:
    """Return alpha * cross-entropy + beta * reverse cross-entropy, -sum_j p_j log q_j.

    q is the target, whose log 0 is `log_zero`: for class indices the second part is
    -log_zero * (1 - p_y).

    Wang et al. 2019, "Symmetric cross entropy for robust learning with noisy labels".

    Args:
        input: logits, float.
        target: class indices, or probabilities.
        alpha: at least 0; the paper uses 0.1 for CIFAR-10.
        beta: at least 0; the paper uses 1 for CIFAR-10.
        log_zero: the paper's A, in [-80, 0]; a smaller log q_j is replaced by it.
        ignore_index: the class index whose loss is 0.

    Raises:
        ValueError: a parameter out of range, or shapes that do not fit.
    """
    checks.number("alpha", alpha, 0, float("inf"), "try 0.1, the paper's for CIFAR-10")
    checks.number("beta", beta, 0, float("inf"), "try 1.0, the paper's for CIFAR-10")
    checks.number("log_zero", log_zero, -80, 0, "try -4.0, the default")
    _check_shapes(input, target)
    if is_index(input, target):

        def loss(log_p: Tensor) -> Tensor:
            return beta * log_zero * log_p.expm1() - alpha * log_p

        return _at_label(loss, input, target, ignore_index)
    dim = class_dim(input)
    reverse = -(input.softmax(dim) * target.log().clamp_min(log_zero)).sum(dim)
    return alpha * _at_label(torch.neg, input, target, ignore_index) + beta * reverse


def bootstrapping(
    input: Tensor,
    target: Tensor,
    beta: float | None = None,
    hard: bool = False,
    ignore_index: int = -100,
) -> Tensor:
    """Return the cross-entropy against beta * target + (1 - beta) * the model's own prediction.

    The prediction is p itself ("soft": the gradient flows through it, so the second part is the
    entropy of p) or the class of the largest p ("hard").

    Reed et al. 2014, "Training deep neural networks on noisy labels with bootstrapping".

    Args:
        input: logits, float.
        target: class indices, or probabilities.
        beta: in [0, 1]; 0.95 for soft and 0.8 for hard by default, as in the paper.
        hard: whether to use the class of the largest p.
        ignore_index: the class index whose loss is 0.

    Raises:
        ValueError: beta outside [0, 1], or shapes that do not fit.
    """
    beta = (0.8 if hard else 0.95) if beta is None else beta
    checks.number("beta", beta, 0, 1, "try the paper's, 0.95 for soft and 0.8 for hard")
    _check_shapes(input, target)
    dim = class_dim(input)
    log_p = input.log_softmax(dim)
    if hard:
        own = -log_p.max(dim).values
    else:  # a class with logit -inf adds 0, and so does its gradient
        own = -(log_p.exp() * log_p.clamp_min(torch.finfo(log_p.dtype).min)).sum(dim)
    own = _ignored(own, input, target, ignore_index)
    return beta * _at_label(torch.neg, input, target, ignore_index) + (1 - beta) * own


def focal(input: Tensor, target: Tensor, gamma: float = 2.0, ignore_index: int = -100) -> Tensor:
    """Return -(1 - p_y)^gamma log p_y, which is small for examples that are already learnt.

    Lin et al. 2017, "Focal loss for dense object detection", over a softmax.

    Args:
        input: logits, float.
        target: class indices, or probabilities, over which the loss is averaged.
        gamma: at least 0; 0 is cross-entropy.
        ignore_index: the class index whose loss is 0.

    Raises:
        ValueError: gamma below 0, or shapes that do not fit.
    """
    checks.number("gamma", gamma, 0, float("inf"), "try 2.0, the paper's")

    def loss(log_p: Tensor) -> Tensor:
        limits = torch.finfo(log_p.dtype)
        # At 1 - p = 0 the slope of a power below 1 is infinite, and inf * 0 is NaN.
        rest = (-log_p.expm1()).clamp_min(limits.tiny)
        # An infinite loss stays infinite, but must not make the slope NaN either.
        return torch.where(log_p.isinf(), -log_p, -log_p.clamp_min(limits.min) * rest**gamma)

    return _at_label(loss, input, target, ignore_index)


def huber(input: Tensor, target: Tensor, delta: float = 1.0, ignore_index: int = -100) -> Tensor:
    """Return sum_j H(f_j - y_j) for scores f and the one-hot y, by `F.huber_loss`.

    H(r) is r^2 / 2 up to |r| = delta, and delta * (|r| - delta / 2) beyond. The scores are used as
    they are, without a softmax: a regression on one-hot vectors (the SIGUA paper, Section 4, which
    gives no delta). Forward correction needs probabilities, and so
    `lambda input, target: huber(input.softmax(1), target)`.

    Args:
        input: scores, float.
        target: class indices, or vectors to regress on.
        delta: above 0.
        ignore_index: the class index whose loss is 0.

    Raises:
        ValueError: delta not above 0, or shapes that do not fit.
    """
    _positive("delta", delta, "try 1.0, PyTorch's default")
    losses = F.huber_loss(input, _one_hot(input, target, ignore_index), "none", delta)
    return _ignored(losses.sum(class_dim(input)), input, target, ignore_index)


def log_sum(
    input: Tensor, target: Tensor, epsilon: float = 0.1, ignore_index: int = -100
) -> Tensor:
    """Return sum_j log(1 + |f_j - y_j| / epsilon) for scores f and the one-hot y.

    Candes et al. 2008, "Enhancing sparsity by reweighted l1 minimization", less the constant
    k log(epsilon), so that the loss is 0 where f = y. The scores are used as they are (see
    `huber`). The SIGUA paper, Section 4, gives no epsilon.

    Args:
        input: scores, float.
        target: class indices, or vectors to regress on.
        epsilon: above 0; residuals well above it cost little more than those near it.
        ignore_index: the class index whose loss is 0.

    Raises:
        ValueError: epsilon not above 0, or shapes that do not fit.
    """
    _positive("epsilon", epsilon, "try 0.1, the default")
    residuals = (input - _one_hot(input, target, ignore_index)).abs()
    losses = (residuals / epsilon).log1p().sum(class_dim(input))
    return _ignored(losses, input, target, ignore_index)


def _at_label(
    loss: Callable[[Tensor], Tensor], input: Tensor, target: Tensor, ignore_index: int
) -> Tensor:
    """Return loss(log p_y), or its mean over the target's probabilities."""
    _check_shapes(input, target)
    dim = class_dim(input)
    log_p = input.log_softmax(dim)
    if not is_index(input, target):
        return (loss(log_p) * target).sum(dim)
    index = target.where(target != ignore_index, 0).long().unsqueeze(dim)
    return _ignored(loss(log_p.gather(dim, index).squeeze(dim)), input, target, ignore_index)


def _one_hot(input: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """Return the target with the input's shape and dtype."""
    _check_shapes(input, target)
    if not is_index(input, target):
        return target.to(input.dtype)
    dim = class_dim(input)
    index = target.where(target != ignore_index, 0).long().unsqueeze(dim)
    return torch.zeros_like(input).scatter(dim, index, 1.0)


def _ignored(losses: Tensor, input: Tensor, target: Tensor, ignore_index: int) -> Tensor:
    """Return the losses with 0 for ignored class indices."""
    return losses.masked_fill(target == ignore_index, 0.0) if is_index(input, target) else losses


def _check_shapes(input: Tensor, target: Tensor) -> None:
    dim = class_dim(input)
    if target.shape not in (input.shape, input.shape[:dim] + input.shape[dim + 1 :]):
        raise ValueError(
            "target: must have the input's shape, with or without the class dimension, got input "
            f"{tuple(input.shape)} and target {tuple(target.shape)}; try the same mini-batch"
        )
    if is_index(input, target) and target.is_floating_point():
        raise ValueError(
            f"target: must be integers if it holds class indices, got {target.dtype}; "
            "try target.long(), or class probabilities"
        )


def _positive(name: str, value: float, advice: str) -> None:
    if checks.number(name, value, 0, float("inf"), advice) == 0:
        raise ValueError(f"{name}: must be a number above 0, got {value!r}; {advice}")
