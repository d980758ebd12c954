"""`sigua_loss` and `sigua_split`: measure, choose and reduce a mini-batch, without a state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from sigua import Method, Split, TransitionMatrix, checks
from sigua.conditions import choose, may_read_marks, no_class_sums


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
    log_p, labels, where = _checked(Method.require(method), logits, labels, where)
    if trusted is not None and not may_read_marks(method.condition):
        rule, came = "only Known or a rule of your own reads it", f"{method!r} came"
        raise checks.refuse("trusted", rule, came, "leave it out, or use sigua.Known()")
    if isinstance(trusted, Split):
        trusted = Split(*(_mask("trusted", mask, labels.shape) for mask in trusted))
    elif trusted is not None:
        trusted = _mask("trusted", trusted, labels.shape)
    losses = _losses(method, log_p, labels)
    ranked = jax.lax.stop_gradient(jnp.where(where, losses, jnp.inf))
    batch = Batch(ranked, where.sum(), trusted, lambda: _class_sums(method, log_p))
    gamma, *numbers = _numbers(method, epoch)
    return gamma, losses, batch, choose(method.condition, batch, tuple(numbers))


@dataclass(eq=False)
class Batch:
    """`sigua.Batch` on arrays of JAX."""

    losses: Array
    size: Any
    trusted: Any
    class_sums: Any

    def smallest(self, count: Any) -> Array:
        losses = jnp.where(jnp.isnan(self.losses), jnp.inf, self.losses)
        mesh = jax.typeof(losses).sharding.mesh
        if not mesh.empty:  # nothing sorts along a sharded axis that is explicit
            losses = jax.reshard(losses, jax.NamedSharding(mesh, jax.P()))  # type: ignore[no-untyped-call]  # JAX's
        ordered = jnp.sort(jnp.append(losses, -jnp.inf))  # for two counts, XLA sorts once
        return ordered[jnp.minimum(count, self.size)]

    def mean(self) -> Array:
        counted = self.losses != jnp.inf  # NaN stays
        return jnp.where(counted, self.losses, 0.0).sum() / jnp.maximum(counted.sum(), 1)


def _losses(method: Method, log_p: Array, labels: Array) -> Array:
    """Return what is optimised per example, (n,), in O(n k)."""
    checks.choice("correction", method.correction, ("none", "backward", "forward"))
    if method.T is None:
        return -jnp.take_along_axis(log_p, labels[:, None], -1)[:, 0]
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


def _class_sums(method: Method, log_p: Array) -> Array:
    """Return 1'T^-1 l, (n,)."""
    if method.T is None or method.correction != "backward":
        raise no_class_sums()
    return -_dot(jnp.asarray(method.T.inverse_column_sums), jax.lax.stop_gradient(log_p))


def _dot(rows: Array, log_p: Array) -> Array:
    """Return the dot products of rows, where a coefficient of 0 drops an infinity, too."""
    return (rows * jnp.where(rows == 0, 0.0, log_p)).sum(-1)


def _numbers(method: Method, epoch: Any) -> tuple[Any, ...]:
    """Return `method.at(epoch)`; of a traced epoch, from a table with a row per epoch."""
    if isinstance(epoch, tuple):
        length = len(method.at(0))
        if len(epoch) != length:
            rule = f"must be method.at(t), which has length {length}, or a number t"
            raise checks.refuse("epoch", rule, f"length {len(epoch)} came", "give method.at(t)")
        return epoch
    if not isinstance(epoch, jax.core.Tracer):
        return method.at(epoch.item() if hasattr(epoch, "item") else epoch)
    if not jnp.issubdtype(epoch.dtype, jnp.integer) or method.horizon == jnp.inf:
        rule = "traced by jit it must be an integer, and every schedule must settle"
        raise checks.refuse("epoch", rule, f"{epoch.dtype} for {method!r} came", "jit method.at(t)")
    table = [method.at(t) for t in range(int(method.horizon) + 2)]
    now = jnp.clip(epoch, 0, len(table) - 1)
    return tuple(jnp.asarray(column)[now] for column in zip(*table, strict=True))


def _checked(method: Method, logits: Any, labels: Any, where: Any) -> tuple[Array, Array, Array]:
    """Return log p, labels, and who takes part."""
    logits, labels = jnp.asarray(logits), jnp.asarray(labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or labels.dtype.kind not in "iu":
        rule = "must have shape (n, k), and labels must be integers of shape (n,)"
        came = f"{logits.dtype}{logits.shape} and {labels.dtype}{labels.shape} came"
        raise checks.refuse("logits", rule, came, "reshape to rank jointly, vmap to rank apart")
    n, k = logits.shape
    method.require_classes(k)
    where = jnp.ones(n, bool) if where is None else _mask("where", where, (n,))
    labels = jnp.where(where, labels, 0).astype(jnp.int32)
    if not isinstance(labels, jax.core.Tracer):
        checks.labels("labels", labels, k)
    logits = jnp.where(where[:, None], logits, jnp.float32(0))  # so in float32 at least
    unknown = (labels < 0) | (labels >= k)
    return jax.nn.log_softmax(jnp.where(unknown[:, None], jnp.nan, logits)), labels, where


def _mask(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    if isinstance(value, (tuple, dict)):
        came = f"a {type(value).__name__} came"
        raise checks.refuse(name, f"must be bool{shape}", came, "for two masks use sigua.Split")
    mask = jnp.asarray(value)
    if mask.dtype != bool or mask.shape != shape:
        came = f"{mask.dtype}{mask.shape} came"
        raise checks.refuse(name, f"must be bool{shape}, one per example", came, "cast or reshape")
    return mask
