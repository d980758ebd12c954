"""The short way through a training call, for the everyday one: see `_flat` for what that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sigua_torch._correct import Plain
from sigua_torch._flat import FlatRule, is_everyday, is_transformed
from sigua_torch._flat_agreement import FlatAgreement
from sigua_torch._measure import Measure
from sigua_torch._schedule import EpochNumbers
from sigua_torch._select import LastSplit, flattened

if TYPE_CHECKING:
    from sigua_torch.loss import SIGUALoss


class Everyday:
    """Measures and selects in few operators.

    Args:
        rule: the method's.
        correction: the criterion's, kept here, for a module finds its submodules slowly.
        numbers: the criterion's, too.
        last: where the split is left.
    """

    def __init__(
        self,
        rule: FlatRule | FlatAgreement,
        correction: Plain,
        numbers: EpochNumbers,
        last: LastSplit,
    ) -> None:
        self.rule, self.correction, self.numbers, self.last = rule, correction, numbers, last

    @classmethod
    def of(cls, criterion: SIGUALoss, last: LastSplit) -> Everyday | None:
        """Return the short way of a criterion whose method has one; None for others."""
        parts = criterion.correction, criterion.numbers, last
        method = criterion.method
        if FlatRule.applies(method):
            return cls(FlatRule(method), *parts)
        if FlatAgreement.applies(method):
            return cls(FlatAgreement(criterion.confidence), *parts)
        return None

    def __call__(
        self, criterion: SIGUALoss, logits: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """Return the losses and their weights; None where only the general way will do."""
        if not self._takes(criterion, logits, target):
            return None
        measure = Measure(None, criterion.label_smoothing, None, unguarded=True)
        losses = self.correction.losses(measure, logits, target)
        column = flattened(losses).detach()
        numbers = self.numbers.now(on_host=True)
        found = self.rule(column, numbers, criterion.averages, logits, target)
        if found is None:
            return None
        self.numbers.advance()
        weights, codes = found
        self.last.found = codes, losses.shape
        return losses, weights

    def _takes(self, criterion: SIGUALoss, logits: Tensor, target: Tensor) -> bool:
        if not criterion.is_usual or torch.compiler.is_compiling() or is_transformed():
            return False
        if not is_everyday(logits, target):
            return False
        if not (criterion.training and torch.is_grad_enabled()) or criterion.weight is not None:
            return False
        if isinstance(self.rule, FlatAgreement) and (logits.ndim > 2 or criterion.label_smoothing):
            return False
        k = logits.shape[1]
        low, high = target.aminmax()
        if low.item() < 0 or high.item() >= k or 0 <= criterion.ignore_index < k:
            return False
        T = criterion.method.T
        return T is None or T.num_classes == k
