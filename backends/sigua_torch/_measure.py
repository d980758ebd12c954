"""The loss per example, plain, and its extension to signed weights on all classes.

`logits` has its k classes in dimension 1, or in dimension 0 if it is (k,), as
`torch.nn.functional.cross_entropy` has them. `target` holds class indices and lacks that dimension,
or class probabilities and has the logits' shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from sigua_torch._flat import is_visible
from sigua_torch._sparse import along, settled

Base = Callable[[Tensor, Tensor], Tensor]


def class_dim(logits: Tensor) -> int:
    return 0 if logits.ndim == 1 else 1


def is_index(logits: Tensor, target: Tensor) -> bool:
    return target.ndim < logits.ndim


class Measure(NamedTuple):
    """The loss at the label, and its extension to signed weights on all classes.

    Args:
        weight: float, (k,), of the classes; None for ones.
        smoothing: label smoothing, in [0, 1].
        base: the user's own loss, from logits and target to a loss per example; None for
            cross-entropy.
        unguarded: whether whoever asks looks for infinite losses himself: those that count in a
            combination then make it anything infinite, or NaN, in fewer operators.
    """

    weight: Tensor | None
    smoothing: float
    base: Base | None
    unguarded: bool = False

    def at_label(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss per example, with the target's shape less the classes."""
        if self.base is not None:
            return self.base(logits, target)
        return F.cross_entropy(
            logits, target, self.weight, reduction="none", label_smoothing=self.smoothing
        )

    def combined(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Return sum_j rows_j * loss(logits, j), for rows of the logits' shape and either sign.

        It is +inf, which says nothing, where an infinite loss has a coefficient other than 0.
        """
        dim = class_dim(logits)
        if self.base is None and (self.unguarded or is_visible(logits)):
            smoothed = self._smoothed(rows, dim).to(logits.dtype)
            losses = F.cross_entropy(logits, smoothed, self.weight, reduction="none")
            if self.unguarded or is_finite(losses):
                return losses
        rows = self._smoothed(rows, dim)
        if self.base is not None:
            return settled(self._every_class(logits, self.base), rows, dim)
        return settled(-logits.log_softmax(dim), self._weighted(rows, dim), dim)

    def of_probabilities(self, log_p: Tensor, target: Tensor) -> Tensor:
        """Return `at_label` of logits that are log-probabilities, and may be -inf.

        A class of which the target has nothing drops out, and is not 0 * inf.
        """
        if self.base is not None:
            return self.base(log_p, target)
        if is_visible(log_p):
            losses = self.at_label(log_p, target)
            if is_finite(losses):
                return losses
        dim = class_dim(log_p)
        if is_index(log_p, target):
            target = torch.zeros_like(log_p).scatter(dim, target.unsqueeze(dim), 1.0)
        rows = self._smoothed(target.to(log_p.dtype), dim)
        return settled(-log_p, self._weighted(rows, dim), dim)

    def _smoothed(self, rows: Tensor, dim: int) -> Tensor:
        if not self.smoothing:
            return rows
        # The smoothed loss against class j holds a share of every class's loss.
        return (1 - self.smoothing) * rows + self.smoothing * rows.mean(dim, keepdim=True)

    def _weighted(self, rows: Tensor, dim: int) -> Tensor:
        return rows if self.weight is None else rows * along(self.weight, rows, dim)

    def at_label_and_total(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss at the label and the sum of the losses against every class."""
        dim = class_dim(logits)
        if self.base is not None:
            total = self._every_class(logits, self.base).sum(dim)
            return self.at_label(logits, target), total
        log_p = logits.log_softmax(dim)
        weighted = log_p
        if self.weight is not None:
            weight = along(self.weight, logits, dim)
            weighted = (log_p * weight).masked_fill(weight == 0, 0.0)
        total = -weighted.sum(dim)
        if is_index(logits, target):
            loss = -weighted.gather(dim, target.unsqueeze(dim)).squeeze(dim)
        else:
            loss = -(weighted * target).sum(dim)
        if self.smoothing:
            loss = (1 - self.smoothing) * loss + self.smoothing / logits.shape[dim] * total
        return loss, total

    def _every_class(self, logits: Tensor, base: Base) -> Tensor:
        dim = class_dim(logits)
        template = logits.select(dim, 0).long()
        classes = range(logits.shape[dim])
        return torch.stack([base(logits, torch.full_like(template, j)) for j in classes], dim)


def is_finite(losses: Tensor) -> bool:
    """Return whether no loss is infinite or NaN, or too large to be squared; reads it."""
    flat = losses.detach().reshape(-1)
    return bool(torch.dot(flat, flat).item() < float("inf"))
