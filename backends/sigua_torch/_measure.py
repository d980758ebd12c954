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

from sigua_torch._sparse import along

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
    """

    weight: Tensor | None
    smoothing: float
    base: Base | None

    def at_label(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss per example, with the target's shape less the classes."""
        if self.base is not None:
            return self.base(logits, target)
        return F.cross_entropy(
            logits, target, self.weight, reduction="none", label_smoothing=self.smoothing
        )

    def combined(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Return sum_j rows_j * loss(logits, j), for rows of the logits' shape and either sign."""
        dim = class_dim(logits)
        if self.base is not None:
            return (rows * self._every_class(logits, self.base)).sum(dim)
        if self.smoothing:
            # The smoothed loss against class j holds a share of every class's loss.
            share = self.smoothing * rows.mean(dim, keepdim=True)
            rows = (1 - self.smoothing) * rows + share
        return F.cross_entropy(logits, rows.to(logits.dtype), self.weight, reduction="none")

    def at_label_and_total(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss at the label and the sum of the losses against every class."""
        dim = class_dim(logits)
        if self.base is not None:
            total = self._every_class(logits, self.base).sum(dim)
            return self.at_label(logits, target), total
        log_p = logits.log_softmax(dim)
        weighted = log_p if self.weight is None else log_p * along(self.weight, logits, dim)
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
