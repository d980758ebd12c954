"""What a criterion refuses, in one sentence each, before anything is changed."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from sigua import Known, Method, Split, checks
from sigua.conditions import may_read_marks
from sigua_torch._flat import is_visible
from sigua_torch._measure import class_dim, is_index

_PLAIN = "nn.CrossEntropyLoss(reduction='none')"


def options(
    method: Any,
    weight: Any,
    ignore_index: Any,
    reduction: str,
    smoothing: float,
    base: Any,
    rank_by: Any,
) -> None:
    """Refuse arguments of the constructor."""
    Method.require(method)
    if not isinstance(ignore_index, Integral):
        came = f"{ignore_index!r} came"
        raise checks.refuse("ignore_index", "must be an int", came, "-100 is the default")
    if weight is not None:
        class_weights(weight)
    checks.choice("reduction", reduction, ("mean", "sum", "none"))
    checks.number("label_smoothing", smoothing, 0, 1, "0 turns it off")
    _own_loss("base", base)
    _own_loss("rank_by", rank_by)
    if rank_by is not None:
        method.require_ranking()
        plain = type(rank_by) is nn.CrossEntropyLoss and rank_by.weight is None
        plain = plain and not rank_by.label_smoothing
        method.require_cross_entropy("rank_by", plain, repr(rank_by), f"use {_PLAIN}")
    elif base is not None or smoothing:
        name = "base" if base is not None else "label_smoothing"
        # Beside a correction it would not be the corrected loss.
        use = f"add rank_by={_PLAIN}" if method.correction == "none" else "leave it out"
        method.require_cross_entropy(name, False, "another loss", use)
    if base is None:
        return
    if weight is not None or smoothing:
        name = "weight" if weight is not None else "label_smoothing"
        raise checks.refuse(name, "belongs to cross-entropy", "base= came too", "give it to base")


def _own_loss(name: str, loss: Any) -> None:
    """Refuse what cannot be called with tensors."""
    if loss is not None and not callable(loss):
        advice = "give a function of (input, target), or a loss with reduction='none'"
        raise checks.refuse(name, "must be callable", f"a {type(loss).__name__} came", advice)
    if isinstance(loss, type):
        came, advice = f"the class {loss.__name__} came", f"give {loss.__name__}(reduction='none')"
        raise checks.refuse(name, "must be a loss, ready to be called", came, advice)
    if getattr(loss, "__module__", None) == "sigua.losses":
        came, advice = f"NumPy's {loss.__name__} came", f"use sigua_torch.losses.{loss.__name__}"
        raise checks.refuse(name, "must be a loss of tensors", came, advice)


def scope(method: Method, per_class: Any, per_image: Any, sync: Any) -> None:
    """Refuse scopes that are no booleans or do not fit, and images that are pooled."""
    for name, value in (("per_class", per_class), ("per_image", per_image)):
        checks.flag(name, value)
        if value:
            method.require_whole(name)
    if per_image and sync not in (None, False):
        rule = "an image is in one process, and nothing needs to be pooled"
        raise checks.refuse("per_image", rule, f"sync={sync!r} came too", "leave sync out")


def class_weights(weight: Any) -> None:
    """Refuse class weights that are no vector of finite numbers from 0 up."""
    rule = "must be a floating-point tensor of shape (classes,), finite and not negative"
    if not isinstance(weight, Tensor):
        came = f"a {type(weight).__name__} came"
        raise checks.refuse("weight", rule, came, "use torch.tensor(weight, dtype=torch.float32)")
    if weight.ndim != 1 or not weight.is_floating_point():
        came = f"shape {tuple(weight.shape)} of {weight.dtype} came"
        raise checks.refuse("weight", rule, came, "use weight.float()")
    if weight.device.type == "cpu" and not ((weight >= 0) & (weight < float("inf"))).all():
        raise checks.refuse("weight", rule, f"{weight.tolist()} came", "mend the entry")


def items(value: Any, target: Tensor, valid: Tensor | None, on_host: bool) -> None:
    """Refuse a denominator that is no positive number; one on a device is not read.

    It may be 0 where nobody takes part.
    """
    if isinstance(value, Tensor):
        if not on_host or value.device.type != "cpu" or value.numel() != 1:
            return
        value = value.item()
    number = checks.number("num_items_in_batch", value, 0, float("inf"), "count the examples")
    if number == 0 and (target.numel() if valid is None else valid.any()):
        advice = "count the examples of all micro-batches"
        raise checks.refuse("num_items_in_batch", "must be positive", "0 came", advice)


def device(own: torch.device, logits: Tensor) -> None:
    """Refuse logits on another device than what the criterion keeps."""
    if logits.device != own:
        raise ValueError(
            f"input: must be on the criterion's device, {own}, got {logits.device}; "
            f"try criterion.to({str(logits.device)!r})"
        )


def _tensor(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        came = f"a {type(value).__name__} came"
        raise checks.refuse(name, "must be a torch tensor", came, "use torch.as_tensor(...)")


def batch(method: Method, logits: Tensor, target: Tensor, base: Any) -> None:
    """Refuse logits and targets whose types, shapes or dtypes cannot belong together."""
    _tensor("input", logits)
    _tensor("target", target)
    if logits.device != target.device:
        raise ValueError(
            f"target: must be on the input's device, {logits.device}, got {target.device}; "
            f"try target.to({str(logits.device)!r})"
        )
    if base is not None and method.T is None:
        if isinstance(base, (nn.BCEWithLogitsLoss, nn.BCELoss)) and not target.is_floating_point():
            raise ValueError(
                f"target: must be float for {type(base).__name__}, from 0 to 1, "
                f"got {target.dtype}; try target.float()"
            )
        return
    shapes = f"input {tuple(logits.shape)} and target {tuple(target.shape)} came"
    if logits.ndim == 0 or not logits.is_floating_point():
        rule = "must be floating-point logits with a class dimension"
        came = f"shape {tuple(logits.shape)} of {logits.dtype} came"
        raise checks.refuse("input", rule, came, "give (N, classes)")
    dim = class_dim(logits)
    if logits.shape[dim] == 1 and base is None:
        advice = "for one logit per example pass base=nn.BCEWithLogitsLoss(reduction='none')"
        raise checks.refuse("input", "must have two classes or more", shapes, advice)
    without_classes = logits.shape[:dim] + logits.shape[dim + 1 :]
    if logits.shape == target.shape:
        if not target.is_floating_point():
            rule = "class indices must lack the class dimension"
            advice = "give (N,) indices, or float probabilities"
            if logits.ndim > 1:
                advice += "; several labels each need base=nn.BCEWithLogitsLoss(reduction='none')"
            raise checks.refuse("target", rule, shapes, advice)
    elif target.shape != without_classes:
        rule = "must have the input's shape, or that without the class dimension"
        raise checks.refuse("target", rule, shapes, "compare the two shapes")
    elif target.dtype not in (torch.int64, torch.uint8):
        came = f"{target.dtype} came"
        raise checks.refuse("target", "class indices must be int64", came, "use target.long()")
    method.require_classes(logits.shape[dim])


def labels(target: Tensor, valid: Tensor, num_classes: int) -> None:
    """Refuse class indices outside [0, k) that are not ignored; reads the target."""
    outside = valid & ((target < 0) | (target >= num_classes))
    if torch.compiler.is_compiling():  # which raises on the device itself
        torch._assert_async(~outside.any(), f"target: must lie in [0, {num_classes})")
    elif outside.any():
        place = tuple(outside.nonzero()[0].tolist())
        where = ", ".join(map(str, place))
        came = f"target[{where}] is {target[place].item()}"
        rule = f"class indices must lie in [0, {num_classes})"
        raise checks.refuse(
            "target", rule, came, "number the classes from 0; ignore_index marks missing labels"
        )


def probabilities(target: Tensor, dim: int) -> None:
    """Refuse class probabilities that are none; reads the target."""
    sums = target.sum(dim)
    wrong = ~((sums - 1).abs() <= 0.02) | (target < 0).any(dim)  # bfloat16 rounds that much
    if torch.compiler.is_compiling():
        torch._assert_async(~wrong.any(), "target: class probabilities must sum to 1, from 0 up")
    elif wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        where = f"target[{', '.join(map(str, place))}]" if place else "target"
        came = f"{where} sums to {sums[place].item():g} (least entry of all: {target.min():g})"
        rule = "class probabilities must sum to 1, from 0 up"
        advice = "give class indices; with a logit per label, base=nn.BCEWithLogitsLoss(...)"
        raise checks.refuse("target", rule, came, advice)


def trusted(method: Method, mask: Tensor | Split | None, losses: Tensor) -> None:
    """Refuse a mask, or a pair, that is missing, superfluous, or does not fit the losses."""
    needed = isinstance(method.condition, Known)
    if mask is None:
        if needed:
            advice = "call criterion(input, target, trusted=mask)"
            raise checks.refuse("trusted", "sigua.Known needs a mask", "none came", advice)
        return
    if not may_read_marks(method.condition):
        came = f"{method!r} came"
        advice = "use sigua.custom(sigua.Known(), gamma=...), or leave it out"
        raise checks.refuse("trusted", "only Known or a rule of your own reads it", came, advice)
    for part in mask if isinstance(mask, Split) else (mask,):
        _tensor("trusted", part)
        if part.dtype != torch.bool or part.shape != losses.shape:
            came = f"{tuple(part.shape)} of {part.dtype} came"
            rule = f"must be a bool per example, {tuple(losses.shape)}"
            raise checks.refuse("trusted", rule, came, "use mask.bool(), True for good")


def call(loss: Any, logits: Tensor, target: Tensor) -> Any:
    """Return what a loss of the user's returns; say so if it is the labels that it cannot take."""
    try:
        return loss(logits, target)
    except (IndexError, RuntimeError):
        if is_visible(logits) and is_index(logits, target) and not target.is_floating_point():
            everyone = torch.ones_like(target, dtype=torch.bool)
            labels(target, everyone, logits.shape[class_dim(logits)])
        raise


