"""The losses that a method optimises: at the label, or corrected by a transition matrix."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from sigua import Method, TransitionMatrix, checks
from sigua.conditions import no_class_sums
from sigua_jax._measure import Measure, lookup


def losses(method: Method, measure: Measure, logits: Array, labels: Array) -> Array:
    """Return what is optimised per example, (n,), in O(n k) for class indices."""
    checks.choice("correction", method.correction, ("none", "backward", "forward"))
    T = method.T
    if T is None:
        return measure.at_label(logits, labels)
    if method.correction == "backward":
        return measure.combined(logits, _rows(T, labels, logits, inverse=True))
    if measure.base is not None or measure.smoothing or labels.ndim == 2:
        return measure.at_label(_log_observed(jax.nn.log_softmax(logits), T), labels)
    rows = _rows(T, labels, logits, inverse=False)
    loss = -_log_mix(jax.nn.log_softmax(logits), rows)
    return loss if measure.weight is None else loss * lookup(measure.weight, labels)


def class_sums(method: Method, measure: Measure, logits: Array) -> Array:
    """Return 1'T^-1 l, (n,)."""
    if method.T is None or method.correction != "backward":
        raise no_class_sums()
    sums = jnp.asarray(method.T.inverse_column_sums, logits.dtype)
    logits = jax.lax.stop_gradient(logits)
    return measure._replace(weight=None).combined(logits, jnp.broadcast_to(sums, logits.shape))


def _rows(T: TransitionMatrix, labels: Array, logits: Array, inverse: bool) -> Array:
    """Return row y of T^-1, or column y of T, (n, k); for symmetric noise without a table."""
    if T.flip_rate is not None:
        on, off = (sum(T.inverse_pair), T.inverse_pair[1]) if inverse else T.entries
        if labels.ndim == 2:
            return (on - off) * labels + off * labels.sum(-1, keepdims=True)
        own = labels[:, None] == jnp.arange(T.num_classes)
        return jnp.where(own, on, off).astype(logits.dtype)
    if T.csr is not None:
        columns, values = _sparse(T.inverse_table if inverse else T.column_table, logits)
        if labels.ndim == 2:
            columns, values = columns[None], labels[:, :, None] * values
        else:
            columns, values = lookup(columns, labels), lookup(values, labels)
        each = jnp.arange(len(labels)).reshape(-1, *[1] * (values.ndim - 1))
        sharding = jax.typeof(logits).sharding
        return jnp.zeros_like(logits).at[each, columns].add(values, out_sharding=sharding)
    table = jnp.asarray(T.inverse if inverse else T.rows.T, logits.dtype)
    return _exactly(labels, table) if labels.ndim == 2 else lookup(table, labels)


def _log_observed(log_p: Array, T: TransitionMatrix) -> Array:
    """Return log(T'p), (n, k)."""
    if T.flip_rate is not None:
        on, off = T.entries
        return jnp.log((on - off) * jnp.exp(log_p) + off) if off else log_p
    if T.csr is not None:
        columns, values = _sparse(T.column_table, log_p)
        return _log_mix(log_p[:, columns], values)
    if (T.rows > 0).all():
        return jnp.log(_exactly(jnp.exp(log_p), jnp.asarray(T.rows, log_p.dtype)))
    # Where T has zeros, T'p underflows as p does.
    return _log_mix(log_p[:, None], jnp.asarray(T.rows.T, log_p.dtype))


def _log_mix(log_p: Array, rows: Array) -> Array:
    """Return log sum_j rows_j p_j over the last axis; -inf for none, with a gradient of 0."""
    possible = ((rows > 0) & (log_p != -jnp.inf)).any(-1)  # else logsumexp has a gradient of NaN
    given = jnp.where(possible[..., None], log_p, 0.0)
    return jnp.where(possible, jax.nn.logsumexp(given, -1, b=rows), -jnp.inf)


def _exactly(left: Array, right: Array) -> Array:
    """Return the matrix product; accelerators round its factors by default."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def _sparse(table: Any, like: Array) -> tuple[Array, Array]:
    """Return the columns and the values of the entries of each row, (k, m)."""
    columns, values = table
    return jnp.asarray(columns, jnp.int32), jnp.asarray(values, like.dtype)
