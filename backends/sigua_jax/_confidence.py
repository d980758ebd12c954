"""The class confidence: a state that goes in and comes out of every step."""

from __future__ import annotations

from typing import Any

from jax import Array
from jax import numpy as jnp

from sigua import checks, standard
from sigua.confidence import moved
from sigua.step import Margins
from sigua_jax import _ops
from sigua_jax._examples import array, examples, is_kind, nan_unless, readable, written


def init_confidence(k: int) -> Array:
    """Return the class confidence before the first mini-batch, of k classes: float32, (2, k)."""
    k = checks.whole("k", k, 2, "try the number of classes")
    return jnp.zeros((2, k), jnp.float32)


def update_confidence(confidence: Any, logits: Any, labels: Any, where: Any = None) -> Array:
    """Return the class confidence after a mini-batch (`sigua.confidence`), (2, k).

    Call it once a step, after `sigua_loss` was called with the old one. If gradients of
    micro-batches are added up, call it with all of them together, so that all are judged by the
    same confidence. No gradient flows through it.

    Args:
        confidence: float, (2, k), from `init_confidence` or the last call.
        logits: as for `sigua_loss`.
        labels: as for `sigua_loss`; the label of class probabilities is the largest.
        where: bool, (n,): which examples take part.

    Raises:
        ValueError: arguments that do not fit each other.

    >>> state = update_confidence(init_confidence(2), jnp.zeros((4, 2)), jnp.array([0, 0, 0, 1]))
    >>> state.tolist()  # sums of p(label | x), and numbers, by class
    [[1.5, 0.5], [3.0, 1.0]]
    """
    given = examples(standard(), logits, labels, where)
    logits, labels = given.predictions()
    state, _ = checked(confidence, logits.shape[1])
    everyone = jnp.ones(labels.shape[:1], bool) if given.where is None else given.where
    sums = Margins(_ops, logits, labels, None).sums(everyone & (given.factor == 1))
    return jnp.asarray(moved(state, sums.astype(state.dtype)))


def checked(confidence: Any, k: int) -> tuple[Array, Any]:
    """Return a class confidence, and a factor: 1, or NaN if it is traced and turns out wrong."""
    if confidence is None:
        raise ValueError(
            "confidence: must be given for a method that reads it, got None; "
            f"try init_confidence({k}) before training, update_confidence in each step"
        )
    found = array("confidence", confidence)
    if found.shape != (2, k) or not is_kind(found, jnp.floating):
        raise ValueError(
            f"confidence: must be float(2, {k}), got {written(found)}; try init_confidence({k})"
        )
    right = ((found >= 0) & (found < jnp.inf)).all()
    if readable(right) and not right:
        raise ValueError(
            "confidence: must be sums and numbers, finite and from 0 up, got "
            f"{found.tolist()}; try init_confidence({k})"
        )
    return found, nan_unless(right)
