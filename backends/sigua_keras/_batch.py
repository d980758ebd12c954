"""`sigua.Batch` in `keras.ops`, and the signed weights: on the device, in every tracing mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from sigua import Split
from sigua.conditions import no_class_sums, no_margins

Tensor = Any
INF = float("inf")
INTEGER = "int32" if keras.config.backend() == "jax" else "int64"
"""Of counts: 64 bits, in which a rate becomes a count by one product, except on JAX."""


class Batch:
    """`sigua.Batch` in `keras.ops`: what a rule may ask about the mini-batch.

    Args:
        losses: float32, shape (n,), without gradient.
        takes_part: bool, shape (n,); an example that takes no part has no rank.
        size: how many take part, of dtype `INTEGER`.
        trusted: bool, shape (n,), or None.
        class_sums: returns 1'T^-1 l, float32, shape (n,).
        margins: returns the margins, float32, shape (n,), by class or not.
    """

    def __init__(
        self,
        losses: Tensor,
        takes_part: Tensor,
        size: Tensor,
        trusted: Tensor | None = None,
        class_sums: Callable[[], Tensor] | None = None,
        margins: Callable[[bool], Tensor] | None = None,
    ) -> None:
        self.losses = ops.where(takes_part, losses, INF)
        self.size = size
        self.trusted = trusted
        self._class_sums, self._margins = class_sums, margins
        self._ordered: Tensor = None

    def smallest(self, count: Tensor) -> Tensor:
        if self._ordered is None:
            # No top-k: a k that follows a schedule has no static shape. Backends sort NaN
            # differently, so it is made +inf here; the loss itself stays NaN.
            ordered = ops.sort(ops.where(ops.isnan(self.losses), INF, self.losses))
            lowest = ops.full((1,), -INF, dtype=ordered.dtype)
            self._ordered = ops.concatenate([lowest, ordered])
        return ops.take(self._ordered, ops.minimum(count, self.size))

    def mean(self) -> Tensor:
        counted = self.losses != INF  # NaN stays
        total = ops.sum(ops.where(counted, self.losses, 0.0))
        return total / _at_least_1(ops.sum(ops.cast(counted, "int32")), total.dtype)

    def class_sums(self) -> Tensor:
        if self._class_sums is None:
            raise no_class_sums()
        return self._class_sums()

    def margins(self, by_class: bool = True) -> Tensor:
        if self._margins is None:
            raise no_margins()
        return self._margins(by_class)


class GroupBatch(Batch):
    """A batch in which each group is judged alone: sizes, thresholds and means have shape (n,).

    Args:
        groups: int32, shape (n,), in [0, count); count * n must stay below 2^31.
        count: how many groups there are.
        *args: of `Batch`.
    """

    def __init__(self, groups: Tensor, count: Any, *args: Any) -> None:
        super().__init__(*args)
        self.groups, self._count = groups, count
        self.size = ops.take(self._sums(ops.cast(args[1], INTEGER)), groups)

    def _sums(self, values: Tensor) -> Tensor:
        return ops.segment_sum(values, self.groups, num_segments=self._count)

    def smallest(self, count: Tensor) -> Tensor:
        if self._ordered is None:
            losses = ops.where(ops.isnan(self.losses), INF, self.losses)
            order = ops.cast(ops.argsort(losses), "int32")
            n = ops.shape(losses)[0]
            # Sorted by group, then by loss. Not every backend has a stable sort, so the rank is
            # part of the key.
            keys = ops.take(self.groups, order) * n + ops.arange(n, dtype="int32")
            self._ordered = ops.take(losses, ops.take(order, ops.sort(keys) % n))
            members = self._sums(ops.ones_like(self.groups))
            self._start = ops.take(ops.cumsum(members) - members, self.groups)
        count = ops.cast(ops.minimum(count, self.size), "int32")
        place = ops.maximum(self._start + count - 1, 0)
        return ops.where(count == 0, -INF, ops.take(self._ordered, place))

    def mean(self) -> Tensor:
        counted = self.losses != INF
        totals = self._sums(ops.where(counted, self.losses, 0.0))
        counts = self._sums(ops.cast(counted, "int32"))
        return ops.take(totals / _at_least_1(counts, totals.dtype), self.groups)


def _at_least_1(counts: Tensor, dtype: Any) -> Tensor:
    return ops.cast(ops.maximum(counts, 1), dtype)


def signed_weights(split: Split, gamma: Tensor, size: Tensor, separate: bool) -> Tensor:
    """Return good - gamma * bad, float32, shape (n,); see `sigua.signed_weights`."""
    good = ops.cast(split.good, "float32")
    bad = ops.cast(split.bad, "float32")
    if separate:
        n = ops.cast(size, "float32")
        good = good * (n / ops.maximum(ops.sum(good), 1.0))
        bad = bad * (n / ops.maximum(ops.sum(bad), 1.0))
    return ops.stop_gradient(good - gamma * bad)
