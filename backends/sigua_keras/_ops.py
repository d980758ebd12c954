"""Keras's names for the step (`sigua.step.numpy_names` says what each one does)."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops
from keras.ops import (
    abs,
    all,
    argsort,
    cumsum,
    exp,
    log,
    maximum,
    minimum,
    reshape,
    roll,
    sort,
    stack,
    stop_gradient,
    sum,
    where,
)

__all__ = ["abs", "all", "argsort", "cumsum", "exp", "log", "maximum", "minimum", "reshape", "roll"]
__all__ += ["sort", "stack", "stop_gradient", "sum", "where"]

Tensor = Any
INF = float("inf")
INTEGER = "int32" if keras.config.backend() == "jax" else "int64"
"""Of counts: 64 bits, in which a rate becomes a count by one product, except on JAX."""


def cast(x: Tensor, like: Tensor) -> Tensor:
    return ops.cast(x, like.dtype)


def integers(mask: Tensor) -> Tensor:
    return ops.cast(mask, INTEGER)


def constant(array: Any, like: Tensor) -> Tensor:
    return ops.convert_to_tensor(array, dtype="float32")


def index(array: Any, like: Tensor) -> Tensor:
    return ops.convert_to_tensor(array, dtype="int32")


def class_sum(x: Tensor) -> Tensor:
    return ops.sum(x, 1)


def class_max(x: Tensor) -> Tensor:
    return ops.max(x, 1)


def class_argmax(x: Tensor) -> Tensor:
    return ops.argmax(x, 1)


def softmax(z: Tensor) -> Tensor:
    return ops.softmax(z, 1)


def log_softmax(z: Tensor) -> Tensor:
    return ops.log_softmax(z, 1)


def logsumexp(x: Tensor) -> Tensor:
    return ops.logsumexp(x, 1)


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    return -at(ops.log_softmax(z, 1), y)


def at(x: Tensor, y: Tensor) -> Tensor:
    return ops.squeeze(ops.take_along_axis(x, ops.expand_dims(y, 1), 1), 1)


def without(x: Tensor, y: Tensor) -> Tensor:
    classes = ops.reshape(ops.arange(x.shape[1], dtype=y.dtype), (-1, *[1] * (len(x.shape) - 2)))
    return ops.where(ops.expand_dims(y, 1) == classes, -INF, x)


def along(x: Tensor, columns: Tensor) -> Tensor:
    return ops.take_along_axis(x, columns, 1)


def columns(x: Tensor, indices: Tensor) -> Tensor:
    return ops.take(x, indices, axis=1)


def rows(table: Tensor, y: Tensor) -> Tensor:
    found = ops.take(table, y, axis=0)
    return found if len(y.shape) == 1 else ops.moveaxis(found, -1, 1)


def take(x: Tensor, index: Tensor) -> Tensor:
    return ops.take(x, index, axis=0)


def per_class(c: Tensor, x: Tensor) -> Tensor:
    return ops.reshape(ops.cast(c, x.dtype), (-1, *[1] * (len(x.shape) - 2)))


def expand(x: Tensor) -> Tensor:
    return ops.expand_dims(x, 1)


def matmul(matrix: Tensor, x: Tensor) -> Tensor:
    return ops.moveaxis(ops.matmul(ops.moveaxis(x, 1, -1), ops.transpose(matrix)), -1, 1)


def full_labels(x: Tensor, label: int) -> Tensor:
    return ops.full_like(x[:, 0], label, dtype="int32")


def floor(z: Tensor, low: float) -> Tensor:
    return ops.maximum(z, low)


def sums_by(values: Tensor, groups: Tensor, number: int | None) -> Tensor:
    number = ops.shape(values)[0] + 1 if number is None else number  # unknown on TensorFlow
    return ops.segment_sum(values, groups, num_segments=number)


def last(losses: Tensor) -> Tensor:
    return ops.where(ops.isnan(losses), INF, losses)  # backends sort NaN to different places


def nth(ordered: Tensor, count: Any, size: Any) -> Tensor:
    # No top-k, and no slice: a count that follows a schedule has no static shape.
    count = ops.minimum(count, size)
    return ops.where(count == 0, -INF, ops.take(ordered, ops.maximum(count - 1, 0)))


def or_one(number: Tensor) -> Tensor:
    return ops.where(number == 0, ops.ones_like(number), number)
