"""The mini-batch that a user gives, as the step takes it; what does not fit is refused here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sigua_torch import _check, _ops
from sigua_torch._ops import column, exact


class Examples(NamedTuple):
    """A mini-batch that fits the criterion and itself."""

    logits: Tensor  # float32 or better; (N, k, ...), or whatever a loss of the user's takes
    y: Tensor  # labels, those of who takes no part replaced by 0 if they are looked up
    valid: Tensor | None  # bool, (n,): who takes part; None if known that all do
    shape: torch.Size | None  # of the losses; None where only the loss can tell
    viewable: bool  # whether NumPy can look at them
    shares: Tensor | None = None  # (n,): each one's part of the denominator; None for 1 each


def logits_of(output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits of a model's output, classes in dimension 1, and their target.

    Tensors are left as they are. Other outputs have (N, length, k) where the target is (N, length),
    as in token classification. A causal language model (its output is a `CausalLMOutput...`)
    predicts the next token at each place: the last place has no target, and the first token no
    logits.
    """
    if isinstance(output, Tensor):
        return output, target
    if isinstance(output, (tuple, list)):
        advice = "return_dict=True in the model's config, or passing the logits"
        rule = "be logits, or an output that names them"
        _check.refuse("input", rule, type(output).__name__, advice)
    named = isinstance(output, Mapping)
    if named and "logits" not in output:
        got = ", ".join(map(repr, output)) or "an empty one"
        advice = "returning the logits under that name, or passing them"
        _check.refuse("input", "have 'logits' if it is a mapping", got, advice)
    logits: Tensor = output["logits"] if named else getattr(output, "logits", output)
    tensors = isinstance(logits, Tensor) and isinstance(target, Tensor)
    if tensors and logits.ndim == 3 and logits.shape[:2] == target.shape:
        if any("CausalLMOutput" in kind.__name__ for kind in type(output).__mro__):
            logits, target = logits[:, :-1], target[:, 1:]
        logits = logits.movedim(2, 1)
    return logits, target


def of_classes(
    input: Tensor,
    target: Tensor,
    where: Tensor | None,
    ignore_index: int,
    looked_up: bool = True,
    names: tuple[str, str] = ("input", "target"),
) -> Examples:
    """Return examples with a class each, or with class probabilities, or raise ValueError.

    Arguments are those of the call; `looked_up` says whether anything but `F.cross_entropy`, which
    ignores -100, looks up by labels, and `names` what input and target are called there.
    """
    _check.tensor(names[0], input)
    _check.tensor(names[1], target, input.device, names[0])
    x, y = input, target
    usual = y.dtype == torch.int64 and x.ndim == 2 and x.shape[:1] == y.shape and x.shape[1] > 1
    if not (usual and x.is_floating_point()):
        _check.classes(names, x, y)
    shape = y.shape if y.dim() < x.dim() else x.select(min(x.ndim - 1, 1), 0).shape
    if where is not None:
        _check.mask("where", where, shape, x.device)
    if x.ndim == 1:
        x, y, where = x[None], y[None], None if where is None else where[None]
    x = exact(x)
    viewable = _ops.is_viewable(x)
    if where is not None:  # a NaN there would reach the gradient of all
        x = x.masked_fill(~where.unsqueeze(1), 0.0)
    if y.is_floating_point():
        if viewable:
            _check.probabilities(names[1], y, where)
        y = y.to(x.dtype) if where is None else y.to(x.dtype).masked_fill(~where.unsqueeze(1), 0.0)
        return Examples(x, y, column(where), shape, viewable)
    y = y if usual else y.long()  # uint8 would index like a mask
    y, valid = _indices(names[1], y, where, x.shape[1], ignore_index, viewable)
    if valid is not None and (looked_up or where is not None or ignore_index != -100):
        y = y * valid
    return Examples(x, y, column(valid), shape, viewable)


def _indices(
    name: str, y: Tensor, where: Tensor | None, k: int, ignore_index: int, viewable: bool
) -> tuple[Tensor, Tensor | None]:
    """Return class indices, and who takes part, whose indices lie in [0, k)."""
    if viewable and where is None and not 0 <= ignore_index < k:
        codes = y.numpy().view(np.uint64)  # so that what is negative is large
        if codes.size == 0 or codes.take(codes.argmax()) < k:  # max() takes three times as long
            return y, None
    valid = y != ignore_index
    valid = valid if where is None else valid & where
    if viewable:
        _check.labels(name, y, valid, k)
        if valid.all():
            return y, None
    return y, valid


def of_any(
    input: Tensor, target: Tensor, where: Tensor | None, ignore_index: int, sigmoid: bool
) -> Examples:
    """Return examples for a loss of the user's, which alone knows what they have to look like.

    Of integers, `ignore_index` takes no part; targets of a sigmoid are to lie in [0, 1].
    """
    _check.tensor("input", input)
    _check.tensor("target", target, input.device, "input")
    viewable, valid = _ops.is_viewable(input), where
    input, target = exact(input), exact(target)
    if not target.is_floating_point() and target.dtype != torch.bool:
        given = target != ignore_index
        valid = given if where is None else given & where
        valid = None if viewable and valid.all() else valid
    target = target if valid is None else _without(target, valid)
    if sigmoid:
        _check.sigmoid(target, viewable)
    input = input if where is None else _without(input, where)
    return Examples(input, target, column(valid), None, viewable)


def _without(x: Tensor, valid: Tensor) -> Tensor:
    """Return x with 0 for who takes no part; losses of another shape than the mask refuse it."""
    if valid.shape == x.shape[:1] + x.shape[2:] != x.shape:  # of logits, (N, k, ...)
        return x.masked_fill(~valid.unsqueeze(1), 0)
    if valid.shape != x.shape[: valid.ndim]:
        return x
    return x.masked_fill(~valid.reshape(*valid.shape, *[1] * (x.ndim - valid.ndim)), 0)


def groups_of(groups: Any, y: Tensor, input: Any, target: Any, shape: torch.Size) -> Tensor | None:
    """Return who is judged together, integers, (n,), or raise ValueError if `groups` do not fit.

    A function is shown input and target as the user gave them; `shape` is a loss's.
    """
    n = shape.numel()
    if groups == "class":
        if y.is_floating_point() or y.numel() != n:
            advice = "target.argmax(1), or a function of (input, target)"
            _check.refuse("groups", "not be 'class' without class indices", y.dtype, advice)
        return y.reshape(-1)
    if groups == "image":
        images = shape[0] if shape else 1
        if n == images > 1:
            rule = "not be 'image' without several losses per image, as one for each pixel"
            _check.refuse("groups", rule, f"one for each of {images}", "leaving it out")
        return torch.arange(images, device=y.device).repeat_interleave(n // max(images, 1))
    found: Tensor = groups(input, target)
    if not isinstance(found, Tensor) or found.shape != shape or found.is_floating_point():
        rule = f"return integers with a loss's shape, {tuple(shape)}"
        _check.refuse("groups", rule, found, "lambda input, target: annotators")
    return found.reshape(-1).long()
