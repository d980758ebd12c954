"""The epoch's numbers, of an epoch that is known, traced, or told by its numbers."""

from __future__ import annotations

from typing import Any

import jax
from jax import numpy as jnp

from sigua import Method, checks


def numbers(method: Method, epoch: Any) -> tuple[Any, ...]:
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
