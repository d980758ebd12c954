"""What corrections need of T, a class for each form in which it is kept."""

from __future__ import annotations

from typing import Any, Protocol

import jax
from jax import Array
from jax import numpy as jnp

from sigua import TransitionMatrix
from sigua_jax._measure import lookup
from sigua_jax._sharding import sharded_as


class Matrix(Protocol):
    """T, in a form; labels are class indices (n,) or probabilities (n, k)."""

    def __init__(self, T: TransitionMatrix) -> None: ...

    def inverse_rows(self, labels: Array, logits: Array) -> Array:
        """Return row y of T^-1, or their average by probabilities, (n, k)."""

    def columns(self, labels: Array, logits: Array) -> Array:
        """Return column y of T, or their average by probabilities, (n, k)."""

    def log_observed(self, log_p: Array) -> Array:
        """Return log(T'p), (n, k)."""


class Symmetric:
    """T by its two numbers, without a table."""

    def __init__(self, T: TransitionMatrix) -> None:
        self.T = T

    def inverse_rows(self, labels: Array, logits: Array) -> Array:
        own, everyone = self.T.inverse_pair
        return self._rows(own + everyone, everyone, labels, logits)

    def columns(self, labels: Array, logits: Array) -> Array:
        return self._rows(*self.T.entries, labels, logits)

    def log_observed(self, log_p: Array) -> Array:
        on, off = self.T.entries
        observed = jnp.log((on - off) * jnp.exp(log_p) + off) if off else log_p
        return _with_nan_of(log_p, observed)

    def _rows(self, on: float, off: float, labels: Array, logits: Array) -> Array:
        if labels.ndim == 2:
            return (on - off) * labels + off * labels.sum(-1, keepdims=True)
        own = labels[:, None] == jnp.arange(self.T.num_classes)
        return jnp.where(own, on, off).astype(logits.dtype)


class Dense:
    def __init__(self, T: TransitionMatrix) -> None:
        self.T = T

    def inverse_rows(self, labels: Array, logits: Array) -> Array:
        return self._rows(jnp.asarray(self.T.inverse, logits.dtype), labels)

    def columns(self, labels: Array, logits: Array) -> Array:
        return self._rows(jnp.asarray(self.T.rows.T, logits.dtype), labels)

    def log_observed(self, log_p: Array) -> Array:
        if (self.T.rows > 0).all():
            mixed = _exactly(jnp.exp(log_p), jnp.asarray(self.T.rows, log_p.dtype))
            return _with_nan_of(log_p, jnp.log(mixed))
        # Where T has zeros, T'p underflows as p does.
        return log_mix(log_p[:, None], jnp.asarray(self.T.rows.T, log_p.dtype))

    def _rows(self, table: Array, labels: Array) -> Array:
        return _exactly(labels, table) if labels.ndim == 2 else lookup(table, labels)


class Sparse:
    """T by the entries of each row of T^-1 and T', (k, m), and their columns."""

    def __init__(self, T: TransitionMatrix) -> None:
        self.T = T

    def inverse_rows(self, labels: Array, logits: Array) -> Array:
        return self._rows(self.T.inverse_table, labels, logits)

    def columns(self, labels: Array, logits: Array) -> Array:
        return self._rows(self.T.column_table, labels, logits)

    def log_observed(self, log_p: Array) -> Array:
        columns, values = _as_arrays(self.T.column_table, log_p)
        return log_mix(log_p[:, columns], values)

    def _rows(self, table: Any, labels: Array, logits: Array) -> Array:
        columns, values = _as_arrays(table, logits)
        if labels.ndim == 2:
            columns, values = columns[None], labels[:, :, None] * values
        else:
            columns, values = lookup(columns, labels), lookup(values, labels)
        each = jnp.arange(len(labels)).reshape(-1, *[1] * (values.ndim - 1))
        return jnp.zeros_like(logits).at[each, columns].add(values, **sharded_as(logits))


MATRICES: dict[str, type[Matrix]] = {"symmetric": Symmetric, "dense": Dense, "sparse": Sparse}


def log_mix(log_p: Array, rows: Array) -> Array:
    """Return log sum_j rows_j p_j over the last axis; -inf for none, with a gradient of 0."""
    possible = ((rows > 0) & (log_p != -jnp.inf)).any(-1)  # else logsumexp has a gradient of NaN
    given = jnp.where(possible[..., None], log_p, 0.0)
    mixed = jnp.where(possible, jax.nn.logsumexp(given, -1, b=rows), -jnp.inf)
    return _with_nan_of(log_p[..., 0], mixed)


def _with_nan_of(log_p: Array, observed: Array) -> Array:
    return jnp.where(jnp.isnan(log_p), jnp.nan, observed)  # which XLA's log and exp may lose


def _exactly(left: Array, right: Array) -> Array:
    """Return the matrix product; accelerators round its factors by default."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def _as_arrays(table: Any, like: Array) -> tuple[Array, Array]:
    columns, values = table
    return jnp.asarray(columns, jnp.int32), jnp.asarray(values, like.dtype)
