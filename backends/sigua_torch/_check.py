"""What a criterion refuses, in one sentence each, before anything is changed; and its warnings."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from sigua import Known, Method, SmallLoss, Split, checks
from sigua.conditions import reads

REDUCTIONS = "mean", "sum", "none"
OF_THE_LOSS = "weight", "ignore_index", "reduction", "label_smoothing"
"""Options of `nn.CrossEntropyLoss`."""
FIXED = "method", "groups", "sync", "steps_per_epoch"
"""What a criterion is made with, for good."""
FORGOTTEN_AFTER = 1_000
"""After this many training calls at epoch 0, the criterion warns about set_epoch."""
USER = 5
"""The number of frames from a warning up to the call of the criterion."""


def refuse(
    name: str, rule: str, got: object, advice: str, error: type[Exception] = ValueError
) -> NoReturn:
    """Raise the one sentence that an error is."""
    raise error(f"{name}: must {rule}, got {got}; try {advice}")


def option(name: str, error: type[Exception] = AttributeError) -> NoReturn:
    """Refuse to give, set or read an option here."""
    rule, got, advice = "be an option of SIGUALoss", "another", "help(SIGUALoss)"
    if name in FIXED:
        rule, got = "be given when the criterion is made", "one here"
        advice = f"SIGUALoss(..., {name}=...)"
    if name in OF_THE_LOSS:
        rule, got = "be the loss's own", "one here"
        advice = f"nn.CrossEntropyLoss({name}=...) as the loss, and then criterion.loss.{name}"
    refuse(name, rule, got, advice, error)


def loss(value: Any, needs: str) -> None:
    """Refuse what is no criterion, or a sigmoid's where each class needs one."""
    kind, name = type(value).__name__, getattr(value, "__name__", "")
    got, advice = f"a {kind}", "nn.CrossEntropyLoss()"
    if isinstance(value, type):
        got, advice = f"the class {name}", f"{name}()"
    elif getattr(value, "__module__", None) == "sigua.losses":
        got, advice = f"NumPy's {name}", f"sigua_torch.losses.{name}"
    elif callable(value) and kind != "SIGUALoss":
        if needs and isinstance(value, (nn.BCEWithLogitsLoss, nn.BCELoss)):
            advice = "criterion(two_way(logits), labels.long()) and nn.CrossEntropyLoss()"
            refuse("loss", f"be of a softmax for a method with {needs}", kind, advice)
        return
    refuse("loss", "be a criterion, or a function of (input, target) tensors", got, advice)


def no_weight(loss: Any) -> None:
    """Refuse class weights of NLLLoss, and of a cross-entropy with a `forward` of its own.

    They would decide who is good, and not divide the mean.
    """
    divided = isinstance(loss, (nn.NLLLoss, nn.CrossEntropyLoss))
    if divided and loss.weight is not None:
        kind = type(loss).__name__
        rule = "be those of nn.CrossEntropyLoss itself, whose mean they divide"
        advice = "nn.CrossEntropyLoss(weight=...), or the loss without weights"
        refuse("weight", rule, f"those of {kind}", advice)


def groups(value: Any, sync: Any) -> None:
    """Refuse groups that there are not, and images that are pooled."""
    if value is not None and not callable(value):
        checks.choice("groups", value, ("class", "image"))
    if value == "image" and sync not in (None, False):
        rule = "not be 'image' with sync, for an image is in one process"
        refuse("groups", rule, f"sync={sync!r}", "leaving sync out")


def cross_entropy(weight: Any, ignore_index: Any, reduction: Any, smoothing: Any) -> None:
    """Refuse what `nn.CrossEntropyLoss` takes without a word."""
    if not isinstance(ignore_index, Integral) or isinstance(ignore_index, bool):
        refuse("ignore_index", "be an int", repr(ignore_index), "-100")
    checks.choice("reduction", reduction, REDUCTIONS)
    checks.number("label_smoothing", smoothing, 0, 1, "try 0, which turns it off")
    if weight is None:
        return
    right = isinstance(weight, Tensor) and weight.ndim == 1 and weight.is_floating_point()
    if right and weight.is_cpu and not torch.compiler.is_compiling():
        right = bool(((weight >= 0) & (weight < float("inf"))).all())
    if not right or weight.requires_grad:
        rule = "be a float tensor of shape (classes,), finite, not negative and without gradient"
        refuse("weight", rule, weight, "torch.ones(classes)")


