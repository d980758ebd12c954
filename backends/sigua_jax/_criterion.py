"""The plain loss: cross-entropy, or a function of the user's, as the step takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from sigua import Method, checks, step
from sigua.step import CrossEntropy
from sigua_jax import _ops
from sigua_jax._examples import Examples, array, is_kind, per_example, readable, written


def criterion(loss: Any, given: Examples) -> step.Loss:
    """Return the plain loss, or raise ValueError if that is none."""
    if loss is None:
        return CrossEntropy()
    given.predictions()
    if isinstance(loss, CrossEntropy):
        checks.number("smoothing", loss.smoothing, 0, 1, "try 0, which turns it off")
        return loss._replace(weight=_class_weights(loss.weight, given.logits))
    if isinstance(loss, type) or not callable(loss):
        raise ValueError(
            f"loss: must be None, CrossEntropy(...) or a function of (logits, labels), got {loss!r}"
            "; try one that returns a loss per example, as Optax's do"
        )
    return step.Own(_own(loss, given))


def _class_weights(weight: Any, logits: Array) -> Array | None:
    if weight is None:
        return None
    found, k = array("weight", weight), logits.shape[1]
    wrong = found.shape != (k,) or found.dtype == bool or is_kind(found, jnp.complexfloating)
    if wrong or (readable(found) and not ((found >= 0) & (found < jnp.inf)).all()):
        raise ValueError(
            f"weight: must be a finite number from 0 up for each of {k} classes, "
            f"got {written(found) if wrong else found.tolist()}; try jnp.ones({k})"
        )
    return found.astype(logits.dtype)


def _own(loss: Callable[[Any, Any], Any], given: Examples) -> Callable[[Array, Array], Array]:
    """Return the user's function: where it is infinite, its gradient is 0 and not NaN."""

    def called(logits: Array, labels: Array) -> Array:
        if labels.ndim < given.labels.ndim:  # once per class, where labels are probabilities
            labels = jax.nn.one_hot(labels, logits.shape[1], dtype=logits.dtype)
        advice = "a mean over all axes except the first"
        found = per_example("loss", loss(logits, labels), logits.shape[:1], jnp.floating, advice)
        infinite = jax.lax.stop_gradient(found) == jnp.inf
        elsewhere = jnp.where(infinite[:, None], 0, logits)
        return jnp.where(infinite, jnp.inf, loss(elsewhere, labels))

    return called


def corrected(method: Method, loss: step.Loss, given: Examples) -> Array:
    """Return what the method optimises, (n,), with gradient; NaN for labels that are none."""
    M, known = step.matrix(_ops, method, given.logits), (given.logits, given.labels)
    losses: Array = step.corrected_losses(_ops, method.correction, M, loss, *known)
    return jnp.asarray(losses * given.factor)


def unweighted(loss: step.Loss) -> step.Loss:
    """Return what decides: class weights scale losses, and do no more."""
    return loss._replace(weight=None) if isinstance(loss, CrossEntropy) else loss


def shares_of(loss: step.Loss, given: Examples, losses: Array) -> Array:
    """Return each example's part of the plain mean's denominator, (n,)."""
    weight, shares = getattr(loss, "weight", None), jnp.ones_like(losses)
    if weight is not None and given.labels.ndim == 1:
        shares = _ops.take(weight, given.labels)
    return shares if given.where is None else jnp.where(given.where, shares, 0.0)
