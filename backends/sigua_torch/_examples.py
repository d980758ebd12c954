"""The mini-batch that a user gives, as the step takes it; what does not fit is refused here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sigua import Method
from sigua.requirements import require_classes
from sigua_torch import _check, _ops

HALF = torch.float16, torch.bfloat16


class Examples(NamedTuple):
    """A mini-batch that fits the criterion and itself."""

    logits: Tensor
    """float32 or better; (N, k, ...), or whatever a loss of the user's takes."""
    y: Tensor
    """Labels, those of who takes no part replaced by 0."""
    valid: Tensor | None
    """bool, with a loss's shape: who takes part; None if it is known that all do."""
    shape: torch.Size | None
    """Of the losses; None where only the loss can tell."""
    plain: bool
    """Whether NumPy can look at them."""


def of_classes(
    method: Method, input: Tensor, target: Tensor, where: Tensor | None, ignore_index: int
) -> Examples:
    """Return examples with a class each, or with class probabilities.

    Args:
        method: whose T must be of as many classes.
        input: logits, (k,), (N, k) or (N, k, d1, ...).
        target: class indices without the class dimension, or probabilities.
        where: bool, with a loss's shape.
        ignore_index: the class index that takes no part.

    Raises:
        ValueError: they do not fit.
    """
    if not (type(input) is Tensor and type(target) is Tensor and input.device == target.device):
        _check.tensor("input", input)
        _check.tensor("target", target, input.device)
    shape, index = input.shape, target.dtype == torch.int64
    if not (index and len(shape) == 2 and shape[1] > 1 and target.shape == shape[:1]) or (
        not input.is_floating_point()
    ):
        _check.classes(input, target)
    if input.ndim == 1:
        input, target = input[None], target[None]
        where = None if where is None else where.reshape(1)
    k = input.shape[1]
    require_classes(method, k)
    input = input.float() if input.dtype in HALF else input
    if where is not None:
        _check.mask("where", where, input.shape[:1] + input.shape[2:], input.device)
    plain = _ops.is_plain(input)
    if target.ndim == input.ndim:
        y, valid = _probabilities(target.to(input.dtype), where, plain), where
    else:
        y = target if index else target.long()  # uint8 would index like a mask
        y, valid = _indices(y, where, k, ignore_index, plain)
    losses_shape = shape[:0] if len(shape) == 1 else input.shape[:1] + input.shape[2:]
    return Examples(input, y, valid, losses_shape, plain)


def _indices(
    y: Tensor, where: Tensor | None, k: int, ignore_index: int, plain: bool
) -> tuple[Tensor, Tensor | None]:
    """Return class indices in [0, k), and who takes part."""
    everyone = where is None and not 0 <= ignore_index < k
    if plain and everyone:
        codes = y.numpy().view(np.uint64)  # so that what is negative is large
        if codes.size == 0 or codes.max() < k:
            return y, None
    valid = y != ignore_index
    valid = valid if where is None else valid & where
    if plain:
        _check.labels(y, valid, k)
        if valid.all():
            return y, None
    return y.masked_fill(~valid, 0), valid


def _probabilities(y: Tensor, where: Tensor | None, plain: bool) -> Tensor:
    if plain:
        _check.probabilities(y, where)
    return y if where is None else y.masked_fill(~where.unsqueeze(1), 0.0)


def of_any(
    input: Tensor, target: Tensor, where: Tensor | None, ignore_index: int, sigmoid: bool
) -> Examples:
    """Return examples for a loss of the user's, which alone knows what they have to look like.

    Args:
        input: for the loss.
        target: for the loss; of integers, `ignore_index` takes no part.
        where: bool, with a loss's shape.
        ignore_index: as for class indices.
        sigmoid: whether targets are to lie in [0, 1].

    Raises:
        ValueError: not tensors, or not on one device, or no targets for a sigmoid.
    """
    _check.tensor("input", input)
    _check.tensor("target", target, input.device)
    plain, valid = _ops.is_plain(input), where
    if input.dtype in HALF:
        input = input.float()
        target = target.float() if target.dtype in HALF else target
    if not target.is_floating_point() and target.dtype != torch.bool:
        given = target != ignore_index
        valid = given if where is None else given & where
        if plain and valid.all():
            valid = None
    if sigmoid and (plain or not target.is_floating_point()):
        _check.sigmoid(target, valid)
    return Examples(input, _replaced(target, valid), valid, None, plain)


def _replaced(target: Tensor, valid: Tensor | None) -> Tensor:
    """Return a target with 0 for who takes no part, if it says who that is."""
    if valid is None or valid.shape != target.shape[: valid.ndim]:
        return target
    trailing = [1] * (target.ndim - valid.ndim)
    return target.masked_fill(~valid.reshape(*valid.shape, *trailing), 0)


def groups_of(groups: Any, y: Tensor, given: Any, shape: torch.Size) -> Tensor | None:
    """Return who is judged together: integers, (n,); None for all.

    Args:
        groups: "class", "image", or a function of input and target.
        y: labels.
        given: input and target as the user gave them.
        shape: a loss's.

    Raises:
        ValueError: "class" without class indices, "image" of a loss per image, or a function that
            does not return integers with a loss's shape.
    """
    if groups is None:
        return None
    n = shape.numel()
    if groups == "class":
        if y.is_floating_point() or y.numel() != n:
            raise ValueError(
                "groups: must not be 'class' without class indices, got probabilities; try "
                "target.argmax(1), a function of (input, target), or leaving groups out"
            )
        return y.reshape(-1)
    if groups == "image":
        images = shape[0] if shape else 1
        if images > 1 and n == images:
            raise ValueError(
                "groups: must not be 'image' without several losses per image, one for each pixel "
                f"or time step, got one for each of {images}; try leaving it out"
            )
        return torch.arange(images, device=y.device).repeat_interleave(n // max(images, 1))
    found = groups(*given[:2])
    integer = isinstance(found, Tensor) and not (found.is_floating_point() or found.is_complex())
    if not integer or found.shape != shape:
        got = f"{tuple(found.shape)} of {found.dtype}" if isinstance(found, Tensor) else repr(found)
        raise ValueError(
            f"groups: must return integers with a loss's shape, {tuple(shape)}, got {got}; "
            "try lambda input, target: annotators"
        )
    return found.reshape(-1).long()
