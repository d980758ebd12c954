"""`sigua_loss` and `sigua_split`: the objective and the split of a mini-batch, pure functions."""

from __future__ import annotations

from typing import Any

from jax import Array
from jax import numpy as jnp

from sigua import Method, Split, checks
from sigua_jax import _check
from sigua_jax._measure import Base
from sigua_jax._select import decide, or_one


def sigua_loss(
    logits: Any,
    labels: Any,
    epoch: Any,
    method: Method,
    *,
    steps_per_epoch: int | None = None,
    where: Any = None,
    trusted: Any = None,
    confidence: Any = None,
    weight: Any = None,
    label_smoothing: float = 0.0,
    base: Base | None = None,
    rank_by: Base | None = None,
    per_class: bool = False,
    reduction: str = "mean",
) -> Array:
    """Return sum_i loss_i * (good_i - gamma * bad_i) / n, to be differentiated (Eq. 3).

    Under `jit`, sharded arrays are one mini-batch; under `vmap` and `shard_map` each part is one.
    A loss of +inf contributes nothing; NaN reaches you. Counts are exact up to n = 2,145,000, and
    beyond under `jax_enable_x64`.

    Args:
        logits: float, (n, k), or (n,) for one sigmoid output, which makes two classes; losses of
            float16 and bfloat16 are computed and ranked in float32.
        labels: integers in [0, k), (n,), or class probabilities, float, of the logits' shape. Other
            labels are refused, or, if they are traced and cannot be read, make value and gradient
            NaN. For several labels per input, `ravel` both, so that each label is an example.
        epoch: t >= 0, or `method.at(t)`. Both may be traced and then cost no recompilation: t if it
            is an integer and all schedules settle (numbers, `sigua.Knots`), and if it is negative
            value and gradient are NaN; `method.at(t)`, made outside `jit`, for every t and every
            schedule.
        method: the method to train with; static under `jit`.
        steps_per_epoch: if given, `epoch` counts steps, and t is exactly `epoch / steps_per_epoch`;
            for warm-ups within an epoch, and for streams, where it is any number of steps.
        where: bool, (n,): which examples take part, have a rank and count in n; such as
            `labels >= 0`.
        trusted: bool, (n,), or a `sigua.Split` of two masks, for `sigua.Known`.
        confidence: the class confidence so far, float, (2, k), for methods that read it, such as
            `sigua.sigua_ag`: see `init_confidence` and `update_confidence`. One with NaN or a
            negative entry is refused, or, if it is traced, makes value and gradient NaN.
        weight: float, (k,), a weight per class, which scales losses and never decides; "mean" then
            divides by the sum of the labels' weights, and for class probabilities by n. For
            backward correction the weight is that of the true class.
        label_smoothing: in [0, 1].
        base: a loss instead of cross-entropy: a function of (logits, labels), as you gave them,
            that returns a loss per example, (n,), such as Optax's. Without a correction they may be
            anything with n rows, as for a regression. Backward correction calls it once per class;
            forward correction passes log-probabilities as logits, or their log-odds.
        rank_by: the loss per example that decides, if it is not the one that is optimised: a
            function like `base`, such as `sigua_jax.cross_entropy`, the only one for `sigua_nf`.
        per_class: whether to select among the examples of each label separately; for integer
            labels.
        reduction: "mean", "sum", or "none" (the signed losses, which you may weigh).

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
    options = _check.options(method, weight, label_smoothing, base, rank_by, per_class)
    known = where, trusted, confidence
    step = decide(logits, labels, epoch, method, options, steps_per_epoch, *known)
    total = step.shares.sum()
    good, bad = (mask.astype(step.losses.dtype) for mask in step.split)
    if method.separate:
        good, bad = (m * (total / or_one((m * step.shares).sum())) for m in (good, bad))
    signed: Array = step.losses * (good - jnp.asarray(step.gamma, good.dtype) * bad)
    if reduction == "none":
        return signed
    return signed.sum() / or_one(total) if reduction == "mean" else signed.sum()


def sigua_split(
    logits: Any,
    labels: Any,
    epoch: Any,
    method: Method,
    *,
    steps_per_epoch: int | None = None,
    where: Any = None,
    trusted: Any = None,
    confidence: Any = None,
    weight: Any = None,
    label_smoothing: float = 0.0,
    base: Base | None = None,
    rank_by: Base | None = None,
    per_class: bool = False,
) -> Split:
    """Return which examples are good and bad, bool, (n,); the arguments are as for `sigua_loss`.

    Inside one `jit` the two functions share their work.

    Raises:
        ValueError: as for `sigua_loss`.
    """
    options = _check.options(method, weight, label_smoothing, base, rank_by, per_class)
    known = where, trusted, confidence
    return decide(logits, labels, epoch, method, options, steps_per_epoch, *known).split
