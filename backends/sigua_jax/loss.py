"""The objective of a mini-batch, and the two pure functions that it is made of."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from sigua import Method, Split, checks, step
from sigua.conditions import reads
from sigua.confidence import rates
from sigua.requirements import require_method, require_whole
from sigua.step import Selection
from sigua_jax import _confidence, _epochs, _ops
from sigua_jax._criterion import corrected, criterion, shares_of, unweighted
from sigua_jax._examples import Examples, array, examples, mask, per_example

_NOW = {
    "weight": "loss=CrossEntropy(weight=...)",
    "label_smoothing": "loss=CrossEntropy(smoothing=...)",
    "base": "loss=...",
    "rank_by": "select(what_decides, ...), and its weights times your losses",
    "per_class": 'groups="class"',
    "reduction": "select(corrected_losses(...), ...), and its weights times the losses",
}


def sigua_loss(
    logits: Any,
    labels: Any,
    epoch: Any,
    method: Method,
    *,
    loss: Any = None,
    where: Any = None,
    trusted: Any = None,
    confidence: Any = None,
    groups: Any = None,
    steps_per_epoch: int | None = None,
    **_old: Any,
) -> Array:
    """Return sum_i loss_i * (good_i - gamma * bad_i) / n, to be differentiated (Eq. 3).

    n is that of the plain mean: how many take part, or the sum of their labels' class weights,
    which scale losses and never decide. A loss of +inf contributes nothing, unless all are
    infinite; NaN reaches you. Under `jit`, sharded arrays are one mini-batch; under `vmap` and
    `shard_map` each part is one. Counts are exact up to n = 2,145,000, and beyond in 64 bits.

    Args:
        logits: float, (n, k); half precision is computed and ranked in float32. For one sigmoid
            output see `two_way`; for several labels per input make each label an example.
        labels: integers in [0, k), (n,), or class probabilities, float, (n, k). Others are refused,
            or, if they are traced and cannot be read, make value and gradient NaN.
        epoch: t >= 0, or `method.at(t)`. Both may be traced and then cost no recompilation: t if it
            is an integer and all schedules settle (numbers, `sigua.Knots`), and a negative one
            makes value and gradient NaN; `method.at(t)`, made outside `jit`, for every t and
            schedule.
        method: the method to train with; static under `jit`.
        loss: None for cross-entropy, `CrossEntropy(weight, smoothing)`, or a function of (logits,
            labels), as you gave them, that returns a loss per example, (n,), such as Optax's.
            Without a correction it may take anything with n rows, as for a regression. Backward
            correction calls it once per class, forward correction with log T'p for logits.
        where: bool, (n,): who takes part, such as `labels >= 0`.
        trusted: bool, (n,), or a `sigua.Split` of two masks, for `sigua.Known`.
        confidence: float, (2, k), for methods that read it, such as `sigua.sigua_ag`: see
            `update_confidence`. One with NaN or a negative entry is refused, or, if it is traced,
            makes value and gradient NaN.
        groups: who is judged together: None for all, "class" for those with the same label,
            integers (n,), such as annotators, or a function of (logits, labels) that returns such.
        steps_per_epoch: if given, `epoch` counts steps, and t is exactly `epoch / steps_per_epoch`;
            for warm-ups within an epoch, and for streams.

    Raises:
        ValueError: an argument that does not fit the others, or lies outside its range.
        TypeError: an option that has another spelling now.

    >>> import sigua
    >>> method = sigua.sigua_sl(noise_rate=0.5, delta=0.25, warmup=0)
    >>> print(f"{sigua_loss(jnp.zeros((4, 2)), jnp.array([0, 0, 1, 1]), 0, method):.4f}")
    0.6931
    """
    for name in _old:
        advice = _NOW.get(name, "help(sigua_loss)")
        raise TypeError(f"{name}: must be an option of sigua_loss, got another; try {advice}")
    given = examples(require_method(method), logits, labels, where)
    plain = criterion(loss, given)
    losses = decide = corrected(method, plain, given)
    if getattr(plain, "weight", None) is not None:
        decide = corrected(method, unweighted(plain), given)
    chosen = select(
        decide,
        epoch,
        method,
        loss=loss,
        logits=logits,
        labels=labels,
        where=where,
        trusted=trusted,
        confidence=confidence,
        groups=groups,
        steps_per_epoch=steps_per_epoch,
    )
    total = (jnp.where(chosen.silent, 0.0, losses) * chosen.weights).sum()
    return jnp.asarray(total / _ops.or_one(shares_of(plain, given, losses).sum()))


def corrected_losses(logits: Any, labels: Any, method: Method, loss: Any = None) -> Array:
    """Return what a method optimises, a loss per example with its gradient, (n,).

    That is the plain loss, [T^-1 l]_y for backward and -log [T'p]_y for forward correction. The
    arguments are those of `sigua_loss`; labels that are missing have to be replaced by any class.
    """
    given = examples(require_method(method), logits, labels, None)
    return corrected(method, criterion(loss, given), given)


def select(
    losses: Any,
    epoch: Any,
    method: Method,
    *,
    loss: Any = None,
    logits: Any = None,
    labels: Any = None,
    where: Any = None,
    trusted: Any = None,
    confidence: Any = None,
    groups: Any = None,
    steps_per_epoch: int | None = None,
) -> Selection:
    """Return who is good, who is bad, and what each weighs, (n,); nothing here has a gradient.

    For a ranking, a loss or a reduction of your own, for outputs and labels of any kind:

        chosen = select(what_decides, epoch, method)
        objective = (jnp.where(chosen.silent, 0.0, losses) * chosen.weights).sum() / n

    `what_decides`, float, (n,), is such as `corrected_losses`. `silent` marks who takes no part,
    and infinite losses. Weights are NaN where what is traced turns out to be wrong. The other
    arguments are those of `sigua_loss`. Logits and labels are for rules that judge predictions, as
    `sigua.sigua_ag` does, and for groups that are no integers; `loss` for the class sums of
    over="classes", and for class weights where good and bad are averaged apart.

    >>> import sigua
    >>> method = sigua.sigua_sl(noise_rate=0.5, delta=0.25, gamma=0.5, warmup=0)
    >>> select(jnp.array([4.0, 3.0, 2.0, 1.0, 0.0]), 0, method).weights.tolist()
    [0.0, -0.5, 1.0, 1.0, 1.0]
    """
    numbers, factor = _epochs.numbers(require_method(method), epoch, steps_per_epoch)
    shape = array("losses", losses).shape[:1] or (1,)
    given = Examples(None, None, None if where is None else mask("where", where, shape))
    if logits is not None:
        given = examples(method, logits, labels, where)
        shape = given.logits.shape[:1]
    losses = per_example("losses", losses, shape, jnp.floating, "a loss for each example")
    losses = jax.lax.stop_gradient(losses.astype(jnp.promote_types(losses.dtype, jnp.float32)))
    plain, margins, factor = criterion(loss, given), None, factor * given.factor
    by_class = reads(method.condition, "confidence")
    if by_class or reads(method.condition, "margins"):
        z, y = given.predictions()
        c = None
        if by_class:
            state, sound = _confidence.checked(confidence, z.shape[1])
            c, factor = rates(state), factor * sound
        margins = step.Margins(_ops, z, y, c, by_class)

    def sums() -> Any:
        assert method.T is not None
        return step.class_sums(_ops, method.T, unweighted(plain), given.predictions()[0])

    chosen = step.select(
        _ops,
        method,
        (jnp.asarray(numbers[0], losses.dtype), *numbers[1:]),
        losses * factor,
        valid=given.where,
        shares=shares_of(plain, given, losses) if method.separate else None,
        trusted=_marks(method, trusted, shape),
        sums=sums if method.correction == "backward" else None,
        margins=margins,
        groups=None if groups is None else _groups(method, groups, given, shape),
    )
    return chosen._replace(weights=chosen.weights * factor)


def _marks(method: Method, value: Any, shape: tuple[int, ...]) -> Any:
    if value is not None and not reads(method.condition, "trusted"):
        raise ValueError(
            "trusted: must be None unless the condition is Known or a rule of your own that reads "
            f"it, got it for {method!r}; try leaving it out, or sigua.Known()"
        )
    if isinstance(value, Split):
        return Split(*(mask("trusted", part, shape) for part in value))
    return None if value is None else mask("trusted", value, shape)


def _groups(method: Method, value: Any, given: Examples, shape: tuple[int, ...]) -> Array:
    require_whole(method, "groups")
    if isinstance(value, str):
        checks.choice("groups", value, ("class",))
        value = given.predictions()[1]
    value = value(*given.predictions()) if callable(value) else value
    return per_example("groups", value, shape, jnp.integer, "labels.argmax(-1), or reshape")
