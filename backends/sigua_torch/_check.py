"""What a criterion refuses, in one sentence each, before anything is changed; and its warnings."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from sigua import Known, Method, SmallLoss, Split, checks
from sigua.conditions import may_read_marks

REDUCTIONS = "mean", "sum", "none"
OWN = "nn.CrossEntropyLoss({}=...) as the loss"
MOVED = {
    "weight": OWN.format("weight"),
    "ignore_index": OWN.format("ignore_index") + ", or where=mask in the call",
    "reduction": OWN.format("reduction"),
    "label_smoothing": OWN.format("label_smoothing"),
    "base": "SIGUALoss(method, loss)",
    "rank_by": "sigua_torch.select(other_losses, epoch, method) and (weights * losses).mean()",
    "per_class": "groups='class'",
    "per_image": "groups='image'",
    "check_labels": "leaving it out, for labels are checked where that waits for nothing",
}
"""Options of 0.2, and what there is instead."""
FIXED = "method", "groups", "sync", "steps_per_epoch"
"""What a criterion is made with, for good."""
FORGOTTEN_AFTER = 1_000
"""After this many training calls at epoch 0, the criterion warns about set_epoch."""
LARGE = 1000
"""The size of a mini-batch above which it is not checked."""
USER = 5
"""The number of frames from a warning up to the call of the criterion."""


def options(given: Mapping[str, Any]) -> None:
    """Refuse options that there are no more, or never were."""
    for name in given:
        advice = MOVED.get(name, "help(SIGUALoss)")
        raise TypeError(f"{name}: must be left out, got {given[name]!r}; try {advice}")


def set_late(name: str, loss: Any) -> None:
    """Refuse to set what is the wrapped criterion's own, or what a criterion is made with."""
    if name in FIXED:
        raise AttributeError(
            f"{name}: must be given when the criterion is made, got one set later; "
            f"try SIGUALoss(..., {name}=...)"
        )
    if name in MOVED:
        advice = f"criterion.loss.{name} = ..." if hasattr(loss, name) else MOVED[name]
        raise AttributeError(f"{name}: must be the loss's own, got one set here; try {advice}")


def loss(value: Any) -> None:
    """Refuse what is no criterion, ready to be called with tensors."""
    rule, got = "loss: must be a criterion, or a function of (input, target)", type(value).__name__
    if isinstance(value, type):
        raise ValueError(f"{rule}, got the class {value.__name__}; try {value.__name__}()")
    if getattr(value, "__module__", None) == "sigua.losses":
        name = value.__name__
        raise ValueError(f"{rule} of tensors, got NumPy's {name}; try sigua_torch.losses.{name}")
    if not callable(value) or got == "SIGUALoss":
        raise ValueError(f"{rule}, got a {got}; try nn.CrossEntropyLoss()")


def of_softmax(value: Any, needs: str) -> None:
    """Refuse a sigmoid's loss where a method needs one against each class."""
    if isinstance(value, (nn.BCEWithLogitsLoss, nn.BCELoss)):
        raise ValueError(
            f"loss: must be of a softmax for a method with {needs}, got {type(value).__name__}; "
            "try criterion(two_way(logits), labels.long()) and nn.CrossEntropyLoss()"
        )


