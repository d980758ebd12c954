"""The mini-batch that the user gives, as the losses take it."""

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
    """A mini-batch as the losses take it."""

    logits: Array
    """float32 or better, (n, k); for a base without a correction whatever that takes, (n, ...)."""
    labels: Array
    """int32, (n,), or float, (n, k); or whatever the base takes."""
    where: Array
    """bool, (n,): who takes part."""
    factor: Array | float = 1.0
    """(n,), of losses: NaN where a label is no class, so that value and gradient are, and 1."""
    sigmoid: bool = False
    """Whether one logit was given, which is two here."""
    soft: bool = False
    """Whether labels are class probabilities."""

    @property
    def num_classes(self) -> int:
        return 2 if self.logits.ndim == 1 else self.logits.shape[-1]

    def own_loss(self, name: str, loss: Base | None) -> Base | None:
        """Return a loss of the user's, called with what the user gave, and checked."""
        check = partial(per_example, name, shape=self.where.shape)
        return None if loss is None else own_loss(loss, check, self.sigmoid, self.soft)


def batch(
    method: Method, logits: Any, labels: Any, where: Any, *, of_classes: bool = True
) -> Examples:
    """Return a mini-batch that fits the method and itself.

    Labels that are no class are refused. Traced ones cannot be read, and make `factor` NaN.

    Args:
        method: whose number of classes must be that of the logits.
        logits: as for `sigua_loss`, and so are the next.
        labels: of each example.
        where: who takes part; None for all.
        of_classes: whether logits and labels must be of classes, and not just what a base takes.
    """
    logits, labels = array("logits", logits), array("labels", labels)
    if logits.ndim == 0 or labels.shape[:1] != logits.shape[:1]:
        raise _misfit(logits, labels)
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
        return given  # what else they may be is the base's affair
    return given._replace(factor=jnp.where(unknown, jnp.nan, 1).astype(given.logits.dtype))


def _filled(logits: Array, labels: Array, where: Array) -> Examples:
    """Return logits in float32 at least, and zeros for who takes no part."""
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
    """Return which class indices are none; refuse them where they can be read."""
    if readable(labels):
        checks.labels("labels", labels, num_classes)
    last = min(num_classes - 1, int(jnp.iinfo(labels.dtype).max))  # type: ignore[no-untyped-call]  # JAX's
    return (labels < 0) | (labels > last)


def _not_probabilities(given: Examples) -> Array:
    """Return which rows are no probabilities; refuse them where they can be read."""
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
    column = logits.ndim == 2 and logits.shape[1] == 1
    advice = "logits[:, 0] for one output" if column else "reshape to rank jointly, vmap for apart"
    return ValueError(
        "logits: must have shape (n, k) with labels that are integers (n,) or probabilities (n, k),"
        f" or (n,) with labels (n,) for one sigmoid output, got {logits.dtype}{logits.shape} and "
        f"{labels.dtype}{labels.shape}; try {advice}"
    )
