"""What a training call refuses, in one sentence each, before anything is changed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sigua import Known, Method, Split, checks
from sigua.conditions import may_read_marks
from sigua.requirements import require_classes
from sigua_torch._flat import is_visible
from sigua_torch._measure import class_dim, is_index


def items(value: Any, target: Tensor, valid: Tensor | None, on_host: bool) -> None:
    """Refuse a denominator that is no positive number; one on a device is not read.

    It may be 0 where nobody takes part.
    """
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(
                f"num_items_in_batch: must be one number, got shape {tuple(value.shape)}; "
                "try num_items_in_batch.sum()"
            )
        if not on_host or value.device.type != "cpu":
            return
        value = value.item()
    number = checks.number("num_items_in_batch", value, 0, float("inf"), "try a count of examples")
    if number == 0 and (target.numel() if valid is None else valid.any()):
        raise ValueError(
            "num_items_in_batch: must be positive, got 0; "
            "try the number of examples of all micro-batches"
        )


def device(own: torch.device, logits: Tensor) -> None:
    """Refuse logits on another device than what the criterion keeps."""
    if logits.device != own:
        raise ValueError(
            f"input: must be on the criterion's device, {own}, got {logits.device}; "
            f"try criterion.to({str(logits.device)!r})"
        )


def _tensor(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        got = type(value).__name__
        raise ValueError(f"{name}: must be a torch tensor, got a {got}; try torch.as_tensor(...)")


def same_device(name: str, value: Tensor, device: torch.device, of: str) -> None:
    """Refuse a tensor on another device than `of` says."""
    if value.device != device:
        raise ValueError(
            f"{name}: must be on {of}, {device}, got {value.device}; try {name}.to({str(device)!r})"
        )


def batch(
    method: Method, logits: Tensor, target: Tensor, base: Any, weight: Tensor | None = None
) -> None:
    """Refuse logits and targets whose types, shapes or dtypes cannot belong together."""
    _tensor("input", logits)
    _tensor("target", target)
    same_device("target", target, logits.device, "the input's device")
    if base is not None and method.T is None:
        if isinstance(base, (nn.BCEWithLogitsLoss, nn.BCELoss)) and not target.is_floating_point():
            raise ValueError(
                f"target: must be float for {type(base).__name__}, from 0 to 1, "
                f"got {target.dtype}; try target.float()"
            )
        return
    _logits(logits, target, base)
    _target(logits, target)
    k = logits.shape[class_dim(logits)]
    require_classes(method, k)
    if weight is not None and len(weight) != k:
        raise ValueError(
            f"weight: must have an entry for each of the input's {k} classes, "
            f"got {len(weight)}; try one weight per class"
        )


def _logits(logits: Tensor, target: Tensor, base: Any) -> None:
    if logits.ndim == 0 or not logits.is_floating_point():
        raise ValueError(
            "input: must be floating-point logits with a class dimension, "
            f"got shape {tuple(logits.shape)} of {logits.dtype}; try (N, classes)"
        )
    if logits.shape[class_dim(logits)] == 1 and base is None:
        raise ValueError(
            f"input: must have two classes or more, got {_shapes(logits, target)}; "
            "try base=nn.BCEWithLogitsLoss(reduction='none') for one logit per example"
        )


def _target(logits: Tensor, target: Tensor) -> None:
    dim = class_dim(logits)
    if logits.shape == target.shape:
        if not target.is_floating_point():
            advice = "(N,) indices, or float probabilities"
            if logits.ndim > 1:
                advice += ", or base=nn.BCEWithLogitsLoss(reduction='none') for several labels each"
            raise ValueError(
                "target: must be class indices without the class dimension, "
                f"got {_shapes(logits, target)}; try {advice}"
            )
    elif target.shape != logits.shape[:dim] + logits.shape[dim + 1 :]:
        raise ValueError(
            "target: must have the input's shape, or that without the class dimension, "
            f"got {_shapes(logits, target)}; try target.squeeze(1) for (N, 1), or "
            "logits.movedim(-1, 1) for classes in the last dimension"
        )
    elif target.dtype not in (torch.int64, torch.uint8):
        raise ValueError(
            f"target: must be class indices in int64, got {target.dtype}; try target.long()"
        )


def _shapes(logits: Tensor, target: Tensor) -> str:
    return f"input {tuple(logits.shape)} and target {tuple(target.shape)}"


def labels(target: Tensor, valid: Tensor, num_classes: int) -> None:
    """Refuse class indices outside [0, k) that are not ignored; reads the target."""
    outside = valid & ((target < 0) | (target >= num_classes))
    place = _first(outside, f"target: must lie in [0, {num_classes})")
    if place is not None:
        raise ValueError(
            f"target: must be class indices in [0, {num_classes}), got {target[place].item()}"
            f"{_at(place)}; try numbering the classes from 0, or ignore_index for missing labels"
        )


def two_way_probabilities(target: Tensor, valid: Tensor) -> None:
    """Refuse a sigmoid's targets outside [0, 1] that are not ignored; reads them."""
    outside = valid & ~((target >= 0) & (target <= 1 + checks.SUM_TOLERANCE))
    place = _first(outside, "target: must lie in [0, 1]")
    if place is not None:
        raise ValueError(
            f"target: must lie in [0, 1] for a sigmoid, got {target[place].item():g}{_at(place)}; "
            "try probabilities, or ignore_index=-1 with -1 for missing labels"
        )


