"""`sigua.Batch` in `keras.ops`, and the signed weights: on the device, in every tracing mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras import ops

from sigua import Split

Tensor = Any
INF = float("inf")


class Batch:
    """What a rule may ask about the mini-batch.

    Args:
        losses: float32, shape (n,), without gradient.
        takes_part: bool, shape (n,); an example that takes no part has no rank.
        trusted: bool, shape (n,), or None.
        class_sums: returns 1'T^-1 l, float32, shape (n,).
    """

    def __init__(
        self,
        losses: Tensor,
        takes_part: Tensor,
        trusted: Tensor | None = None,
        class_sums: Callable[[], Tensor] | None = None,
    ) -> None:
        self.losses = ops.where(takes_part, losses, INF)
        self.size = ops.sum(ops.cast(takes_part, "int32"))
        self.trusted = trusted
        self._class_sums = class_sums
        self._ordered: Tensor = None

    def smallest(self, count: Tensor) -> Tensor:
        if self._ordered is None:
            # No top-k: a k that follows a schedule has no static shape. NaN sorts differently from
            # backend to backend, so it is made +inf here; its own loss stays NaN.
            ordered = ops.sort(ops.where(ops.isnan(self.losses), INF, self.losses))
            lowest = ops.full((1,), -INF, dtype=ordered.dtype)
            self._ordered = ops.concatenate([lowest, ordered])
        return ops.take(self._ordered, ops.minimum(count, self.size))

    def mean(self) -> Tensor:
        finite = ops.where(self.losses == INF, 0.0, self.losses)  # NaN stays
        return ops.sum(finite) / ops.cast(ops.maximum(self.size, 1), finite.dtype)

    def class_sums(self) -> Tensor:
        assert self._class_sums is not None
        return self._class_sums()


def signed_weights(split: Split, gamma: Tensor, size: Tensor, separate: bool) -> Tensor:
    """Return good - gamma * bad, float32, shape (n,); see `sigua.signed_weights`."""
    good = ops.cast(split.good, "float32")
    bad = ops.cast(split.bad, "float32")
    if separate:
        n = ops.cast(size, "float32")
        good = good * (n / ops.maximum(ops.sum(good), 1.0))
        bad = bad * (n / ops.maximum(ops.sum(bad), 1.0))
    return ops.stop_gradient(good - gamma * bad)
