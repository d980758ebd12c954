"""`sigua_loss` and `sigua_split`: measure, choose and reduce a mini-batch, without a state."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from sigua import Method, Split, checks
from sigua.conditions import choose
from sigua_jax import _check, _correct, _schedule
from sigua_jax._batch import Batch


def sigua_loss(
    logits: Any,
    labels: Any,
    epoch: Any,
    method: Method,
    *,
    where: Any = None,
    trusted: Any = None,
    reduction: str = "mean",
) -> Array:
    """Return sum_i loss_i * (good_i - gamma * bad_i) / n, to be differentiated (Eq. 3).

    Under `jit`, sharded arrays are one mini-batch; under `vmap` and `shard_map` each part is one.
    A loss of +inf contributes nothing; NaN reaches you.

    Args:
        logits: float, (n, k); float16 and bfloat16 are measured and ranked in float32.
        labels: integers, (n,), in [0, k). Any other is refused, or makes the loss NaN where labels
            are traced and cannot be read.
        epoch: t >= 0, or `method.at(t)`. Both may be traced and then cost no recompilation: t as an
            integer and with schedules that settle (numbers, `sigua.Knots`), `method.at(t)`, which
            is made outside of `jit`, for every t and every schedule.
        method: what to train with; static under `jit`.
        where: bool, (n,): who takes part, has a rank and counts in n; such as `labels >= 0`.
        trusted: bool, (n,), or a `sigua.Split` of two, for `sigua.Known`.
        reduction: "mean", "sum", or "none" (the signed losses, which you may weigh).

    Counts are exact up to n = 2,145,000, and beyond under `jax_enable_x64`.

    Raises:
        ValueError: an argument that does not fit the others, or lies outside its range.

    >>> import sigua
    >>> method = sigua.sigua_sl(noise_rate=0.5, delta=0.25, warmup=0)
    >>> logits = jnp.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    >>> split = sigua_split(logits, jnp.zeros(5, int), 0, method)
    >>> split.good.tolist(), split.bad.tolist()
    ([False, False, True, True, True], [False, True, False, False, False])
    """
    checks.choice("reduction", reduction, ("mean", "sum", "none"))
    gamma, losses, batch, split = _decide(logits, labels, epoch, method, where, trusted)
    good, bad = (mask.astype(losses.dtype) for mask in split)
    if method.separate:
        good, bad = (mask * (batch.size / jnp.maximum(mask.sum(), 1)) for mask in (good, bad))
    counted = jnp.where(batch.losses == jnp.inf, 0.0, losses)
    signed: Array = counted * (good - jnp.asarray(gamma, losses.dtype) * bad)
    total = signed if reduction == "none" else signed.sum()
    return total / jnp.maximum(batch.size, 1) if reduction == "mean" else total


def sigua_split(
    logits: Any, labels: Any, epoch: Any, method: Method, *, where: Any = None, trusted: Any = None
) -> Split:
    """Return who is good and bad, bool, (n,); the arguments are those of `sigua_loss`.

    Inside one `jit` the two share their work.
    """
    return _decide(logits, labels, epoch, method, where, trusted)[3]


def _decide(
    logits: Any, labels: Any, epoch: Any, method: Method, where: Any, trusted: Any
) -> tuple[Any, Array, Batch, Split]:
    """Return gamma, the losses with gradient, what the rule was asked about, and its answer."""
    log_p, labels, where = _check.batch(Method.require(method), logits, labels, where)
    trusted = _check.trusted(method, trusted, labels.shape)
    losses = _correct.losses(method, log_p, labels)
    ranked = jax.lax.stop_gradient(jnp.where(where, losses, jnp.inf))
    batch = Batch(ranked, where.sum(), trusted, lambda: _correct.class_sums(method, log_p))
    gamma, *numbers = _schedule.numbers(method, epoch)
    return gamma, losses, batch, choose(method.condition, batch, tuple(numbers))