def items(value: Any, here: float | None) -> Any:
    """Return what "mean" is divided by, a number or a 0-d tensor; one on a device is not read.

    0 may be divided by where nobody takes part; `here` says what would be divided by without it,
    None if nothing is read.
    """
    if isinstance(value, Tensor):
        if value.numel() != 1:
            got = f"shape {tuple(value.shape)}"
            refuse("num_items_in_batch", "be one number", got, "num_items_in_batch.sum()")
        if here is None or not value.is_cpu:
            return value.reshape(())
        value = value.item()
    number = checks.number("num_items_in_batch", value, 0, float("inf"), "try a count of examples")
    if number == 0 and here:
        advice = "the examples of all micro-batches"
        refuse("num_items_in_batch", "be positive", 0, advice)
    return number


def transforms(by_class: bool, steps_per_epoch: int | None) -> None:
    """Refuse what would have to change inside a transform of `torch.func`."""
    place = "inside a transform of torch.func, where nothing can be kept"
    if by_class:
        refuse("method", f"have no class confidence {place}", "one", "by_class=False")
    if steps_per_epoch is not None:
        refuse("steps_per_epoch", f"be None {place}", steps_per_epoch, "set_epoch")


def tensor(name: str, value: Any, device: torch.device | None = None, of: str = "") -> None:
    """Refuse what is no tensor of this process's, or is elsewhere."""
    if type(value) is not Tensor:  # of which nothing else has to be asked
        kind = type(value).__name__
        if not isinstance(value, Tensor):
            refuse(name, "be a torch tensor", f"a {kind}", "torch.as_tensor(...)")
        if hasattr(value, "full_tensor"):
            advice = f"{name}.full_tensor(), or {name}.to_local() with sync=True"
            refuse(name, "be a local tensor", f"a {kind}", advice)
    if device is not None and value.device != device:
        refuse(name, f"be on the {of}'s device, {device}", value.device, f".to({str(device)!r})")


def fits(
    name: str, value: Any, shape: torch.Size, dtypes: tuple[torch.dtype, ...], advice: str
) -> None:
    """Refuse what is no tensor of the shape and of one of the dtypes."""
    got = type(value).__name__
    if isinstance(value, Tensor):
        if value.shape == shape and value.dtype in dtypes:
            return
        got = f"{tuple(value.shape)} of {value.dtype}"
    refuse(name, f"be a torch tensor, {tuple(shape)} of {dtypes[0]}", got, advice)


def class_dim(logits: Any, shape: torch.Size, of: str) -> int:
    """Return the dimension of the classes, or refuse logits of losses of another shape."""
    tensor = isinstance(logits, Tensor)
    dim = min(logits.ndim - 1, 1) if tensor else -1
    if dim < 0 or logits.shape[:dim] + logits.shape[dim + 1 :] != shape:
        rule = f"have the {of} shape {tuple(shape)}, and a dimension for the classes"
        got = tuple(logits.shape) if tensor else type(logits).__name__
        refuse("logits", rule, got, "those of the same mini-batch")
    return dim


def classes(names: tuple[str, str], logits: Tensor, target: Tensor) -> None:
    """Refuse logits and targets of classes that cannot belong together."""
    input, labels = names
    got = f"{input} {tuple(logits.shape)} and {labels} {tuple(target.shape)} of {target.dtype}"
    dim = min(logits.ndim - 1, 1)
    if dim < 0 or not logits.is_floating_point() or logits.shape[dim] == 1:
        advice = "nn.BCEWithLogitsLoss(), or two_way(logits), for one logit per label"
        rule = "be floating-point logits of two classes or more"
        refuse(input, rule, f"{got}, {logits.dtype}", advice)
    soft = target.is_floating_point()
    wanted = logits.shape if soft else logits.shape[:dim] + logits.shape[dim + 1 :]
    if target.shape != wanted or not (soft or target.dtype in (torch.int64, torch.uint8)):
        refuse(
            labels,
            f"be class indices in int64 of the {input}'s shape without its classes, or float "
            f"probabilities of the {input}'s shape",
            got,
            f"{labels}.long(), {labels}.squeeze(1), nn.BCEWithLogitsLoss() for several labels "
            "each, or logits.movedim(-1, 1) for classes in the last dimension",
        )


