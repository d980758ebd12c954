"""What a criterion refuses, in one sentence each, before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from sigua import Known, Method, Split, checks
from sigua.conditions import may_read_marks

REDUCTIONS = "mean", "sum", "none"
MOVED = {
    "weight": "nn.CrossEntropyLoss(weight=...) as the loss",
    "ignore_index": "nn.CrossEntropyLoss(ignore_index=...) as the loss, or where=mask in the call",
    "reduction": "nn.CrossEntropyLoss(reduction=...) as the loss",
    "label_smoothing": "nn.CrossEntropyLoss(label_smoothing=...) as the loss",
    "base": "SIGUALoss(method, loss)",
    "rank_by": "sigua_torch.select(losses_that_rank, epoch, method) and (weights * losses).mean()",
    "per_class": "groups='class'",
    "per_image": "groups='image'",
    "check_labels": "leaving it out: labels are checked on the CPU",
}
"""Options of 0.2, and what there is instead."""


def options(given: Mapping[str, Any]) -> None:
    """Refuse options that there are no more, or never were."""
    for name in given:
        if name not in MOVED:
            raise TypeError(
                f"{name}: must be an argument of SIGUALoss, which has no such one; "
                "try help(SIGUALoss)"
            )
        raise TypeError(
            f"{name}: must be said otherwise since 0.3, got {given[name]!r}; try {MOVED[name]}"
        )


def attribute(name: str, loss: Any) -> NoReturn:
    """Refuse to set what is the wrapped criterion's."""
    place = f"criterion.loss.{name}" if hasattr(loss, name) else MOVED[name]
    raise AttributeError(
        f"{name}: must be set where it is read, got a value for the criterion; try {place}"
    )


def loss(value: Any) -> None:
    """Refuse what cannot be called with tensors."""
    if isinstance(value, Tensor):
        raise ValueError(
            "loss: must be a criterion, got a Tensor; try nn.CrossEntropyLoss(weight=weight)"
        )
    if not callable(value) or type(value).__name__ == "SIGUALoss":
        raise ValueError(
            f"loss: must be a criterion, or a function of (input, target), got a "
            f"{type(value).__name__}; try nn.CrossEntropyLoss()"
        )
    if isinstance(value, type):
        raise ValueError(
            f"loss: must be ready to be called, got the class {value.__name__}; "
            f"try {value.__name__}()"
        )
    if getattr(value, "__module__", None) == "sigua.losses":
        raise ValueError(
            f"loss: must be a loss of tensors, got NumPy's {value.__name__}; "
            f"try sigua_torch.losses.{value.__name__}"
        )


def of_softmax(value: Any, needs: str) -> None:
    """Refuse a sigmoid's loss where a method needs a loss against each class."""
    if isinstance(value, (nn.BCEWithLogitsLoss, nn.BCELoss)):
        raise ValueError(
            f"loss: must be of a softmax for a method with {needs}, got {type(value).__name__}; "
            "try criterion(two_way(logits), labels.long()) with nn.CrossEntropyLoss()"
        )


def groups(value: Any, sync: Any) -> None:
    """Refuse groups that there are not, and images that are pooled."""
    if value is not None and not callable(value):
        checks.choice("groups", value, ("class", "image"))
    if value == "image" and sync not in (None, False):
        raise ValueError(
            "groups: must not be 'image' with sync, for an image is in one process, "
            f"got sync={sync!r}; try leaving sync out"
        )


def cross_entropy(weight: Any, ignore_index: Any, reduction: Any, smoothing: Any) -> None:
    """Refuse options of `nn.CrossEntropyLoss` that it takes without a word."""
    if not isinstance(ignore_index, Integral) or isinstance(ignore_index, bool):
        raise ValueError(
            f"ignore_index: must be an int, got {ignore_index!r}; try -100, the default"
        )
    checks.choice("reduction", reduction, REDUCTIONS)
    checks.number("label_smoothing", smoothing, 0, 1, "try 0, which turns it off")
    if weight is None:
        return
    rule = "weight: must be a floating-point tensor of shape (classes,), finite and not negative"
    if not isinstance(weight, Tensor) or weight.ndim != 1 or not weight.is_floating_point():
        raise ValueError(f"{rule}, got {_described(weight)}; try torch.ones(classes)")
    if weight.requires_grad:
        raise ValueError(f"{rule}, got one that requires gradients; try weight.detach()")
    readable = weight.is_cpu and not torch.compiler.is_compiling()
    if readable and not ((weight >= 0) & (weight < float("inf"))).all():
        raise ValueError(f"{rule}, got {weight.tolist()}; try another entry, such as 1.0")


