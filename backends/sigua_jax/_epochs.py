"""The epoch's numbers, for an epoch that is known, traced or counted in steps, or given as such."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import numpy as jnp

from sigua import Method, checks
from sigua_jax._examples import nan_unless, readable

MOST_STEPS = 1_000_000


def numbers(method: Method, epoch: Any, steps_per_epoch: Any) -> tuple[tuple[Any, ...], Any]:
    """Return `method.at(epoch)`, and a factor: 1, or NaN for a traced epoch that is negative."""
    if isinstance(epoch, tuple):
        if steps_per_epoch is not None:
            raise ValueError(
                "steps_per_epoch: must be left out with method.at(t), got both; "
                "try method.at(step / steps_per_epoch)"
            )
        return _given(method, epoch), 1.0
    counted = steps_per_epoch is not None
    steps = checks.whole("steps_per_epoch", steps_per_epoch, 1, "try 500") if counted else 1
    if hasattr(epoch, "shape") and epoch.shape != ():
        raise ValueError(f"epoch: must be one number, got shape {epoch.shape}; try jax.vmap")
    if not readable(epoch):
        table = _table(method, epoch.dtype, steps)
        now = jnp.clip(epoch, 0, len(table[0]) - 1)
        return tuple(jnp.asarray(column)[now] for column in table), nan_unless(epoch >= 0)
    epoch = epoch.item() if hasattr(epoch, "item") else epoch
    if counted:
        epoch = checks.whole("epoch", epoch, 0, "try a number of steps") / steps
    return method.at(epoch), 1.0


def _table(method: Method, dtype: Any, steps: int) -> list[Any]:
    """Return a column for each number, with a row per step until all schedules have settled."""
    if not jnp.issubdtype(dtype, jnp.integer) or method.horizon == math.inf:
        raise ValueError(
            "epoch: must be an integer if it is traced by jit, and every schedule must settle, "
            f"got {dtype} for {method!r}; "
            "try counting steps, with steps_per_epoch=, or pass method.at(t) to jit"
        )
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
    if len(given) != len(usual) or not all(map(_alike, given, usual)):
        raise ValueError(
            f"epoch: must be method.at(t), {len(usual)} numbers like {usual}, or a number t, "
            f"got {given}; try method.at(t)"
        )
    return given


def _alike(number: Any, usual: float) -> bool:
    kind = number.dtype if hasattr(number, "dtype") else type(number)
    wanted = jnp.integer if isinstance(usual, int) else jnp.number  # counts stay exact
    return bool(jnp.issubdtype(kind, wanted)) and np.shape(number) == ()