def probabilities(target: Tensor, dim: int) -> None:
    """Refuse class probabilities that are none; reads the target."""
    sums = target.sum(dim)
    wrong = ~((sums - 1).abs() <= checks.SUM_TOLERANCE) | (target < 0).any(dim)
    place = _first(wrong, "target: must be class probabilities")
    if place is not None:
        raise ValueError(
            "target: must be class probabilities that sum to 1, from 0 up, got the sum "
            f"{sums[place].item():g}{_at(place)} (least entry of all: {target.min():g}); "
            "try class indices, or base=nn.BCEWithLogitsLoss(...) with a logit per label"
        )


def _first(wrong: Tensor, rule: str) -> tuple[int, ...] | None:
    """Return where the first wrong entry is, or None; in a graph the device itself raises."""
    if torch.compiler.is_compiling():
        torch._assert_async(~wrong.any(), rule)
        return None
    return tuple(wrong.nonzero()[0].tolist()) if wrong.any() else None


def _at(place: tuple[int, ...]) -> str:
    return f" at [{', '.join(map(str, place))}]" if place else ""


def trusted(method: Method, mask: Tensor | Split | None, losses: Tensor) -> None:
    """Refuse a mask, or a pair, that is missing, superfluous, or does not fit the losses."""
    if mask is None:
        if isinstance(method.condition, Known):
            raise ValueError(
                "trusted: must be given for sigua.Known, got None; "
                "try criterion(input, target, trusted=mask)"
            )
        return
    if not may_read_marks(method.condition):
        raise ValueError(
            "trusted: must come with sigua.Known or a rule of your own, which read it, got "
            f"{method!r}; try sigua.custom(sigua.Known(), gamma=...), or leave it out"
        )
    for part in mask if isinstance(mask, Split) else (mask,):
        _tensor("trusted", part)
        same_device("trusted", part, losses.device, "the losses' device")
        if part.dtype != torch.bool or part.shape != losses.shape:
            raise ValueError(
                f"trusted: must be a bool per example, {tuple(losses.shape)}, got "
                f"{tuple(part.shape)} of {part.dtype}; try mask.bool(), True for good"
            )


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
    rule = f"{name}: must return a loss per example"
    if not isinstance(losses, Tensor):
        raise ValueError(f"{rule}, got a {type(losses).__name__}; try a tensor")
    if losses.ndim == 0 and (logits.ndim > 1 or not is_index(logits, target)):
        raise ValueError(f"{rule}, got a scalar; try reduction='none'")
    missing = name == "base" and target.is_floating_point()  # as valid entries say
    if like is not None and missing and like.shape != losses.shape:
        raise ValueError(
            "ignore_index: must be left out where a base has not a loss for each entry of the "
            f"target, got losses {tuple(losses.shape)} for {tuple(target.shape)}; try class indices"
        )
    shapes = _loss_shapes(logits, target, like)
    if losses.shape not in shapes:
        advice = "reducing over the classes alone"
        if losses.numel() > target.numel():
            advice = f"an input and a target of one shape, not {tuple(logits.shape)}"
        raise ValueError(
            f"{rule}, {tuple(shapes[0])}, got shape {tuple(losses.shape)}; try {advice}"
        )


def _loss_shapes(logits: Tensor, target: Tensor, like: Tensor | None) -> list[torch.Size]:
    """Return the shapes that losses may have."""
    if like is not None:
        return [like.shape]
    if not target.is_floating_point():
        return [target.shape]
    dim = class_dim(logits)
    # The last is a loss per image; a column against a row would make them (N, N).
    return [target.shape, logits.shape[:dim] + logits.shape[dim + 1 :], target.shape[:1]]


def state_of_epoch(key: str, state: Any) -> None:
    """Refuse what a state dict holds as the epoch, if it is no tensor of one number from 0 up."""
    if not isinstance(state, Tensor) or state.numel() != 1 or state.is_complex():
        raise ValueError(
            f"{key}: must be a tensor of one number, the epoch, got {_described(state)}; "
            "try the state_dict() of a criterion"
        )
    checks.number(key, state.item(), 0, float("inf"), "try the state_dict() of a criterion")


def state_of_confidence(key: str, state: Any) -> None:
    """Refuse what a state dict holds as the class confidence, unless it is sums and counts."""
    rule = f"{key}: must be a float tensor of shape (2, classes), finite and not negative"
    advice = "try the state_dict() of a criterion"
    fits = isinstance(state, Tensor) and state.ndim == 2 and state.shape[0] == 2
    if not fits or not state.is_floating_point():
        raise ValueError(f"{rule}, got {_described(state)}; {advice}")
    if not state.is_meta and not ((state >= 0) & (state < float("inf"))).all():
        raise ValueError(f"{rule}, got {state.tolist()}; {advice}")


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"shape {tuple(value.shape)} of {value.dtype}"
    return f"a {type(value).__name__}"
