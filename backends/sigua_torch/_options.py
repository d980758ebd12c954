"""What a criterion refuses when it is made, in one sentence each."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from torch import Tensor, nn

from sigua import Method, checks
from sigua.requirements import (
    require_cross_entropy,
    require_method,
    require_ranking,
    require_whole,
)

REDUCTIONS = "mean", "sum", "none"
_PLAIN = "nn.CrossEntropyLoss(reduction='none')"


def check_options(
    method: Any,
    weight: Any,
    ignore_index: Any,
    reduction: str,
    smoothing: float,
    base: Any,
    rank_by: Any,
    check_labels: Any,
) -> None:
    """Refuse arguments of the constructor."""
    require_method(method)
    checks.flag("check_labels", check_labels)
    if not isinstance(ignore_index, Integral) or isinstance(ignore_index, bool):
        raise ValueError(
            f"ignore_index: must be an int, got {ignore_index!r}; try -100, the default"
        )
    if weight is not None:
        class_weights(weight)
    checks.choice("reduction", reduction, REDUCTIONS)
    checks.number("label_smoothing", smoothing, 0, 1, "try 0, which turns it off")
    _own_loss("base", base)
    _own_loss("rank_by", rank_by)
    if rank_by is not None:
        require_ranking(method)
        plain = type(rank_by) is nn.CrossEntropyLoss and rank_by.weight is None
        plain = plain and not rank_by.label_smoothing
        require_cross_entropy(method, "rank_by", plain, repr(rank_by), _PLAIN)
    elif base is not None or smoothing:
        name = "base" if base is not None else "label_smoothing"
        # Beside a correction it would not be the corrected loss.
        use = f"rank_by={_PLAIN}" if method.T is None else "leaving it out"
        require_cross_entropy(method, name, False, "another loss", use)
    if base is None:
        return
    if weight is not None or smoothing:
        name = "weight" if weight is not None else "label_smoothing"
        raise ValueError(
            f"{name}: must be left out beside base, for it belongs to cross-entropy, got both; "
            "try giving it to base"
        )


def _own_loss(name: str, loss: Any) -> None:
    """Refuse what cannot be called with tensors."""
    if loss is not None and not callable(loss):
        raise ValueError(
            f"{name}: must be callable, got a {type(loss).__name__}; "
            "try a function of (input, target), or a loss with reduction='none'"
        )
    if isinstance(loss, type):
        raise ValueError(
            f"{name}: must be a loss, ready to be called, got the class {loss.__name__}; "
            f"try {loss.__name__}(reduction='none')"
        )
    if getattr(loss, "__module__", None) == "sigua.losses":
        raise ValueError(
            f"{name}: must be a loss of tensors, got NumPy's {loss.__name__}; "
            f"try sigua_torch.losses.{loss.__name__}"
        )


def check_scope(method: Method, per_class: Any, per_image: Any, sync: Any) -> None:
    """Refuse scopes that are no booleans or do not fit, and images that are pooled."""
    for name, value in (("per_class", per_class), ("per_image", per_image)):
        checks.flag(name, value)
        if value:
            require_whole(method, name)
    if per_image and sync not in (None, False):
        raise ValueError(
            "per_image: must come without sync, for an image is in one process, "
            f"got sync={sync!r}; try leaving sync out"
        )


def class_weights(weight: Any) -> None:
    """Refuse class weights that are no vector of finite numbers from 0 up."""
    rule = "weight: must be a floating-point tensor of shape (classes,), finite and not negative"
    if not isinstance(weight, Tensor):
        got = type(weight).__name__
        raise ValueError(f"{rule}, got a {got}; try torch.tensor(weight, dtype=torch.float32)")
    if weight.ndim != 1 or not weight.is_floating_point():
        got = f"shape {tuple(weight.shape)} of {weight.dtype}"
        advice = "weight.float()" if weight.ndim == 1 else "weight.flatten() on a row or a column"
        raise ValueError(f"{rule}, got {got}; try {advice}")
    if weight.requires_grad:
        raise ValueError(f"{rule}, got one that requires gradients; try weight.detach()")
    if weight.device.type == "cpu" and not ((weight >= 0) & (weight < float("inf"))).all():
        raise ValueError(f"{rule}, got {weight.tolist()}; try another entry, such as 1.0")
