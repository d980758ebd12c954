"""What a criterion measures of its examples: the plain loss, or all that training asks for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sigua_torch import _check
from sigua_torch._examples import Examples, leaves_out
from sigua_torch._measure import Measure, is_index

if TYPE_CHECKING:
    from sigua_torch.loss import SIGUALoss


class Measured(NamedTuple):
    """A mini-batch's losses, all of one shape."""

    losses: Tensor
    """With gradient; 0 for who takes no part."""
    ranked: Tensor
    """What decides: without class weights, or what `rank_by` says."""
    sums: Tensor | None
    """1'T^-1 l, where the rule may ask for it."""
    shares: Tensor | None
    """Each example's part of the plain criterion's denominator; None if it is 1 each."""


def measured(criterion: SIGUALoss, examples: Examples) -> Measured:
    """Return what is optimised, and what decides."""
    logits, target, valid, *_ = examples
    measure = _measure(criterion, logits)
    losses = criterion.correction.losses(measure, logits, target)
    if criterion.base is not None:
        _check.per_example("base", losses, logits, target, valid)
    with torch.no_grad():
        unweighted = Measure(None, measure.smoothing, measure.base)
        ranked = losses.detach()
        if criterion.rank_by is not None:
            ranked = _check.call(criterion.rank_by, logits, target)
            _check.per_example("rank_by", ranked, logits, target, losses)
            ranked = ranked.to(losses.dtype)
        elif measure.weight is not None:
            ranked = criterion.correction.losses(unweighted, logits, target)
        sums = criterion.correction.class_sums(unweighted, logits)
    shares = None
    if measure.weight is not None and is_index(logits, target):
        shares = measure.weight[target]
        shares = shares if valid is None else shares.masked_fill(~valid, 0.0)
    if valid is not None and not leaves_out(criterion, target):
        losses = losses.masked_fill(~valid, 0.0)
    return Measured(losses, ranked, sums, shares)


def plain(criterion: SIGUALoss, examples: Examples) -> Tensor:
    """Return the plain criterion's loss."""
    logits, target, valid, items, _ = examples
    if criterion.reduction != "mean":
        items = None
    reduction = criterion.reduction if items is None else "sum"
    measure = _measure(criterion, logits)
    if criterion.base is not None or (valid is not None and target.is_floating_point()):
        loss = _reduced(criterion, measure, examples, reduction)
    else:
        loss = F.cross_entropy(
            logits,
            target,
            measure.weight,
            ignore_index=criterion.ignore_index,
            reduction=reduction,
            label_smoothing=criterion.label_smoothing,
        )
    return loss if items is None else loss / items


def _reduced(criterion: SIGUALoss, measure: Measure, examples: Examples, reduction: str) -> Tensor:
    """Return what `F.cross_entropy` knows nothing of: a base, or ignored rows of floats."""
    logits, target, valid, *_ = examples
    if valid is not None and not target.is_floating_point():
        target = target.masked_fill(~valid, 0)
    loss = measure.at_label(logits, target)
    if criterion.base is not None:
        _check.per_example("base", loss, logits, target, valid)
    size: Any = loss.numel()
    if valid is not None:
        loss, size = loss.masked_fill(~valid, 0.0), valid.sum()
    if reduction == "none":
        return loss
    return loss.sum() / size if reduction == "mean" else loss.sum()


def _measure(criterion: SIGUALoss, logits: Tensor) -> Measure:
    weight = None if criterion.weight is None else criterion.weight.to(logits.dtype)
    base = None if criterion.base is None else partial(_check.call, criterion.base)
    return Measure(weight, criterion.label_smoothing, base)
