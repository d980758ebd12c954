"""Cross-entropy against rows of T^-1, for the everyday call: see `_flat` for what that is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual


def takes(logits: Tensor) -> bool:
    """Return whether `row_losses` is for these logits; it has no forward-mode derivative."""
    tangent = unpack_dual(logits).tangent  # type: ignore[no-untyped-call]  # PyTorch's
    return logits.ndim == 2 and tangent is None


def row_losses(logits: Tensor, inverse: Tensor, target: Tensor) -> Tensor:
    """Return `F.cross_entropy(logits, inverse[target], reduction="none")`, in fewer passes.

    Args:
        logits: float, (n, k).
        inverse: of their dtype, (k, k), without gradient; its rows sum to 1.
        target: class indices, int64, (n,).
    """
    losses: Tensor = _RowLosses.apply(logits, inverse, target)[0]  # type: ignore[no-untyped-call]  # PyTorch's
    return losses


class _RowLosses(torch.autograd.Function):
    """The losses -sum_j R_ij log p_ij for rows R that sum to 1, and their slopes p - R.

    The slopes are an output, so that they can be differentiated again, without the logits.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, inverse: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        rows, log_p = inverse.index_select(0, target), logits.log_softmax(1)
        losses = (rows * log_p).sum(1).neg_()
        slopes = log_p.exp_().sub_(rows)
        ctx.set_materialize_grads(False)
        # A copy, for the caller may write to the target before the backward pass.
        ctx.save_for_backward(slopes, inverse, target.clone())
        return losses, slopes

    @staticmethod
    def backward(ctx: Any, of_losses: Tensor | None, of_slopes: Tensor | None) -> Any:
        slopes, inverse, target = ctx.saved_tensors
        gradient = None if of_losses is None else slopes * of_losses.unsqueeze(1)
        if of_slopes is not None:  # somebody differentiates twice
            p = slopes + inverse.index_select(0, target)
            second = p * (of_slopes - (p * of_slopes).sum(1, keepdim=True))
            gradient = second if gradient is None else gradient + second
        return gradient, None, None
