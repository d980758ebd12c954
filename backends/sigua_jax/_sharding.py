"""Shardings that are part of an array's type, where JAX has such."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

TYPED = hasattr(jax, "reshard")
"""Whether it has: older versions place the results of lookups and sorts by themselves."""


def sharded_as(array: Array) -> dict[str, Any]:
    """Return the argument of `.at[...].get` and `.add` by which the result is sharded so."""
    return {"out_sharding": jax.typeof(array).sharding} if TYPED else {}


def replicated(column: Array) -> Array:
    """Return a column that is not sharded: JAX cannot sort along an explicitly sharded axis."""
    mesh = jax.typeof(column).sharding.mesh if TYPED else None
    if mesh is None or mesh.empty:
        return column
    whole: Array = jax.reshard(column, NamedSharding(mesh, PartitionSpec()))  # type: ignore[no-untyped-call]  # JAX's
    return whole