def one_loss_each(got: torch.Size, wanted: torch.Size) -> NoReturn:
    """Refuse a loss that returned something else than a value per example."""
    raise ValueError(
        f"loss: must return a loss per example, {tuple(wanted)}, got {tuple(got)}; "
        "try a loss between classes, or standard() and small losses for a regression"
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
    """Refuse what `nn.CrossEntropyLoss` takes without a word."""
    if not isinstance(ignore_index, Integral) or isinstance(ignore_index, bool):
        raise ValueError(f"ignore_index: must be an int, got {ignore_index!r}; try -100")
    checks.choice("reduction", reduction, REDUCTIONS)
    checks.number("label_smoothing", smoothing, 0, 1, "try 0, which turns it off")
    if weight is None:
        return
    right = isinstance(weight, Tensor) and weight.ndim == 1 and weight.is_floating_point()
    if right and weight.is_cpu and not torch.compiler.is_compiling():
        right = bool(((weight >= 0) & (weight < float("inf"))).all())
    if not right or weight.requires_grad:
        raise ValueError(
            "weight: must be a float tensor of shape (classes,), finite, not negative and without "
            f"gradient, got {weight}; try torch.ones(classes)"
        )


def weights(weight: Tensor | None, num_classes: int) -> None:
    """Refuse class weights of another number of classes."""
    if weight is not None and weight.shape[0] != num_classes:
        raise ValueError(
            f"weight: must have an entry for each of the input's {num_classes} classes, got "
            f"{weight.shape[0]}; try one weight per class"
        )


def items(value: Any, here: int | None) -> Any:
    """Return what "mean" is divided by, a number or a 0-d tensor.

    Args:
        value: the user's; a tensor on a device is not read.
        here: how many take part; 0 may be divided by where nobody does. None where nothing may be
            read.
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
            "num_items_in_batch: must be positive, got 0; try the examples of all micro-batches"
        )
    return number


def transforms(by_class: bool, steps_per_epoch: int | None) -> None:
    """Refuse what would have to change inside a transform of `torch.func`."""
    place = "inside a transform of torch.func, where nothing can be kept"
    if by_class:
        raise ValueError(
            f"method: must have no class confidence {place}, got one; try by_class=False"
        )
    if steps_per_epoch is not None:
        raise ValueError(
            f"steps_per_epoch: must be None {place}, got {steps_per_epoch}; try set_epoch"
        )


def tensor(name: str, value: Any, device: torch.device | None = None, of: str = "") -> None:
    """Refuse what is no plain tensor, or is elsewhere."""
    kind = type(value).__name__
    if not isinstance(value, Tensor):
        raise ValueError(f"{name}: must be a torch tensor, got a {kind}; try torch.as_tensor(...)")
    if hasattr(value, "full_tensor"):
        raise ValueError(
            f"{name}: must be a plain tensor, got a {kind}; try {name}.full_tensor(), or "
            f"{name}.to_local() with sync=True"
        )
    if device is not None and value.device != device:
        raise ValueError(
            f"{name}: must be on the {of}'s device, {device}, got {value.device}; "
            f"try .to({str(device)!r})"
        )


def classes(logits: Tensor, target: Tensor) -> None:
    """Refuse logits and targets of classes that cannot belong together."""
    got = f"input {tuple(logits.shape)} and target {tuple(target.shape)} of {target.dtype}"
    dim = min(logits.ndim - 1, 1)
    if dim < 0 or not logits.is_floating_point() or logits.shape[dim] == 1:
        raise ValueError(
            "input: must be floating-point logits of two classes or more, "
            f"got {got}, {logits.dtype}; try nn.BCEWithLogitsLoss(), or two_way(logits), for one "
            "logit per label"
        )
    if target.is_floating_point():
        fits = target.shape == logits.shape
    else:
        fits = target.shape == logits.shape[:dim] + logits.shape[dim + 1 :]
    if not fits or (
        target.dtype not in (torch.int64, torch.uint8) and not target.is_floating_point()
    ):
        raise ValueError(
            "target: must be class indices in int64 of the input's shape without its classes, or "
            f"float probabilities of the input's shape, got {got}; try target.long(), "
            "target.squeeze(1), nn.BCEWithLogitsLoss() for several labels each, or "
            "logits.movedim(-1, 1) for classes in the last dimension"
        )


def labels(target: Tensor, valid: Tensor, num_classes: int) -> None:
    """Refuse class indices outside [0, k) of who takes part; reads the target."""
    _first(
        f"target: must be class indices in [0, {num_classes})",
        valid & ((target < 0) | (target >= num_classes)),
        target,
        "numbering the classes from 0, or ignore_index for missing labels",
    )


def sigmoid(target: Tensor, valid: Tensor | None) -> None:
    """Refuse a sigmoid's targets outside [0, 1] of who takes part; reads them."""
    rule = "target: must be float in [0, 1] for a sigmoid"
    if not target.is_floating_point():
        raise ValueError(f"{rule}, got {target.dtype}; try target.float()")
    outside = ~((target >= 0) & (target <= 1 + checks.SUM_TOLERANCE))
    outside = outside if valid is None else outside & valid
    _first(rule, outside, target, "probabilities, or where=mask for missing labels")


def probabilities(target: Tensor, valid: Tensor | None) -> None:
    """Refuse class probabilities, (N, k, ...), that are none; reads the target."""
    sums = target.sum(1)
    wrong = ~((sums - 1).abs() <= checks.SUM_TOLERANCE) | (target < 0).any(1)
    _first(
        "target: must be class probabilities that sum to 1, from 0 up",
        wrong if valid is None else wrong & valid,
        sums,
        "class indices, or nn.BCEWithLogitsLoss() with a logit per label",
    )


def _first(rule: str, wrong: Tensor, values: Tensor, advice: str) -> None:
    """Raise ValueError on the first wrong entry, if there is one."""
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        at = f" at [{', '.join(map(str, place))}]" if place else ""
        raise ValueError(f"{rule}, got {values[place].item():g}{at}; try {advice}")


def mask(name: str, value: Any, shape: torch.Size, device: torch.device) -> None:
    """Refuse what is no boolean per example."""
    tensor(name, value, device, "input")
    if value.dtype != torch.bool or value.shape != shape:
        raise ValueError(
            f"{name}: must be a bool per example, {tuple(shape)}, got {tuple(value.shape)} of "
            f"{value.dtype}; try {name}.bool(), an entry for each loss"
        )


def trusted(method: Method, value: Any, shape: torch.Size, device: torch.device) -> None:
    """Refuse a mask, or a pair, that is missing, superfluous, or does not fit the losses."""
    if value is None and isinstance(method.condition, Known):
        raise ValueError(
            "trusted: must be given for sigua.Known, got None; try (input, target, trusted=mask)"
        )
    if value is not None and not may_read_marks(method.condition):
        raise ValueError(
            "trusted: must come with sigua.Known or a rule of your own, which read it, got "
            f"{method!r}; try sigua.custom(sigua.Known(), gamma=...), or leave it out"
        )
    for part in value if isinstance(value, Split) else () if value is None else (value,):
        mask("trusted", part, shape, device)


def per_example(losses: Any, logits: Tensor, target: Tensor) -> None:
    """Refuse what a loss of the user's returned if it is no loss per example."""
    shapes = [target.shape]
    if target.is_floating_point():
        # The last is a loss per image; a column against a row would make them (N, N).
        shapes += [logits.shape[:1] + logits.shape[2:], target.shape[:1]]
    if not isinstance(losses, Tensor) or losses.shape not in shapes:
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"loss: must return a loss per example, {tuple(shapes[0])}, got {shape or 'a scalar'}; "
            f"try reduction='none', reducing over the classes alone, or an input and a target of "
            f"one shape, not {tuple(logits.shape)}"
        )


