"""The mini-batch that the user gives, as the losses take it; what does not fit is refused here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from sigua_torch import _check
from sigua_torch._flat import is_visible
from sigua_torch._measure import class_dim

if TYPE_CHECKING:
    from sigua_torch.loss import SIGUALoss


class Examples(NamedTuple):
    """A mini-batch that fits the criterion and itself."""

    logits: Tensor
    target: Tensor
    """Class indices or floats; in floats, what is ignored is replaced."""
    valid: Tensor | None
    """bool, with a loss's shape: who takes part; None if it is known that all do."""
    items: Tensor | int | None
    """What "mean" divides by; None for the examples at hand."""
    on_host: bool
    """Whether a number may be read off a tensor."""

    @classmethod
    def of(
        cls, criterion: SIGUALoss, logits: Tensor, target: Tensor, items: Tensor | int | None
    ) -> Examples:
        """Return the examples, or raise ValueError if they do not fit.

        Args:
            criterion: whose options say what fits.
            logits: as for `SIGUALoss`, and so are the next; of a sigmoid already two.
            target: what they are compared with.
            items: what "mean" divides by.
        """
        of_classes = criterion.base is None or criterion.reads_margins
        base = None if of_classes else criterion.base
        _check.batch(criterion.method, logits, target, base, criterion.weight)
        if criterion.confidence is not None:
            criterion.confidence.check(logits)
        on_host = is_visible(logits)
        valid = _valid(criterion, logits, target, on_host)
        if items is not None:
            _check.items(items, target, valid, on_host)
        if target.is_floating_point():
            target = _filled(criterion, logits, target, valid)
            if of_classes and not criterion.sigmoid and (on_host or criterion.check_labels):
                _check.probabilities(target, class_dim(logits))
        return cls(logits, target, valid, items, on_host)

    def for_training(self, criterion: SIGUALoss) -> Examples:
        """Return them in float32 or better, with indices that one can look up by.

        Args:
            criterion: on another device than its own they are refused.
        """
        logits, target, valid, items, on_host = self
        if not on_host:
            _check.device(criterion.numbers.step.device, logits)
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
            target = target.to(logits.dtype) if target.is_floating_point() else target
        if not target.is_floating_point():  # uint8 would index like a mask
            if valid is not None and not leaves_out(criterion, target):
                target = target.masked_fill(~valid, 0)
            target = target.long()
        return Examples(logits, target, valid, items, on_host)


def leaves_out(criterion: SIGUALoss, target: Tensor) -> bool:
    """Return whether cross-entropy itself gives what is ignored a loss of 0.

    It does for its own default index, where nothing else looks anything up by the target.
    """
    if not criterion.is_usual or criterion.weight is not None or criterion.ignore_index != -100:
        return False
    looks_up = criterion.method.T is not None or criterion.reads_margins
    return not (looks_up or target.is_floating_point())


def _valid(criterion: SIGUALoss, logits: Tensor, target: Tensor, on_host: bool) -> Tensor | None:
    """Return who takes part, with a loss's shape; None if it is known that all do."""
    is_float = target.is_floating_point()
    if target.numel() == 0 or (is_float and not criterion.ignores_floats):
        return None
    if is_float and criterion.sigmoid:
        target = target.select(class_dim(logits), 1)
    if not is_float and _must_be_classes(criterion):
        return _valid_classes(criterion, target, logits.shape[class_dim(logits)], on_host)
    if is_float and criterion.by_sigmoid:
        return _valid_probabilities(criterion, target, on_host)
    valid = target != criterion.ignore_index
    # What else a target may be is the base's affair; and whether its loss has that shape.
    if not on_host or is_float:
        return valid
    return None if valid.all() else valid


def _must_be_classes(criterion: SIGUALoss) -> bool:
    return criterion.base is None or criterion.method.T is not None or criterion.reads_margins


def _valid_classes(criterion: SIGUALoss, target: Tensor, k: int, on_host: bool) -> Tensor | None:
    if on_host and not 0 <= criterion.ignore_index < k:
        low, high = target.aminmax()
        if low.item() >= 0 and high.item() < k:
            return None
    valid = target != criterion.ignore_index
    if on_host or criterion.check_labels:
        _check.labels(target, valid, k)
    return valid


def _valid_probabilities(criterion: SIGUALoss, target: Tensor, on_host: bool) -> Tensor | None:
    """Return which targets of a sigmoid take part, or None for all; refuse others."""
    if on_host and not 0 <= criterion.ignore_index <= 1:
        low, high = target.aminmax()
        if low.item() >= 0 and high.item() <= 1:
            return None
    valid = target != criterion.ignore_index
    if on_host or criterion.check_labels:
        _check.two_way_probabilities(target, valid)
    return valid


def _filled(criterion: SIGUALoss, logits: Tensor, target: Tensor, valid: Tensor | None) -> Tensor:
    """Return a float target without what is ignored in it."""
    if valid is None:
        return target
    if criterion.sigmoid:
        return target.masked_fill(~valid.unsqueeze(class_dim(logits)), 0.5)
    return target.masked_fill(~valid, 0.0)
