"""`sigua.Batch` on arrays of JAX: the order statistic and the mean that the rules ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from sigua.conditions import no_margins


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

    def margins(self, by_class: bool = True) -> Array:
        raise no_margins()
