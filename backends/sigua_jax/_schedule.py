"""The epoch's numbers, for an epoch that is known, traced or counted in steps, or given as such."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from sigua import Method, checks

MOST_STEPS = 1_000_000


def numbers(method: Method, epoch: Any, steps_per_epoch: Any) -> tuple[Any, ...]:
    """Return `method.at(epoch)`; for a traced epoch or step, from a table with a row for each.

    Raises:
        ValueError: an epoch that is out of range, of another shape, or not an integer if traced;
            `steps_per_epoch` that does not fit it; or a schedule that never settles, if traced.
    """
    steps = 1
    if steps_per_epoch is not None:
        steps = checks.whole("steps_per_epoch", steps_per_epoch, 1, "try len(loader)")
    if isinstance(epoch, tuple):
        if steps_per_epoch is not None:
            raise ValueError(
                "steps_per_epoch: must be left out with method.at(t), got both; "
                "try method.at(step / steps_per_epoch)"
            )
        return _given(method, epoch)
    if hasattr(epoch, "shape") and epoch.shape != ():
        raise ValueError(f"epoch: must be one number, got shape {epoch.shape}; try jax.vmap")
    if not isinstance(epoch, jax.core.Tracer):
        epoch = epoch.item() if hasattr(epoch, "item") else epoch
        if steps_per_epoch is not None:
            epoch = checks.whole("epoch", epoch, 0, "try a number of steps") / steps
        return method.at(epoch)
    if not jnp.issubdtype(epoch.dtype, jnp.integer) or method.horizon == math.inf:
        raise ValueError(
            "epoch: must be an integer if it is traced by jit, and every schedule must settle, "
            f"got {epoch.dtype} for {method!r}; "
            "try counting steps, with steps_per_epoch=, or pass method.at(t) to jit"
        )
    table = _table(method, steps)
    now = jnp.clip(epoch, 0, len(table[0]) - 1)
    return tuple(jnp.asarray(column)[now] for column in table)


def is_one(epoch: Any) -> Any:
    """Return whether a traced epoch or step is one, which the table cannot say: bool, or True."""
    return epoch >= 0 if isinstance(epoch, jax.core.Tracer) else True


def _table(method: Method, steps: int) -> list[Any]:
    """Return a column for each number, with a row per step until all schedules have settled."""
    last = math.ceil(method.horizon * steps)
    if last > MOST_STEPS:
        raise ValueError(
            f"steps_per_epoch: must let schedules settle within {MOST_STEPS} steps, got "
            f"{method.horizon:g} epochs of {steps}; try fewer, or pass method.at(t) to jit"
        )
    return method.at_each(np.arange(last + 1) / steps)


def _given(method: Method, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the numbers that the user gave, or raise ValueError if they are not `method.at`'s."""
    usual = method.at(0)
    if len(given) != len(usual):
        raise ValueError(
            f"epoch: must be method.at(t), which has length {len(usual)}, or a number t, "
            f"got length {len(given)}; try method.at(t)"
        )
    for number, like in zip(given, usual, strict=True):
        if not isinstance(number, Real) and not _is_numeric(number):
            raise ValueError(
                f"epoch: must be method.at(t), numbers like {usual}, got {number!r} for {like!r}; "
                "try method.at(t)"
            )
        counts = jnp.issubdtype(jnp.result_type(number), jnp.integer)
        if jnp.shape(number) != () or (isinstance(like, int) and not counts):
            kind = f"{jnp.result_type(number)}{list(jnp.shape(number))}"
            raise ValueError(
                f"epoch: must be method.at(t), numbers like {usual}, got {kind} for {like!r}; "
                "try an array for each number, integers for integers"
            )
    return given


def _is_numeric(array: Any) -> bool:
    return jnp.issubdtype(getattr(array, "dtype", object), jnp.number)
