"""Margins of the model's own prediction, and the class confidence that divides it."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from sigua import checks, confidence, standard
from sigua_jax import _check, _examples


def init_confidence(num_classes: int) -> Array:
    """Return the class confidence before the first mini-batch, float32, (2, k).

    Args:
        num_classes: k, at least 2; it is 2 for one sigmoid output.

    Raises:
        ValueError: `num_classes` is not a whole number of at least 2.

    >>> init_confidence(3).shape
    (2, 3)
    """
    k = checks.whole("num_classes", num_classes, 2, "try the number of classes")
    return jnp.zeros((2, k), jnp.float32)


def update_confidence(state: Any, logits: Any, labels: Any, where: Any = None) -> Array:
    """Return the class confidence after a mini-batch (`sigua.confidence`), (2, k).

    Call it once a step, after `sigua_loss` was called with `state`, with the same logits and
    labels. If gradients of micro-batches are added up, call it with all of them together, so that
    all are judged by the same state. No gradient flows through it.

    Args:
        state: float, (2, k), from `init_confidence` or the last call.
        logits: as for `sigua_loss`.
        labels: as for `sigua_loss`; the label of class probabilities is the largest.
        where: bool, (n,): which examples take part.

    Raises:
        ValueError: arguments that do not fit each other.

    >>> state = update_confidence(init_confidence(2), jnp.zeros((4, 2)), jnp.array([0, 0, 0, 1]))
    >>> state.tolist()  # sums of p(label | x), and numbers, by class
    [[1.5, 0.5], [3.0, 1.0]]
    """
    given = _examples.batch(standard(), logits, labels, where)
    state = _check.confidence(state, given.logits.shape[1])
    log_p, at_label = _predictions(given.logits, given.labels)
    counted = at_label & (given.where & (given.factor == 1))[:, None]
    counted &= ~jnp.isnan(log_p)  # otherwise one NaN would stay for ever
    sums = jnp.stack([jnp.where(counted, jnp.exp(log_p), 0.0), counted.astype(log_p.dtype)]).sum(1)
    return jnp.asarray(confidence.moved(state, sums.astype(state.dtype)))


def margins(logits: Array, labels: Array, state: Array | None) -> Array:
    """Return u at the label less the largest other u, (n,): see `sigua.Batch.margins`."""
    log_p, at_label = _predictions(logits, labels)
    u = jnp.exp(log_p) if state is None else jnp.exp(log_p) / confidence.rates(state)
    own = jnp.where(at_label, u, 0.0).sum(-1)
    return (own - jnp.where(at_label, 0.0, u).max(-1)) / u.sum(-1)


def _predictions(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Return log p, and where the label is, both (n, k)."""
    index = labels if labels.ndim == 1 else labels.argmax(-1)
    at_label = index[:, None] == jnp.arange(logits.shape[1])
    return jax.nn.log_softmax(jax.lax.stop_gradient(logits)), at_label