def items(value: Any, here: int | None) -> Any:
    """Return what "mean" is divided by, a number or a 0-d tensor.

    Args:
        value: the user's; a tensor on a device is not read.
        here: how many take part; 0 may be divided by where nobody does. None if it is not known,
            for nothing may be read.
    """
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(
                f"num_items_in_batch: must be one number, got shape {tuple(value.shape)}; "
                "try num_items_in_batch.sum()"
            )
        if here is None or not value.is_cpu:
            return value.reshape(())
        value = value.item()
    number = checks.number("num_items_in_batch", value, 0, float("inf"), "try a count of examples")
    if number == 0 and here:
        raise ValueError(
            "num_items_in_batch: must be positive, got 0; "
            "try the number of examples of all micro-batches"
        )
    return number


def transforms(confidence: Any, steps_per_epoch: int | None) -> None:
    """Refuse to change what a transform of `torch.func` must not see change."""
    if torch.compiler.is_compiling() or not torch._C._are_functorch_transforms_active():
        return
    if confidence is not None:
        raise ValueError(
            "method: must keep no class confidence inside a transform of torch.func, where it "
            "cannot move, got one; try sigua.sigua_ag(by_class=False)"
        )
    if steps_per_epoch is not None:
        raise ValueError(
            "steps_per_epoch: must be None inside a transform of torch.func, where no step can be "
            f"counted, got {steps_per_epoch}; try set_epoch"
        )


def tensor(name: str, value: Any, device: torch.device | None = None) -> None:
    """Refuse what is no tensor, or on another device than the input."""
    if not isinstance(value, Tensor):
        got = type(value).__name__
        raise ValueError(f"{name}: must be a torch tensor, got a {got}; try torch.as_tensor(...)")
    if hasattr(value, "full_tensor"):
        raise ValueError(
            f"{name}: must be a plain tensor, got a {type(value).__name__}; "
            f"try {name}.full_tensor(), or {name}.to_local() and sync="
        )
    if device is not None and value.device != device:
        raise ValueError(
            f"{name}: must be on the input's device, {device}, got {value.device}; "
            f"try {name}.to({str(device)!r})"
        )


def device(own: torch.device, logits: Tensor) -> None:
    """Refuse logits on another device than what the criterion keeps."""
    if logits.device != own:
        raise ValueError(
            f"input: must be on the criterion's device, {own}, got {logits.device}; "
            f"try criterion.to({str(logits.device)!r})"
        )


def classes(logits: Tensor, target: Tensor) -> None:
    """Refuse logits and targets of classes whose shapes or dtypes cannot belong together."""
    shapes = f"input {tuple(logits.shape)} and target {tuple(target.shape)}"
    if logits.ndim == 0 or not logits.is_floating_point():
        raise ValueError(
            "input: must be floating-point logits with a class dimension, "
            f"got shape {tuple(logits.shape)} of {logits.dtype}; try (N, classes)"
        )
    dim = min(logits.ndim - 1, 1)
    if logits.shape[dim] == 1:
        raise ValueError(
            f"input: must have two classes or more, got {shapes}; "
            "try nn.BCEWithLogitsLoss() for one logit per example, or two_way(logits)"
        )
    if logits.shape == target.shape:
        if not target.is_floating_point():
            raise ValueError(
                f"target: must be class indices without the class dimension, got {shapes}; "
                "try (N,) indices, float probabilities, or nn.BCEWithLogitsLoss() for several "
                "labels each"
            )
    elif target.shape != logits.shape[:dim] + logits.shape[dim + 1 :]:
        raise ValueError(
            "target: must have the input's shape, or that without the class dimension, "
            f"got {shapes}; try target.squeeze(1) for (N, 1), or "
            "logits.movedim(-1, 1) for classes in the last dimension"
        )
    elif target.dtype not in (torch.int64, torch.uint8):
        raise ValueError(
            f"target: must be class indices in int64, got {target.dtype}; try target.long()"
        )


