"""One logit per label as a softmax's two, so that all that knows two classes knows a sigmoid."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sigua import checks
from sigua.conditions import reads


def two_way(input: Tensor) -> Tensor:
    """Return a sigmoid's logit z as a softmax's logits (0, z): the same probabilities.

    Args:
        input: float, (N,) or (N, d1, ...), one logit per label.

    Returns:
        (N, 2) or (N, 2, d1, ...), for class indices 0 and 1 of the shape of `input`.

    >>> two_way(torch.tensor([3.0, -1.0]))
    tensor([[ 0.,  3.],
            [ 0., -1.]])
    """
    return torch.stack([torch.zeros_like(input), input], min(input.ndim, 1))


def is_two_way(base: Any, method: Any, rank_by: Any = None) -> bool:
    """Return whether the base is a sigmoid's, and the method knows softmaxes only.

    Raises:
        ValueError: it then has a reduction, or weights of its own, or what ranks is a sigmoid's.
    """
    needs = getattr(method, "T", None) is not None or getattr(method, "needs_cross_entropy", False)
    needs = needs or reads(getattr(method, "condition", None), "margins")
    if not (needs and isinstance(base, nn.BCEWithLogitsLoss)):
        return False
    if base.reduction != "none":
        came, advice = f"reduction={base.reduction!r} came", "give it reduction='none'"
        raise checks.refuse("base", "must return a loss per example", came, advice)
    if base.weight is not None or base.pos_weight is not None:
        rule, came = "must be unweighted for this method", "weight or pos_weight came"
        advice = "leave it out and pass weight=torch.tensor([1.0, pos_weight]) to SIGUALoss"
        raise checks.refuse("base", rule, came, advice)
    if isinstance(rank_by, nn.BCEWithLogitsLoss):
        advice = "use nn.CrossEntropyLoss(reduction='none')"
        rule, came = "is given a softmax's two logits", "a BCEWithLogitsLoss came"
        raise checks.refuse("rank_by", rule, came, advice)
    return True


def two_way_pair(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return `two_way(input)` and its target: class indices, or (1 - y, y) where y is float.

    Raises:
        ValueError: not one target per logit.
    """
    if not (isinstance(input, Tensor) and isinstance(target, Tensor)):
        return input, target  # refused with all others
    if input.shape != target.shape:
        came = f"input {tuple(input.shape)} and target {tuple(target.shape)} came"
        advice = "use target.view_as(input)"
        raise checks.refuse("target", "must have the logits' shape", came, advice)
    if target.is_floating_point():
        return two_way(input), torch.stack([1 - target, target], min(input.ndim, 1))
    return two_way(input), target.long()
