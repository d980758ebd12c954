"""Checks of arguments; those that pass are returned as arrays."""

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
_DTYPES = {"labels": "int", "where": "bool", "trusted": "bool"}


class Options(NamedTuple):
    """The options of `sigua_loss`: the loss, what decides, and among which examples."""

    weight: Array | None
    smoothing: float
    base: Base | None
    rank_by: Base | None
    per_class: bool


def options(
    method: Any, weight: Any, smoothing: Any, base: Any, rank_by: Any, per_class: Any
) -> Options:
    """Return the options, or raise ValueError if they do not fit the method or each other."""
    require_method(method)
    checks.number("label_smoothing", smoothing, 0, 1, "try 0, which turns it off")
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
        raise ValueError(f"{name}: must be left out with base, got both; try it inside base")
    weight = None if weight is None else array("weight", weight)
    return Options(weight, float(smoothing), base, rank_by, per_class)


def class_weights(weight: Array, num_classes: int) -> None:
    """Raise ValueError unless class weights are a vector of finite numbers from 0 up."""
    real = is_kind(weight, jnp.floating) or is_kind(weight, jnp.integer)
    wrong = weight.shape != (num_classes,) or not real
    if wrong or (readable(weight) and not ((weight >= 0) & (weight < jnp.inf)).all()):
        got = f"{weight.dtype}{weight.shape}" if wrong else weight.tolist()
        raise ValueError(
            f"weight: must be a finite number from 0 up for each of {num_classes} classes, "
            f"got {got}; try jnp.ones({num_classes})"
        )


def integer_labels(labels: Array) -> None:
    """Raise ValueError unless labels are integers, where each class is judged alone."""
    if labels.ndim != 1 or not is_kind(labels, jnp.integer):
        raise ValueError(
            f"per_class: must be False without integer labels (n,), got {labels.dtype}"
            f"{labels.shape}; try labels.argmax(-1), or leaving it out"
        )


def trusted(method: Method, value: Any, shape: tuple[int, ...]) -> Any:
    """Return the marks as arrays: a mask, a `Split` of two masks, or None.

    Raises:
        ValueError: marks that the method does not read, or of another shape or dtype.
    """
    if value is not None and not reads(method.condition, "trusted"):
        raise ValueError(
            "trusted: must be None unless the condition is Known or a rule of your own that reads "
            f"it, got it for {method!r}; try leaving it out, or sigua.Known()"
        )
    if isinstance(value, Split):
        return Split(*(mask("trusted", part, shape) for part in value))
    return None if value is None else mask("trusted", value, shape)


def mask(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    """Return a mask as an array, or raise ValueError unless it is bool and of this shape."""
    if isinstance(value, (tuple, dict)):
        raise ValueError(
            f"{name}: must be bool{shape}, got {type(value).__name__}; "
            "try sigua.Split for two masks"
        )
    found = array(name, value)
    if found.dtype != bool or found.shape != shape:
        raise ValueError(
            f"{name}: must be bool{shape}, one per example, got {found.dtype}{found.shape}; "
            "try astype(bool), or reshape"
        )
    return found


def confidence_for(method: Method, state: Any, num_classes: int) -> Array | None:
    """Return the class confidence for a rule that reads it, and None for other rules.

    Raises:
        ValueError: the rule reads it, and it is missing, or as for `confidence`.
    """
    if not reads(method.condition, "confidence"):
        return None
    if state is None:
        raise ValueError(
            f"confidence: must be given for {method!r}, got None; "
            f"try init_confidence({num_classes}) before training, update_confidence in each step"
        )
    return confidence(state, num_classes)


def confidence(state: Any, num_classes: int) -> Array:
    """Return the state of the class confidence.

    Raises:
        ValueError: another shape or dtype, or an entry that is no sum or number, if it can be read.
    """
    found = array("confidence", state)
    if found.shape != (2, num_classes) or not is_kind(found, jnp.floating):
        raise ValueError(
            f"confidence: must be float(2, {num_classes}), got {found.dtype}{found.shape}; "
            f"try init_confidence({num_classes})"
        )
    values = np.asarray(found) if readable(found) else None
    if values is not None and not are_sums(values).all():
        row, column = np.argwhere(~are_sums(values))[0].tolist()
        raise ValueError(
            "confidence: must be sums and numbers, finite and from 0 up, got "
            f"confidence[{row}, {column}] = {values[row, column]:g}; "
            f"try init_confidence({num_classes})"
        )
    return found


def are_sums(state: Any) -> Any:
    """Return which entries of a class confidence are finite and from 0 up, bool."""
    return (state >= 0) & (state < float("inf"))


def per_example(name: str, losses: Any, shape: tuple[int, ...]) -> Array:
    """Return the value of a user's loss, or raise ValueError unless it is one per example."""
    found = array(name, losses)
    if found.shape != shape or not is_kind(found, jnp.floating):
        raise ValueError(
            f"{name}: must return a loss per example, float{shape}, got "
            f"{found.dtype}{found.shape}; try a mean over all axes except the first"
        )
    return found


def array(name: str, value: Any) -> Array:
    """Return a JAX array, or raise ValueError on values that JAX refuses or would wrap around."""
    if np.ma.is_masked(value):
        masked = int(np.ma.getmaskarray(value).sum())
        raise ValueError(
            f"{name}: must have no masked entries, got {masked} of them; "
            f"try {name}.filled(...) with where=, or leaving those examples out"
        )
    try:
        words = any(isinstance(leaf, str) for leaf in jax.tree.leaves(value))
        found: Array = jnp.asarray(None if words else value)  # JAX may take words for dtypes
    except (TypeError, ValueError, OverflowError, RuntimeError):
        kind = getattr(value, "dtype", type(value).__name__)
        objects = f"{name}.astype({_DTYPES.get(name, 'float')})"
        advice = objects if str(kind) == "object" else "np.asarray(...)"
        raise ValueError(f"{name}: must be {_NUMBERS}, got {kind}; try {advice}") from None
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