def labels(target: Tensor, valid: Tensor, num_classes: int) -> None:
    """Refuse class indices outside [0, k) of who takes part; reads the target."""
    place = _first(valid & ((target < 0) | (target >= num_classes)))
    if place is not None:
        raise ValueError(
            f"target: must be class indices in [0, {num_classes}), got {target[place].item()}"
            f"{_at(place)}; try numbering the classes from 0, or ignore_index for missing labels"
        )


def sigmoid(target: Tensor, valid: Tensor | None) -> None:
    """Refuse a sigmoid's targets outside [0, 1] of who takes part; reads them."""
    if not target.is_floating_point():
        raise ValueError(
            f"target: must be float for a sigmoid, from 0 to 1, got {target.dtype}; "
            "try target.float()"
        )
    outside = ~((target >= 0) & (target <= 1 + checks.SUM_TOLERANCE))
    place = _first(outside if valid is None else outside & valid)
    if place is not None:
        raise ValueError(
            f"target: must lie in [0, 1] for a sigmoid, got {target[place].item():g}{_at(place)}; "
            "try probabilities, or where=mask for missing labels"
        )


def probabilities(target: Tensor, valid: Tensor | None) -> None:
    """Refuse class probabilities, (N, k, ...), that are none; reads the target."""
    sums = target.sum(1)
    wrong = ~((sums - 1).abs() <= checks.SUM_TOLERANCE) | (target < 0).any(1)
    place = _first(wrong if valid is None else wrong & valid)
    if place is not None:
        raise ValueError(
            "target: must be class probabilities that sum to 1, from 0 up, got the sum "
            f"{sums[place].item():g}{_at(place)} (least entry of all: {target.min():g}); "
            "try class indices, or nn.BCEWithLogitsLoss() with a logit per label"
        )


def _first(wrong: Tensor) -> tuple[int, ...] | None:
    return tuple(wrong.nonzero()[0].tolist()) if wrong.any() else None


def _at(place: tuple[int, ...]) -> str:
    return f" at [{', '.join(map(str, place))}]" if place else ""


def mask(name: str, value: Any, shape: torch.Size, device: torch.device) -> None:
    """Refuse what is no boolean per example."""
    tensor(name, value, device)
    if value.dtype != torch.bool or value.shape != shape:
        raise ValueError(
            f"{name}: must be a bool per example, {tuple(shape)}, got {tuple(value.shape)} of "
            f"{value.dtype}; try {name}.bool(), one for each loss"
        )


def trusted(method: Method, value: Any, shape: torch.Size, device: torch.device) -> None:
    """Refuse a mask, or a pair, that is missing, superfluous, or does not fit the losses."""
    if value is None:
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
    for part in value if isinstance(value, Split) else (value,):
        mask("trusted", part, shape, device)


def per_example(losses: Any, logits: Tensor, target: Tensor) -> None:
    """Refuse what a loss of the user's returned if it is no loss per example."""
    rule = "loss: must return a loss per example"
    if not isinstance(losses, Tensor):
        raise ValueError(f"{rule}, got a {type(losses).__name__}; try a tensor")
    if losses.ndim == 0 and target.ndim > 0:
        raise ValueError(f"{rule}, got a scalar; try reduction='none'")
    shapes = [target.shape]
    if target.is_floating_point():
        # The last is a loss per image; a column against a row would make them (N, N).
        shapes += [logits.shape[:1] + logits.shape[2:], target.shape[:1]]
    if losses.shape not in shapes:
        advice = "reducing over the classes alone"
        if losses.numel() > target.numel():
            advice = f"an input and a target of one shape, not {tuple(logits.shape)}"
        raise ValueError(
            f"{rule}, {tuple(shapes[0])}, got shape {tuple(losses.shape)}; try {advice}"
        )


def state_of_epoch(key: str, state: Any) -> None:
    """Refuse what a state dict holds as the epoch, if it is no tensor of one number from 0 up."""
    advice = "try the state_dict() of a criterion"
    if not isinstance(state, Tensor) or state.numel() != 1 or state.is_complex():
        raise ValueError(
            f"{key}: must be a tensor of one number, the epoch, got {_described(state)}; {advice}"
        )
    checks.number(key, state.item(), 0, float("inf"), advice)


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
