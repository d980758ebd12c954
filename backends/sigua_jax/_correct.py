"""The losses that a method optimises: at the label, or corrected by a transition matrix."""

from __future__ import annotations

import jax
from jax import Array
from jax import numpy as jnp

from sigua import Method, TransitionMatrix
from sigua.conditions import no_class_sums
from sigua_jax import _measure


def losses(method: Method, log_p: Array, labels: Array) -> Array:
    """Return what is optimised per example, (n,), in O(n k)."""
    if method.T is None:
        return _measure.at_label(log_p, labels)
    rows = _rows(method.T, labels, method.correction == "backward").astype(log_p.dtype)
    if method.correction == "backward":
        return -_dot(rows, log_p)
    possible = ((rows > 0) & (log_p != -jnp.inf)).any(-1)  # else logsumexp has a gradient of NaN
    observed = jax.nn.logsumexp(jnp.where(possible[:, None], log_p, 0.0), -1, b=rows)
    return jnp.where(possible, -observed, jnp.inf)


def _rows(T: TransitionMatrix, labels: Array, inverse: bool) -> Array:
    """Return row y of T^-1, or column y of T, (n, k); for symmetric noise without a table."""
    if T.flip_rate is None:
        table = jnp.asarray(T.inverse if inverse else T.rows.T)
        return table.at[labels].get(out_sharding=jax.typeof(labels).sharding)
    on, off = (sum(T.inverse_pair), T.inverse_pair[1]) if inverse else T.entries
    return jnp.where(labels[:, None] == jnp.arange(T.num_classes), on, off)


def class_sums(method: Method, log_p: Array) -> Array:
    """Return 1'T^-1 l, (n,)."""
    if method.T is None or method.correction != "backward":
        raise no_class_sums()
    return -_dot(jnp.asarray(method.T.inverse_column_sums), jax.lax.stop_gradient(log_p))


def _dot(rows: Array, log_p: Array) -> Array:
    """Return the dot products of rows, where a coefficient of 0 drops an infinity, too."""
    return (rows * jnp.where(rows == 0, 0.0, log_p)).sum(-1)
