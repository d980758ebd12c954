"""What is refused, in one sentence each, and the arrays that are not."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from sigua import Method, Split, checks
from sigua.conditions import reads
from sigua.requirements import (
    require_cross_entropy,
    require_method,
    require_ranking,
    require_whole,
)
from sigua_jax._measure import Base, cross_entropy

_NUMBERS = "a NumPy or JAX array of numbers, in the machine's byte order"


class Options(NamedTuple):
    """What is measured, what decides, and among whom, as `sigua_loss` has it."""

    weight: Array | None
    smoothing: float
    base: Base | None
    rank_by: Base | None
    per_class: bool


def options(
    method: Any, weight: Any, smoothing: Any, base: Any, rank_by: Any, per_class: Any
) -> Options:
    """Return options that fit the method, and each other."""
    require_method(method)
    checks.number("label_smoothing", smoothing, 0, 1, "0 turns it off")
    checks.flag("per_class", per_class)
    if per_class:
        require_whole(method, "per_class")
    for name, loss in (("base", base), ("rank_by", rank_by)):
        if loss is not None and (isinstance(loss, type) or not callable(loss)):
            raise ValueError(
                f"{name}: must be a function of (logits, labels), got {loss!r}; "
                "try one that returns a loss per example, as Optax's do"
            )
    if rank_by is not None:
        require_ranking(method)
        plain, use = rank_by is cross_entropy, "sigua_jax.cross_entropy"
        require_cross_entropy(method, "rank_by", plain, repr(rank_by), use)
    elif base is not None or smoothing:
        name = "base" if base is not None else "label_smoothing"
        use = "leaving it out" if method.T is not None else "rank_by=sigua_jax.cross_entropy"
        require_cross_entropy(method, name, False, "another loss", use)
    if base is not None and (weight is not None or smoothing):
        name = "weight" if weight is not None else "label_smoothing"
        raise ValueError(f"{name}: must be left out beside base, got both; try it inside of base")
    weight = None if weight is None else array("weight", weight)
    return Options(weight, float(smoothing), base, rank_by, per_class)


def class_weights(weight: Array, num_classes: int) -> None:
    """Refuse class weights that are no vector of finite numbers from 0 up."""
    real = is_kind(weight, jnp.floating) or is_kind(weight, jnp.integer)
    wrong = weight.shape != (num_classes,) or not real
    if wrong or (readable(weight) and not ((weight >= 0) & (weight < jnp.inf)).all()):
        came = f"{weight.dtype}{weight.shape}" if wrong else weight.tolist()
        raise ValueError(
            f"weight: must be a finite number from 0 up for each of {num_classes} classes, "
            f"got {came}; try jnp.ones({num_classes})"
        )


def integer_labels(labels: Array) -> None:
    """Refuse labels that are no index, where examples are judged class by class."""
    if labels.ndim != 1 or not is_kind(labels, jnp.integer):
        raise ValueError(
            f"per_class: must come with integer labels (n,), got {labels.dtype}{labels.shape}; "
            "try labels.argmax(-1), or leave it out"
        )


def trusted(method: Method, value: Any, shape: tuple[int, ...]) -> Any:
    """Return the marks as arrays: a mask, a `Split` of two, or None."""
    if value is not None and not reads(method.condition, "trusted"):
        rule, came = "only Known or a rule of your own reads it", f"{method!r} came"
        raise checks.refuse("trusted", rule, came, "leave it out, or use sigua.Known()")
    if isinstance(value, Split):
        return Split(*(mask("trusted", part, shape) for part in value))
    return None if value is None else mask("trusted", value, shape)


def mask(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    if isinstance(value, (tuple, dict)):
        came = f"a {type(value).__name__} came"
        raise checks.refuse(name, f"must be bool{shape}", came, "for two masks use sigua.Split")
    found = array(name, value)
    if found.dtype != bool or found.shape != shape:
        came = f"{found.dtype}{found.shape} came"
        raise checks.refuse(name, f"must be bool{shape}, one per example", came, "cast or reshape")
    return found


def masks(split: Split, shape: tuple[int, ...]) -> None:
    """Refuse what a rule returned if it is no mask per example; one for all is one for each."""
    for mask in split:
        if mask.shape != shape:
            raise ValueError(
                f"condition: must return masks of shape {shape}, got {mask.shape}; "
                "try an entry for each of batch.losses"
            )


def confidence_for(method: Method, state: Any, num_classes: int) -> Array | None:
    """Return the class confidence for a rule that reads it, and None for others."""
    if not reads(method.condition, "confidence"):
        return None
    if state is None:
        raise ValueError(
            f"confidence: must be given for {method!r}, got None; "
            f"try init_confidence({num_classes}) before training, update_confidence in each step"
        )
    return confidence(state, num_classes)


def confidence(state: Any, num_classes: int) -> Array:
    """Return the state of the class confidence."""
    found = array("confidence", state)
    if found.shape != (2, num_classes) or not is_kind(found, jnp.floating):
        raise ValueError(
            f"confidence: must be float(2, {num_classes}), got {found.dtype}{found.shape}; "
            f"try init_confidence({num_classes})"
        )
    return found


def per_example(name: str, losses: Any, shape: tuple[int, ...]) -> Array:
    """Return what a loss of the user's returned, which must have an entry per example."""
    found = array(name, losses)
    if found.shape != shape or not is_kind(found, jnp.floating):
        raise ValueError(
            f"{name}: must return a loss per example, float{shape}, got "
            f"{found.dtype}{found.shape}; try a mean over all axes but the first"
        )
    return found


def array(name: str, value: Any) -> Array:
    """Return an array of JAX's; refuse what it does not take, or would wrap around."""
    try:
        words = any(isinstance(leaf, str) for leaf in jax.tree.leaves(value))
        found: Array = jnp.asarray(None if words else value)  # which may take words for dtypes
    except (TypeError, ValueError, OverflowError, RuntimeError):
        kind = getattr(value, "dtype", f"a {type(value).__name__}")
        raise ValueError(f"{name}: must be {_NUMBERS}, got {kind}; try np.asarray(...)") from None
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size:
        limits: Any = np.iinfo(found.dtype)
        low, high = int(value.min()), int(value.max())
        if low < limits.min or high > limits.max:
            raise ValueError(
                f"{name}: must fit in {found.dtype}, got {low} to {high}; "
                "try smaller numbers, or jax_enable_x64"
            )
    return found


def is_kind(found: Array, kind: Any) -> bool:
    return bool(jnp.issubdtype(found.dtype, kind))


def readable(found: Array) -> bool:
    return not isinstance(found, jax.core.Tracer)
