"""The mini-batch that a user gives, as the step takes it; what does not fit is refused here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sigua_torch import _check, _ops

HALF = torch.float16, torch.bfloat16


class Examples(NamedTuple):
    """A mini-batch that fits the criterion and itself."""

    logits: Tensor
    """float32 or better; (N, k, ...), or whatever a loss of the user's takes."""
    y: Tensor
    """Labels, those of who takes no part replaced by 0 if they are looked up."""
    valid: Tensor | None
    """bool, with a loss's shape: who takes part; None if it is known that all do."""
    shape: torch.Size | None
    """Of the losses; None where only the loss can tell."""
    plain: bool
    """Whether NumPy can look at them."""


def of_classes(
    input: Tensor, target: Tensor, where: Tensor | None, ignore_index: int, looked_up: bool = True
) -> Examples:
    """Return examples with a class each, or with class probabilities.

    Args:
        input: logits, (k,), (N, k) or (N, k, d1, ...).
        target: class indices without the class dimension, or probabilities.
        where: bool, with a loss's shape: who takes part.
        ignore_index: the class index that takes no part.
        looked_up: whether anything but `F.cross_entropy`, which ignores -100, looks up by labels.

    Raises:
        ValueError: they do not fit.
    """
    _check_tensors(input, target)
    x, y = input, target
    usual = y.dtype == torch.int64 and x.ndim == 2 and x.shape[:1] == y.shape and x.shape[1] > 1
    if not (usual and x.is_floating_point()):
        _check.classes(x, y)
    shape = y.shape if y.dim() < x.dim() else x.select(min(x.ndim - 1, 1), 0).shape
    if where is not None:
        _check.mask("where", where, shape, x.device)
    if x.ndim == 1:
        x, y, where = x[None], y[None], None if where is None else where[None]
    x = x.float() if x.dtype in HALF else x
    plain = _ops.is_plain(x)
    if y.is_floating_point():
        if plain:
            _check.probabilities(y, where)
        y = y.to(x.dtype) if where is None else y.to(x.dtype).masked_fill(~where.unsqueeze(1), 0.0)
        return Examples(x, y, where, shape, plain)
    y = y if usual else y.long()  # uint8 would index like a mask
    y, valid = _indices(y, where, x.shape[1], ignore_index, plain)
    if valid is not None and (looked_up or where is not None or ignore_index != -100):
        y = y * valid
    return Examples(x, y, valid, shape, plain)


def _check_tensors(input: Tensor, target: Tensor) -> None:
    usual = type(input) is Tensor and type(target) is Tensor
    if not usual or input.device != target.device:
        _check.tensor("input", input)
        _check.tensor("target", target, input.device, "input")


def _indices(
    y: Tensor, where: Tensor | None, k: int, ignore_index: int, plain: bool
) -> tuple[Tensor, Tensor | None]:
    """Return class indices, and who takes part, whose indices lie in [0, k)."""
    if plain and where is None and not 0 <= ignore_index < k:
        codes = y.numpy().view(np.uint64)  # so that what is negative is large
        if codes.size == 0 or codes.max() < k:
            return y, None
    valid = y != ignore_index
    valid = valid if where is None else valid & where
    if plain:
        _check.labels(y, valid, k)
        if valid.all():
            return y, None
    return y, valid


def of_any(
    input: Tensor, target: Tensor, where: Tensor | None, ignore_index: int, sigmoid: bool
) -> Examples:
    """Return examples for a loss of the user's, which alone knows what they have to look like.

    Args:
        input: for the loss.
        target: for the loss; of integers, `ignore_index` takes no part.
        where: bool, with a loss's shape: who takes part.
        ignore_index: as for class indices.
        sigmoid: whether targets are to lie in [0, 1].

    Raises:
        ValueError: not tensors, or not on one device, or no targets for a sigmoid.
    """
    _check_tensors(input, target)
    plain, valid = _ops.is_plain(input), where
    if input.dtype in HALF:
        input = input.float()
        target = target.float() if target.dtype in HALF else target
    if not target.is_floating_point() and target.dtype != torch.bool:
        given = target != ignore_index
        valid = given if where is None else given & where
        valid = None if plain and valid.all() else valid
    if sigmoid and (plain or not target.is_floating_point()):
        _check.sigmoid(target, valid)
    if valid is not None and valid.shape == target.shape[: valid.ndim]:
        entries = valid.reshape(*valid.shape, *[1] * (target.ndim - valid.ndim))
        target = target.masked_fill(~entries, 0)
    return Examples(input, target, valid, None, plain)


def groups_of(groups: Any, y: Tensor, input: Any, target: Any, shape: torch.Size) -> Tensor | None:
    """Return who is judged together: integers, (n,); None for all.

    Args:
        groups: "class", "image", or a function of input and target.
        y: labels.
        input: for the function, as the user gave it.
        target: likewise.
        shape: a loss's.

    Raises:
        ValueError: "class" without class indices, "image" of a loss per image, or a function that
            does not return integers with a loss's shape.
    """
    if groups is None:
        return None
    n, rule = shape.numel(), "groups: must not be"
    if groups == "class":
        if y.is_floating_point() or y.numel() != n:
            raise ValueError(
                f"{rule} 'class' without class indices, got {y.dtype}; try target.argmax(1), or a "
                "function of (input, target)"
            )
        return y.reshape(-1)
    if groups == "image":
        images = shape[0] if shape else 1
        if n == images > 1:
            raise ValueError(
                f"{rule} 'image' without several losses per image, one for each pixel or time "
                f"step, got one for each of {images}; try leaving it out"
            )
        return torch.arange(images, device=y.device).repeat_interleave(n // max(images, 1))
    found: Tensor = groups(input, target)
    if not isinstance(found, Tensor) or found.shape != shape or found.is_floating_point():
        raise ValueError(
            f"groups: must return integers with a loss's shape, {tuple(shape)}, got {found}; "
            "try lambda input, target: annotators"
        )
    return found.reshape(-1).long()
