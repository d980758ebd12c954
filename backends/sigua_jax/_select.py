"""From one mini-batch to its losses and its split into good and bad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import Array
from jax import numpy as jnp

from sigua import Method, Split
from sigua.conditions import choose, no_margins, reads
from sigua_jax import _check, _correct, _examples, _schedule
from sigua_jax._batch import Batch, ClassBatch
from sigua_jax._check import Options
from sigua_jax._examples import Examples
from sigua_jax._margins import margins
from sigua_jax._measure import Measure, lookup


class Step(NamedTuple):
    """The losses of a mini-batch and its split."""

    losses: Array
    """(n,), with gradient; 0 for examples that take no part, or have an infinite loss."""
    split: Split
    gamma: Any
    shares: Array
    """(n,), each example's part of the plain criterion's denominator."""


def decide(
    logits: Any,
    labels: Any,
    epoch: Any,
    method: Method,
    options: Options,
    steps_per_epoch: Any,
    where: Any,
    trusted: Any,
    confidence: Any,
) -> Step:
    """Compute the losses and apply the rule; arguments and errors are those of `sigua_loss`."""
    needed = method.T is not None or reads(method.condition, "margins") or options.per_class
    of_classes = options.base is None or needed
    given = _examples.batch(method, logits, labels, where, of_classes=of_classes)
    gamma, *numbers = _schedule.numbers(method, epoch, steps_per_epoch)
    losses, ranked, plain = _measured(method, options, given)
    state = _check.confidence_for(method, confidence, given.num_classes)
    sound = True if state is None or _check.readable(state) else _check.are_sums(state).all()
    factor = _or_nan(given.factor, sound, _schedule.is_one(epoch))
    losses, ranked = losses * factor, ranked * factor
    asked = (
        _check.trusted(method, trusted, given.where.shape),
        lambda: _correct.class_sums(method, plain, given.logits),
        _margins_of(method, given, state),
    )
    ranked = jax.lax.stop_gradient(jnp.where(given.where, ranked, jnp.inf))
    size = given.where.sum()
    batch = Batch(ranked, size, *asked)
    if options.per_class:
        _check.integer_labels(given.labels)
        batch = ClassBatch(ranked, size, *asked, given.where, given.labels, given.num_classes)
    split = choose(method.condition, batch, tuple(numbers))
    # An infinite loss contributes nothing; NaN stays NaN, even times 0.
    losses = jnp.where(given.where & (losses != jnp.inf), losses, 0.0)
    return Step(losses, split, gamma, _shares(options.weight, given, losses.dtype))


def _measured(method: Method, options: Options, given: Examples) -> tuple[Array, Array, Measure]:
    """Return the losses, the values that rank them, and the measure without class weights."""
    plain = Measure(None, options.smoothing, given.own_loss("base", options.base))
    ranked = losses = _correct.losses(method, plain, given.logits, given.labels)
    if options.weight is not None:
        _check.class_weights(options.weight, given.num_classes)
        weighted = plain._replace(weight=options.weight.astype(losses.dtype))
        losses = _correct.losses(method, weighted, given.logits, given.labels)
    rank_by = given.own_loss("rank_by", options.rank_by)
    if rank_by is not None:
        ranked = rank_by(given.logits, given.labels).astype(losses.dtype)
    return losses, ranked, plain


def _shares(weight: Array | None, given: Examples, dtype: Any) -> Array:
    shares = given.where.astype(dtype)
    if weight is None or given.soft:
        return shares
    return shares * lookup(weight.astype(dtype), given.labels)


def _or_nan(factor: Any, *known: Any) -> Any:
    """Return the factor of the losses, or NaN where what is traced turns out to be wrong."""
    for right in known:
        factor = factor if right is True else jnp.where(right, factor, jnp.nan)
    return factor


def _margins_of(
    method: Method, given: Examples, state: Array | None
) -> Callable[[bool], Array] | None:
    """Return the function for margins, by class or not; None if the rule reads no margins."""
    if state is None and not reads(method.condition, "margins"):
        return None

    def measure(by_class: bool) -> Array:
        if by_class and state is None:
            raise no_margins()
        return margins(given.logits, given.labels, state if by_class else None)

    return measure


def or_one(number: Array) -> Array:
    """Return a denominator, or 1 where it is 0, as the numerator then is."""
    return jnp.where(number == 0, 1, number)
