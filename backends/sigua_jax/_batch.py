"""`sigua.Batch` on arrays of JAX: the order statistic and the means that rules ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp

from sigua.conditions import no_margins
from sigua_jax._measure import lookup
from sigua_jax._sharding import replicated


@dataclass(eq=False)
class Batch:
    """What a rule may ask about the mini-batch; under `jit`, equal questions are computed once.

    Args:
        losses: float, (n,), without gradient; +inf for examples that take no part.
        size: how many examples take part.
        trusted: bool, (n,), a `Split` of two masks, or None.
        class_sums: returns 1'T^-1 l, (n,).
        measure_margins: returns margins, by class or not; None if the rule reads no margins.
    """

    losses: Array
    size: Any
    trusted: Any
    class_sums: Callable[[], Array]
    measure_margins: Callable[[bool], Array] | None

    def smallest(self, count: Any) -> Array:
        ordered = jnp.sort(jnp.append(replicated(_last(self.losses)), -jnp.inf))
        return ordered[jnp.minimum(count, self.size)]  # for two counts, XLA sorts once

    def mean(self) -> Array:
        counted = self.losses != jnp.inf  # NaN stays
        return jnp.where(counted, self.losses, 0.0).sum() / jnp.maximum(counted.sum(), 1)

    def margins(self, by_class: bool = True) -> Array:
        if self.measure_margins is None:
            raise no_margins()
        return self.measure_margins(by_class)


@dataclass(eq=False)
class ClassBatch(Batch):
    """A batch in which each class is judged alone: sizes, thresholds and means have shape (n,).

    Args:
        where: bool, (n,): which examples take part.
        labels: int32, (n,), in [0, k).
        num_classes: k.
    """

    where: Array
    labels: Array
    num_classes: int

    def __post_init__(self) -> None:
        self.size = self._of(self._sums(self.where.astype(jnp.int32)))

    def smallest(self, count: Any) -> Array:
        pairs = (replicated(self.labels), replicated(_last(self.losses)))
        ordered = jax.lax.sort(pairs, num_keys=2)[1]  # by class, then by loss
        members = self._sums(jnp.ones_like(self.labels))
        start = self._of(members.cumsum() - members)
        count = jnp.minimum(count, self.size)
        return jnp.where(count == 0, -jnp.inf, lookup(ordered, jnp.maximum(start + count - 1, 0)))

    def mean(self) -> Array:
        counted = self.losses != jnp.inf
        totals = self._sums(jnp.where(counted, self.losses, 0.0))
        return self._of(totals / jnp.maximum(self._sums(counted.astype(jnp.int32)), 1))

    def _sums(self, values: Array) -> Array:
        """Return the sum over each class, (k,)."""
        own = self.labels[:, None] == jnp.arange(self.num_classes)
        return jnp.where(own, values[:, None], 0).sum(0)

    def _of(self, per_class: Array) -> Array:
        return lookup(per_class, self.labels)


def _last(losses: Array) -> Array:
    """Return the losses with NaN replaced by +inf, so that both are sorted last."""
    return jnp.where(jnp.isnan(losses), jnp.inf, losses)
