"""The user's mini-batch, checked and converted for the losses."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from jax import Array
from jax import numpy as jnp

from sigua import Method, checks
from sigua.requirements import require_classes
from sigua_jax._check import array, is_kind, mask, per_example, readable
from sigua_jax._measure import Base, along, own_loss, two_way


class Examples(NamedTuple):
    """A mini-batch in the form that the losses use."""

    logits: Array
    """float32 or better, (n, k); for a base without a correction anything that it accepts."""
    labels: Array
    """int32, (n,), or float, (n, k); or anything that the base accepts."""
    where: Array
    """bool, (n,): which examples take part."""
    factor: Array | float = 1.0
    """(n,), multiplies losses: NaN for labels that are not a class, so that value and gradient are
    NaN, and otherwise 1."""
    sigmoid: bool = False
    """Whether one logit per example was given; here it is two."""
    soft: bool = False
    """Whether labels are class probabilities."""

    @property
    def num_classes(self) -> int:
        return 2 if self.logits.ndim == 1 else self.logits.shape[-1]

    def own_loss(self, name: str, loss: Base | None) -> Base | None:
        """Return the user's loss, called with the arguments that the user gave, and checked."""
        check = partial(per_example, name, shape=self.where.shape)
        return None if loss is None else own_loss(loss, check, self.sigmoid, self.soft)


def batch(
    method: Method, logits: Any, labels: Any, where: Any, *, of_classes: bool = True
) -> Examples:
    """Return the mini-batch, checked.

    Labels that are not a class are refused. Traced labels cannot be read, and make `factor` NaN.

    Args:
        method: its number of classes must be that of the logits.
        logits: as for `sigua_loss`.
        labels: as for `sigua_loss`.
        where: which examples take part; None for all.
        of_classes: whether logits and labels must be of classes, or anything that a base accepts.

    Raises:
        ValueError: arguments that do not fit the method or each other.
    """
    logits, labels = array("logits", logits), array("labels", labels)
    if logits.ndim == 0 or labels.shape[:1] != logits.shape[:1]:
        raise _misfit(logits, labels)
    if of_classes and (is_kind(logits, jnp.integer) or logits.dtype == bool):
        raise ValueError(
            f"logits: must be floating, got {logits.dtype}{logits.shape}; "
            "try the model's output, or logits.astype(float)"
        )
    where = jnp.ones(len(logits), bool) if where is None else mask("where", where, logits.shape[:1])
    given = _filled(logits, labels, where)
    if of_classes:
        given = _of_classes(given)
    require_classes(method, given.num_classes)
    indices = given.logits.ndim == 2 and given.num_classes > 1 and given.labels.ndim == 1
    if given.soft:
        unknown = _not_probabilities(given)
    elif indices and is_kind(given.labels, jnp.integer):
        unknown = _no_class(given.labels, given.num_classes)
        # A lookup beyond the last class would have no gradient, not NaN.
        labels = jnp.where(unknown, 0, given.labels).astype(jnp.int32)
        given = given._replace(labels=labels)
    else:
        return given  # the base checks anything else
    return given._replace(factor=jnp.where(unknown, jnp.nan, 1).astype(given.logits.dtype))


def _filled(logits: Array, labels: Array, where: Array) -> Examples:
    """Return logits in float32 or better, with zeros for examples that take no part."""
    logits = jnp.where(along(where, logits), logits, jnp.float32(0))
    labels = jnp.where(along(where, labels), labels, jnp.zeros((), labels.dtype))
    return Examples(logits, labels, where)


def _of_classes(given: Examples) -> Examples:
    """Return logits (n, k) with labels that are integers, (n,), or floating, (n, k)."""
    logits, labels, where, *_ = given
    sigmoid = logits.ndim == 1 and labels.ndim == 1
    if sigmoid:
        logits, labels = two_way(logits, labels)
    soft = is_kind(labels, jnp.floating) and labels.shape == logits.shape
    fits = soft or (is_kind(labels, jnp.integer) and labels.ndim == 1)
    if logits.ndim != 2 or logits.shape[1] == 1 or not fits or is_kind(logits, jnp.complexfloating):
        raise _misfit(given.logits, given.labels)
    labels = labels.astype(logits.dtype) if soft else labels
    return Examples(logits, labels, where, sigmoid=sigmoid, soft=soft)


def _no_class(labels: Array, num_classes: int) -> Array:
    """Return which labels are not a class; raise ValueError on them if they can be read."""
    if readable(labels):
        checks.labels("labels", labels, num_classes)
    last = min(num_classes - 1, int(jnp.iinfo(labels.dtype).max))  # type: ignore[no-untyped-call]  # JAX's
    return (labels < 0) | (labels > last)


def _not_probabilities(given: Examples) -> Array:
    """Return which rows are not probabilities; raise ValueError on them if they can be read."""
    labels, sums = given.labels, given.labels.sum(-1)
    wrong = given.where & (~(jnp.abs(sums - 1) <= checks.SUM_TOLERANCE) | (labels < 0).any(-1))
    if readable(wrong) and wrong.any():
        i = int(wrong.argmax())
        row = labels[i, 1] if given.sigmoid else labels[i]
        rule = "in [0, 1]" if given.sigmoid else "class probabilities, from 0 up with sum 1"
        raise ValueError(
            f"labels: must be {rule}, got {row.tolist()} at {i}; "
            "try class indices, or where= to leave examples out"
        )
    return wrong


def _misfit(logits: Array, labels: Array) -> ValueError:
    """Return the error for labels that do not fit the logits, or for logits of another shape."""
    rows = logits.ndim == 2 and logits.shape[1] > 1
    got = f"{labels.dtype}{labels.shape} for logits {logits.dtype}{logits.shape}"
    integers = is_kind(labels, jnp.integer)
    if labels.shape == logits.shape[:1] and (rows or logits.ndim == 1) and not integers:
        return ValueError(f"labels: must be integers (n,), got {got}; try labels.astype(int)")
    if rows and labels.shape in (logits.shape, (len(logits), 1)):
        advice = "labels[:, 0]" if labels.shape[1] == 1 else "labels.argmax(-1)"
        return ValueError(
            "labels: must be integers (n,), or class probabilities (n, k) of floats, "
            f"got {got}; try {advice}"
        )
    column = logits.ndim == 2 and logits.shape[1] == 1
    advice = "logits[:, 0] for one output" if column else "reshape, or vmap to rank separately"
    return ValueError(
        "logits: must have shape (n, k) with labels that are integers (n,) or probabilities (n, k),"
        f" or (n,) with labels (n,) for one sigmoid output, got {logits.dtype}{logits.shape} and "
        f"{labels.dtype}{labels.shape}; try {advice}"
    )
