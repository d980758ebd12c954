"""The objective of a mini-batch, and the two pure functions that it is made of."""

from __future__ import annotations

from typing import Any

from jax import Array
from jax import numpy as jnp
from jax.lax import stop_gradient

from sigua import Method, Split, checks, step
from sigua.conditions import reads
from sigua.requirements import require_method, require_whole
from sigua_jax import _ops, _state
from sigua_jax._criterion import corrected, criterion, shares_of, unweighted
from sigua_jax._examples import Examples, array, examples, per_example

_NOW = {
    "weight": "loss=CrossEntropy(weight=...)",
    "label_smoothing": "loss=CrossEntropy(smoothing=...)",
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
    infinite; NaN reaches you. Labels, epochs and confidences that are wrong are refused, or, if
    they are traced and cannot be read, make value and gradient NaN. Under `jit`, sharded arrays are
    one mini-batch; under `vmap` and `shard_map` each part is one.

    Args:
        logits: float, (n, k); half precision is ranked in float32. See `two_way` for a sigmoid.
        labels: integers in [0, k), (n,), or class probabilities, float, (n, k).
        epoch: t >= 0, or `method.at(t)`. Both may be traced and then cost no recompilation: t if it
            is an integer and all schedules settle (numbers, `sigua.Knots`); `method.at(t)`, made
            outside `jit`, for every t and every schedule.
        method: the method to train with; static under `jit`.
        loss: None for cross-entropy, `CrossEntropy(weight, smoothing)`, or a function of (logits,
            labels) that returns a loss per example, (n,), such as Optax's. Backward correction
            calls it once per class, forward correction with log T'p for logits.
        where: bool, (n,): who takes part, such as `labels >= 0`.
        trusted: bool, (n,), or a `sigua.Split` of two masks, for `sigua.Known`.
        confidence: for methods such as `sigua.sigua_ag`: see `init_confidence`.
        groups: who is judged together: None for all, "class" for those with the same label,
            integers (n,), such as annotators, or a function of (logits, labels) that returns such.
        steps_per_epoch: if given, `epoch` counts steps, and t is exactly `epoch / steps_per_epoch`.

    Raises:
        ValueError: an argument that does not fit the others, or lies outside its range.
        TypeError: an option that has another name now.

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

    The plain loss, [T^-1 l]_y or -log [T'p]_y; arguments as for `sigua_loss`, labels all known.
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
) -> step.Selection:
    """Return who is good, who is bad, and what each weighs, (n,); nothing here has a gradient.

    For a ranking, a loss or a reduction of your own, and outputs and labels of any kind:

        chosen = select(what_decides, epoch, method)
        objective = (jnp.where(chosen.silent, 0.0, losses) * chosen.weights).sum() / n

    What decides is float, (n,), such as `corrected_losses`. `silent` marks who takes no part, and
    infinite losses. The others are those of `sigua_loss`: logits and labels for rules that judge
    predictions, and groups that are no integers; `loss` for class sums, and for separate averages.

    >>> import sigua
    >>> method = sigua.sigua_sl(noise_rate=0.5, delta=0.25, gamma=0.5, warmup=0)
    >>> select(jnp.array([4.0, 3.0, 2.0, 1.0, 0.0]), 0, method).weights.tolist()
    [0.0, -0.5, 1.0, 1.0, 1.0]
    """
    numbers, factor = _state.numbers(require_method(method), epoch, steps_per_epoch)
    shape = array("losses", losses).shape[:1] or (1,)
    if logits is not None:
        given = examples(method, logits, labels, where)
        shape = given.logits.shape[:1]
    else:
        where = None if where is None else per_example("where", where, shape, jnp.bool_)
        given = Examples(None, None, where)
    losses = per_example("losses", losses, shape, jnp.floating)
    losses = stop_gradient(losses.astype(jnp.promote_types(losses.dtype, jnp.float32)))
    plain, margins, factor = criterion(loss, given), None, factor * given.factor
    by_class = reads(method.condition, "confidence")
    if by_class or reads(method.condition, "margins"):
        z, y = given.predictions()
        state, sound = None, 1.0
        if by_class:
            counts = reads(method.condition, "counts")
            state, sound = _state.checked(confidence, z.shape[1], counts)
        factor, margins = factor * sound, step.Margins(_ops, _ops.softmax(z), y, state)
    T: Any = method.T
    chosen = step.select(
        _ops,
        method,
        (jnp.asarray(numbers[0], losses.dtype), *numbers[1:]),
        losses * factor,
        valid=given.where,
        shares=shares_of(plain, given, losses) if method.separate else None,
        trusted=_marks(method, trusted, shape),
        sums=None
        if method.correction != "backward"
        else lambda: step.class_sums(
            _ops, T.inverse_column_sums, unweighted(plain), given.predictions()[0]
        ),
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
        return Split(*(per_example("trusted", part, shape, jnp.bool_) for part in value))
    return None if value is None else per_example("trusted", value, shape, jnp.bool_)


def _groups(method: Method, value: Any, given: Examples, shape: tuple[int, ...]) -> Array:
    require_whole(method, "groups")
    if isinstance(value, str):
        checks.choice("groups", value, ("class",))
        value = given.predictions()[1]
    value = value(*given.predictions()) if callable(value) else value
    return per_example("groups", value, shape, jnp.integer)
