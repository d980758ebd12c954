"""The criterion that the user had: its options, and a loss per example."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sigua import checks, step
from sigua_torch import _check

Criterion = Callable[[Tensor, Tensor], Tensor]


class Options(NamedTuple):
    """What a call reads from the criterion."""

    loss: Any  # `sigua.step.CrossEntropy`, or `Own`
    weight: Tensor | None  # float, (k,), of cross-entropy; None for 1 each
    ignore_index: int
    reduction: str

    @property
    def is_plain(self) -> bool:
        """Whether it is cross-entropy, without weights and unsmoothed."""
        own = self.loss
        return isinstance(own, step.CrossEntropy) and self.weight is None and not own.smoothing

    @property
    def unweighted(self) -> Any:
        """What decides: class weights scale losses, and do no more."""
        return self.loss if self.weight is None else self.loss._replace(weight=None)

    def cast(self, dtype: torch.dtype) -> Options:
        """Return them with the weights in the logits' precision."""
        if self.weight is None or self.weight.dtype == dtype:
            return self
        weight = self.weight.to(dtype)
        return self._replace(weight=weight, loss=self.loss._replace(weight=weight))


class Wrapped:
    """Reads a criterion at every call, so that what is set on it later is obeyed, or refused.

    It is an `nn.CrossEntropyLoss`, a module with a reduction, or what returns a loss per example.
    """

    def __init__(self, loss: Any) -> None:
        self.loss = loss
        self.is_module = isinstance(loss, nn.Module) and hasattr(loss, "reduction")
        kind = nn.CrossEntropyLoss
        self.is_cross_entropy = isinstance(loss, kind) and type(loss).forward is kind.forward
        self.is_sigmoid = isinstance(loss, (nn.BCEWithLogitsLoss, nn.BCELoss))
        self._each = copy.copy(loss) if self.is_module else loss
        self._known: Any = None
        self._options = Options(None, None, -100, "mean")
        self.read()

    def read(self) -> Options:
        """Return the options as they are now."""
        loss = self.loss
        if not self.is_cross_entropy:
            return self._read_own()
        weight, known = loss.weight, (loss.ignore_index, loss.reduction, loss.label_smoothing)
        if known != self._known or weight is not self._options.weight:
            _check.cross_entropy(weight, *known)
            own = step.CrossEntropy(weight, known[2])
            self._options, self._known = Options(own, weight, int(known[0]), known[1]), known
        return self._options

    def _read_own(self) -> Options:
        reduction = self.loss.reduction if self.is_module else "mean"
        _check.no_weight(self.loss)
        if reduction not in _check.REDUCTIONS:
            checks.choice("reduction", reduction, _check.REDUCTIONS)
        if self.is_module and not torch.compiler.is_compiling():
            self._each.__dict__.update(self.loss.__dict__ | {"reduction": "none"})
        default = getattr(self.loss, "keywords", {}).get("ignore_index", -100)  # of a partial
        ignore_index = getattr(self.loss, "ignore_index", default)
        return Options(step.Own(self._asked), None, ignore_index, reduction)

    def _asked(self, logits: Tensor, target: Tensor) -> Tensor:
        losses: Tensor = self._each(logits, target)
        _check.per_example(losses, logits, target)
        return losses