class Advice:
    """Warns about training that probably does not do what was meant, once each.

    Args:
        method: the method trained with.
        counts: whether the criterion counts epochs by itself.
        whole: whether the examples of a call are selected from together, and without others.
    """

    def __init__(self, method: Method, counts: bool, whole: bool) -> None:
        self.method = method
        condition = method.condition
        self.rule = condition if whole and isinstance(condition, SmallLoss) else None
        self.known_sizes: set[int] = set()
        self.calls_at_epoch_0: int | None = 0 if method.horizon > 0 and not counts else None

    def look(self, size: int) -> None:
        """Check a call with `size` examples."""
        if self.rule is not None and size not in self.known_sizes and 0 < size <= LARGE:
            self.known_sizes.add(size)
            if self.rule.too_small(size):
                self.rule = None
                warnings.warn(
                    f"a mini-batch of {size} is too small for {self.method!r}: after the warm-up "
                    "it keeps, drops or climbs on no example; use larger batches, or "
                    "drop_last=True if it was only the last, partial batch of an epoch",
                    stacklevel=USER,
                )
        if self.calls_at_epoch_0 is not None:
            self.calls_at_epoch_0 += 1
            if self.calls_at_epoch_0 == FORGOTTEN_AFTER:
                self.calls_at_epoch_0 = None
                warnings.warn(
                    f"{FORGOTTEN_AFTER} training calls and still at epoch 0, where {self.method!r} "
                    "begins: call criterion.set_epoch(epoch) before each epoch; if epochs are "
                    "long, set_epoch(epoch + step / len(loader)) before each step; or pass "
                    "steps_per_epoch=len(loader)",
                    stacklevel=USER,
                )
