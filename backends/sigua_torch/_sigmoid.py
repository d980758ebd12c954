"""Turn one logit per label into the two of a softmax, so that methods for softmaxes apply."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

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
    """Return whether the base is a sigmoid's loss and the method works on a softmax only.

    Raises:
        ValueError: such a base has a reduction or weights of its own, or `rank_by` is a sigmoid's.
    """
    needs = getattr(method, "T", None) is not None or getattr(method, "needs_cross_entropy", False)
    needs = needs or reads(getattr(method, "condition", None), "margins")
    if not (needs and isinstance(base, nn.BCEWithLogitsLoss)):
        return False
    if base.reduction != "none":
        raise ValueError(
            f"base: must return a loss per example, got reduction={base.reduction!r}; "
            "try reduction='none'"
        )
    if base.weight is not None or base.pos_weight is not None:
        raise ValueError(
            "base: must be unweighted for this method, got weight or pos_weight; "
            "try weight=torch.tensor([1.0, pos_weight]) in SIGUALoss instead"
        )
    if isinstance(rank_by, nn.BCEWithLogitsLoss):
        raise ValueError(
            "rank_by: must be for the two logits of a softmax, got BCEWithLogitsLoss; "
            "try nn.CrossEntropyLoss(reduction='none')"
        )
    return True


def two_way_pair(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return `two_way(input)` and its target: class indices, or (1 - y, y) where y is float.

    Raises:
        ValueError: not one target per logit.
    """
    if not (isinstance(input, Tensor) and isinstance(target, Tensor)):
        return input, target  # refused later, as for every base
    if input.shape != target.shape:
        raise ValueError(
            f"target: must have the shape of the logits, got input {tuple(input.shape)} and "
            f"target {tuple(target.shape)}; try target.view_as(input)"
        )
    if target.is_floating_point():
        return two_way(input), torch.stack([1 - target, target], min(input.ndim, 1))
    return two_way(input), target.long()