def per_example(
    name: str, losses: Any, logits: Tensor, target: Tensor, like: Tensor | None
) -> None:
    """Refuse what a loss of the user's returned if it is no loss per example.

    Args:
        name: the argument that it was given as.
        losses: what it returned.
        logits: what it was called with.
        target: what it was called with.
        like: what it has to have the shape of; None for what the logits and the target allow.
    """
    rule, advice = "must return a loss per example", "give it reduction='none'"
    if not isinstance(losses, Tensor):
        raise checks.refuse(name, rule, f"a {type(losses).__name__} came", "return a tensor")
    if losses.ndim == 0 and (logits.ndim > 1 or not is_index(logits, target)):
        raise checks.refuse(name, rule, "a scalar came", advice)
    shapes = [target.shape]
    if like is not None:
        shapes = [like.shape]
    elif target.is_floating_point():
        dim = class_dim(logits)
        # The last is a loss per image; a column against a row would make them (N, N).
        shapes += [logits.shape[:dim] + logits.shape[dim + 1 :], target.shape[:1]]
    missing = name == "base" and target.is_floating_point()  # as valid entries say
    if like is not None and missing and like.shape != losses.shape:
        raise ValueError(
            "ignore_index: must be left out where a base has not a loss for each entry of the "
            f"target, got losses {tuple(losses.shape)} for {tuple(target.shape)}; try class indices"
        )
    if losses.shape not in shapes:
        came = f"shape {tuple(losses.shape)} came for {tuple(shapes[0])}"
        advice = "reduce over the classes alone"
        if losses.numel() > target.numel():
            advice = f"give it an input and a target of one shape, not {tuple(logits.shape)}"
        raise checks.refuse(name, rule, came, advice)
