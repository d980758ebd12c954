"""The plain loss per example, and its extension to signed weights on all classes.

Logits have shape (n, k). Labels are class indices, int32, (n,), or class probabilities, float,
(n, k).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import Array
from jax import numpy as jnp

from sigua_jax._sharding import sharded_as

Base = Callable[[Any, Any], Any]


def cross_entropy(logits: Any, labels: Any) -> Array:
    """Return the cross-entropy of each example, (n,), in nats: for `rank_by`, with `base`.

    Args:
        logits: float, (n, k), or (n,) for one sigmoid output.
        labels: class indices (n,), or probabilities of the logits' shape.

    >>> [round(loss, 4) for loss in cross_entropy(jnp.zeros((1, 2)), jnp.array([1])).tolist()]
    [0.6931]
    """
    logits, labels = jnp.asarray(logits), jnp.asarray(labels)
    if logits.ndim == 1:
        logits, labels = two_way(logits, labels)
    return Measure().at_label(logits, labels)


def two_way(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Return a sigmoid's logits z as a softmax's (0, z), and p(1) as (p(0), p(1))."""
    if jnp.issubdtype(labels.dtype, jnp.floating):
        labels = jnp.stack([1 - labels, labels], -1)
    return jnp.stack([jnp.zeros_like(logits), logits], -1), labels


class Measure(NamedTuple):
    """The loss at the label, and its extension to signed weights on all classes.

    Args:
        weight: float, (k,), of the classes; None for ones.
        smoothing: label smoothing, in [0, 1].
        base: the user's own loss, from logits and labels to a loss per example; None for
            cross-entropy.
    """

    weight: Array | None = None
    smoothing: float = 0.0
    base: Base | None = None

    def at_label(self, logits: Array, labels: Array) -> Array:
        """Return the loss per example, (n,)."""
        if self.base is not None:
            losses: Array = self.base(logits, labels)
            return losses
        if self.smoothing or labels.ndim == 2:
            return self.combined(logits, one_hot(labels, logits))
        losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)[:, 0]
        return losses if self.weight is None else losses * lookup(self.weight, labels)

    def combined(self, logits: Array, rows: Array) -> Array:
        """Return sum_j rows_j * loss(logits, j), for rows (n, k) of either sign.

        It is +inf if an infinite loss, such as that of a masked class, is in the sum.
        """
        if self.base is not None:
            classes = [jnp.full_like(logits[:, 0], j, jnp.int32) for j in range(logits.shape[1])]
            losses = jnp.stack([self.base(logits, j) for j in classes], -1)
            return _dot(rows, losses, jnp.isnan(losses).any(-1))
        if self.smoothing:
            # The smoothed loss against class j contains a share of every class's loss.
            share = self.smoothing * rows.mean(-1, keepdims=True)
            rows = (1 - self.smoothing) * rows + share
        if self.weight is not None:
            rows = rows * self.weight
        losses = -jax.nn.log_softmax(logits)
        return _dot(rows, losses, jnp.isnan(losses[:, 0]))  # NaN is in the whole row of a softmax


def own_loss(loss: Base, check: Callable[[Any], Array], sigmoid: bool, soft: bool) -> Base:
    """Return the user's loss, called in the form that the user gave: one logit, probabilities.

    Where it is infinite, and the example takes no side, its gradient is 0 and not NaN.

    Args:
        loss: from logits and labels to a loss per example.
        check: returns its argument, (n,), or raises ValueError.
        sigmoid: whether the loss takes one logit where we have two.
        soft: whether the loss takes probabilities where we have an index.
    """

    def called(logits: Array, labels: Array) -> Array:
        labels = one_hot(labels, logits) if soft else labels
        if sigmoid:
            labels = labels[:, 1] if soft else labels
            logits = logits[:, 1] - logits[:, 0]
        infinite = jax.lax.stop_gradient(check(loss(logits, labels))) == jnp.inf
        elsewhere = jnp.where(along(infinite, logits), 0, logits)
        return jnp.where(infinite, jnp.inf, check(loss(elsewhere, labels)))

    return called


def one_hot(labels: Array, logits: Array) -> Array:
    """Return labels as rows of class probabilities."""
    if labels.ndim == 2:
        return labels
    return (labels[:, None] == jnp.arange(logits.shape[-1])).astype(logits.dtype)


def lookup(table: Array, labels: Array) -> Array:
    """Return the entries, or rows, of a table at the labels, sharded as the labels are."""
    return table.at[labels].get(**sharded_as(labels))


def along(column: Array, array: Array) -> Array:
    """Return a column (n,) as (n, 1, ...), to broadcast against an array of (n, ...)."""
    return column.reshape(-1, *[1] * (array.ndim - 1))


def _dot(rows: Array, losses: Array, unknown: Array) -> Array:
    """Return the dot products of rows; +inf for those that are not finite, unless `unknown`.

    A coefficient of 0 drops an infinite loss.
    """
    dropped = (rows == 0) & (losses == jnp.inf)
    total = (rows * jnp.where(dropped, 0.0, losses)).sum(-1)
    return jnp.where(jnp.isfinite(total) | unknown, total, jnp.inf)