def labels(name: str, target: Tensor, valid: Tensor, num_classes: int) -> None:
    """Refuse class indices outside [0, k) of who takes part; reads the target."""
    rule = f"be class indices in [0, {num_classes})"
    outside = valid & ((target < 0) | (target >= num_classes))
    advice = "numbering the classes from 0, or the ignore_index, -100, for missing labels"
    first(name, rule, outside, target, advice)


def sigmoid(target: Tensor, readable: bool) -> None:
    """Refuse a sigmoid's targets outside [0, 1]."""
    rule = "be float in [0, 1] for a sigmoid"
    if not target.is_floating_point():
        refuse("target", rule, target.dtype, "target.float()")
    if readable:
        outside = ~((target >= 0) & (target <= 1 + checks.SUM_TOLERANCE))
        first("target", rule, outside, target, "probabilities, or where=mask for missing labels")


def probabilities(name: str, target: Tensor, valid: Tensor | None) -> None:
    """Refuse class probabilities, (N, k, ...), that are none; reads the target."""
    sums, negative = target.sum(1), target < 0
    wrong = ~((sums - 1).abs() <= checks.SUM_TOLERANCE)
    if valid is not None:
        wrong, negative = wrong & valid, negative & valid.unsqueeze(1)
    advice = "class indices, or nn.BCEWithLogitsLoss() with a logit per label"
    first(name, "be class probabilities, from 0 up", negative, target, advice)
    first(name, "be class probabilities that sum to 1", wrong, sums, advice)


def first(name: str, rule: str, wrong: Tensor, values: Tensor, advice: str) -> None:
    """Refuse the first wrong entry, if there is one; reads the values."""
    if wrong.any():
        place = tuple(wrong.nonzero()[0].tolist())
        at = f" at [{', '.join(map(str, place))}]" if place else ""
        refuse(name, rule, f"{values[place].item():g}{at}", advice)


def mask(name: str, value: Any, shape: torch.Size, device: torch.device) -> None:
    """Refuse what is no boolean per example."""
    tensor(name, value, device, "input")
    fits(name, value, shape, (torch.bool,), f"{name}.bool(), an entry for each loss")


def trusted(method: Method, value: Any, shape: torch.Size, device: torch.device) -> None:
    """Refuse a mask, or a pair, that is missing, superfluous, or does not fit the losses."""
    if value is None and isinstance(method.condition, Known):
        refuse("trusted", "be given for sigua.Known", None, "(input, target, trusted=mask)")
    if value is not None and not reads(method.condition, "trusted"):
        rule = "come with sigua.Known or a rule of your own, which read it"
        advice = "sigua.custom(sigua.Known(), gamma=...), or leave it out"
        refuse("trusted", rule, repr(method), advice)
    for part in value if isinstance(value, Split) else () if value is None else (value,):
        mask("trusted", part, shape, device)


def per_example(losses: Any, logits: Tensor, target: Tensor) -> None:
    """Refuse what a loss of the user's returned if it is no loss per example."""
    shapes = [target.shape]
    if target.is_floating_point():
        # The last is a loss per image; a column against a row would make them (N, N).
        shapes += [logits.shape[:1] + logits.shape[2:], target.shape[:1]]
    if not isinstance(losses, Tensor) or losses.shape not in shapes:
        got = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        advice = (
            "reduction='none', reducing over the classes alone, or an input and a target of one "
            f"shape, not {tuple(logits.shape)}"
        )
        rule = f"return a loss per example, {tuple(shapes[0])}"
        refuse("loss", rule, got or "a scalar", advice)


class Advice:
    """Warns about training that probably does not do what was meant, once each."""

    def __init__(self, method: Method, counts: bool, whole: bool) -> None:
        """Be told whether epochs are counted, and a call's examples selected from together."""
        self.method, rule = method, method.condition
        self.rule = rule if whole and isinstance(rule, SmallLoss) else None
        self.known_sizes: set[int] = set()
        self.calls_at_epoch_0: int | None = 0 if method.horizon > 0 and not counts else None

    def look(self, size: int) -> None:
        """Check a call with `size` examples."""
        if self.rule is not None and size not in self.known_sizes and size > 0:
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
