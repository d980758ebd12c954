"""What is refused, in one sentence each, and the arrays that are not."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from sigua import Method, Split, checks
from sigua.conditions import may_read_marks


def batch(method: Method, logits: Any, labels: Any, where: Any) -> tuple[Array, Array, Array]:
    """Return log p, labels, and who takes part."""
    logits, labels = jnp.asarray(logits), jnp.asarray(labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or labels.dtype.kind not in "iu":
        rule = "must have shape (n, k), and labels must be integers of shape (n,)"
        came = f"{logits.dtype}{logits.shape} and {labels.dtype}{labels.shape} came"
        raise checks.refuse("logits", rule, came, "reshape to rank jointly, vmap to rank apart")
    n, k = logits.shape
    method.require_classes(k)
    where = jnp.ones(n, bool) if where is None else mask("where", where, (n,))
    labels = jnp.where(where, labels, 0).astype(jnp.int32)
    if not isinstance(labels, jax.core.Tracer):
        checks.labels("labels", labels, k)
    logits = jnp.where(where[:, None], logits, jnp.float32(0))  # so in float32 at least
    unknown = (labels < 0) | (labels >= k)
    return jax.nn.log_softmax(jnp.where(unknown[:, None], jnp.nan, logits)), labels, where


def trusted(method: Method, value: Any, shape: tuple[int, ...]) -> Any:
    """Return the marks as arrays: a mask, a `Split` of two, or None."""
    if value is not None and not may_read_marks(method.condition):
        rule, came = "only Known or a rule of your own reads it", f"{method!r} came"
        raise checks.refuse("trusted", rule, came, "leave it out, or use sigua.Known()")
    if isinstance(value, Split):
        return Split(*(mask("trusted", part, shape) for part in value))
    return None if value is None else mask("trusted", value, shape)


def mask(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    if isinstance(value, (tuple, dict)):
        came = f"a {type(value).__name__} came"
        raise checks.refuse(name, f"must be bool{shape}", came, "for two masks use sigua.Split")
    array = jnp.asarray(value)
    if array.dtype != bool or array.shape != shape:
        came = f"{array.dtype}{array.shape} came"
        raise checks.refuse(name, f"must be bool{shape}, one per example", came, "cast or reshape")
    return array
