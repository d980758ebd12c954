"""What changes from step to step: the epoch's numbers, and the class confidence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import Array
from jax import numpy as jnp
from jax.core import Tracer

from sigua import Method, checks, standard
from sigua.conditions import reads
from sigua.confidence import moved, zeros
from sigua.requirements import require_method
from sigua.step import Margins
from sigua_jax import _ops
from sigua_jax._examples import array, examples, is_kind

MOST_STEPS = 1_000_000


def numbers(method: Method, epoch: Any, steps_per_epoch: Any) -> tuple[tuple[Any, ...], Any]:
    """Return `method.at(epoch)`, and a factor: 1, or NaN for a traced epoch that is negative."""
    counted = steps_per_epoch is not None
    if isinstance(epoch, tuple):
        if counted:
            raise ValueError(
                "steps_per_epoch: must be left out with method.at(t), got both; "
                "try method.at(step / steps_per_epoch)"
            )
        return _given(method, epoch), 1.0
    steps = checks.whole("steps_per_epoch", steps_per_epoch, 1, "try 500") if counted else 1
    if hasattr(epoch, "shape") and epoch.shape != ():
        raise ValueError(f"epoch: must be one number, got shape {epoch.shape}; try jax.vmap")
    if isinstance(epoch, Tracer):
        table = _table(method, epoch.dtype, steps)
        epoch = epoch.astype(jnp.int32) if epoch.dtype.itemsize < 4 else epoch  # or `clip` wraps
        now = jnp.clip(epoch, 0, len(table[0]) - 1)
        sound = jnp.where(epoch < 0, jnp.nan, 1.0)
        return tuple(jnp.asarray(column)[now] for column in table), sound
    epoch = epoch.item() if hasattr(epoch, "item") else epoch
    if counted:
        epoch = checks.whole("epoch", epoch, 0, "try a number of steps") / steps
    return method.at(epoch), 1.0


def _table(method: Method, dtype: Any, steps: int) -> list[Any]:
    """Return a column for each number, with a row per step until all schedules have settled."""
    last = method.horizon * steps
    if not jnp.issubdtype(dtype, jnp.integer) or last > MOST_STEPS:
        raise ValueError(
            "epoch: must be an integer if it is traced by jit, and every schedule must settle "
            f"within {MOST_STEPS} steps, got {dtype} and {last:g} steps for {method!r}; "
            "try counting steps, with steps_per_epoch=, or pass method.at(t) to jit"
        )
    return method.at_each(np.arange(math.ceil(last) + 1) / steps)


def _given(method: Method, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the numbers that the user gave, or raise ValueError if they are not `method.at`'s."""
    usual = method.at(0)
    kinds = [getattr(number, "dtype", type(number)) for number in given]
    wanted = [jnp.integer if isinstance(number, int) else jnp.number for number in usual]
    right = len(kinds) == len(wanted) and all(map(jnp.issubdtype, kinds, wanted))
    if not right or any(np.shape(number) for number in given):
        raise ValueError(
            f"epoch: must be method.at(t), {len(usual)} numbers like {usual}, or a number t, "
            f"got {given}; try method.at(t)"
        )
    return given


def init_confidence(k: int, method: Method | None = None) -> Array:
    """Return the class confidence before the first mini-batch, of k classes: float32, (2, k).

    For a method that counts (`sigua_ag` with a `power`) it is (4 + k, k), with the counts.
    """
    counts = method is not None and reads(require_method(method).condition, "counts")
    return jnp.asarray(zeros(checks.whole("k", k, 2, "try the number of classes"), counts))


def update_confidence(confidence: Any, logits: Any, labels: Any, where: Any = None) -> Array:
    """Return the class confidence after a mini-batch (`sigua.confidence`), in its shape.

    Call it once a step, after `sigua_loss` was called with the old one, and with the same
    arguments. If gradients of micro-batches are added up, call it with all of them together, so
    that all are judged by the same confidence. No gradient flows through it.

    >>> state = update_confidence(init_confidence(2), jnp.zeros((4, 2)), jnp.array([0, 0, 0, 1]))
    >>> state.tolist()  # sums of p(label | x), and numbers, by class
    [[1.5, 0.5], [3.0, 1.0]]
    """
    given = examples(standard(), logits, labels, where)
    logits, labels = given.predictions()
    k = logits.shape[1]
    state, _ = checked(confidence, k, counts=np.shape(confidence)[:1] > (2,))
    everyone = jnp.ones(labels.shape[:1], bool) if given.where is None else given.where
    sums = Margins(_ops, _ops.softmax(logits), labels, state).sums(everyone & (given.factor == 1))
    return jnp.asarray(moved(state, sums.astype(state.dtype), _ops))


def checked(confidence: Any, k: int, counts: bool) -> tuple[Array, Any]:
    """Return a class confidence, and a factor: 1, or NaN if it is traced and turns out wrong."""
    make = f"init_confidence({k}, method)" if counts else f"init_confidence({k})"
    if confidence is None:
        raise ValueError(
            "confidence: must be given for a method that reads it, got None; "
            f"try {make} before training, update_confidence in each step"
        )
    found, shape = array("confidence", confidence), zeros(k, counts).shape
    if found.shape != shape or not is_kind(found, jnp.floating):
        raise ValueError(
            f"confidence: must be float{shape}, of {k} classes, got "
            f"{found.dtype}{found.shape}; try {make}"
        )
    right = ((found >= 0) & (found < jnp.inf)).all()
    if not isinstance(right, Tracer) and not right:
        raise ValueError(
            "confidence: must be sums and numbers, finite and from 0 up, got "
            f"{found.tolist()}; try {make}"
        )
    return found, jnp.where(right, 1.0, jnp.nan)
