"""Keras's names for the step: what each does is said by `sigua.step.numpy_names`.

Logits are (N, k) here, a row for each example or place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import keras
from keras import ops

from sigua.step import numpy_names

Tensor = Any
INF = float("inf")
INTEGER = "int32" if keras.config.backend() == "jax" else "int64"
"""Of counts: 64 bits, in which a rate becomes a count by one product, except on JAX."""

abs, log = ops.abs, ops.log
maximum, minimum, floor = ops.maximum, ops.minimum, ops.maximum
sum, cumsum, all, where = ops.sum, ops.cumsum, ops.all, ops.where
sort, argsort, roll, stop_gradient = ops.sort, ops.argsort, ops.roll, ops.stop_gradient
reshape, stack, concat = ops.reshape, ops.stack, ops.concatenate
integers = partial(ops.cast, dtype=INTEGER)
class_sum = partial(ops.sum, axis=1)
class_max = partial(ops.max, axis=1)
class_argmax = partial(ops.argmax, axis=1)
softmax = partial(ops.softmax, axis=1)
log_softmax = partial(ops.log_softmax, axis=1)
logsumexp = partial(ops.logsumexp, axis=1)
expand = partial(ops.expand_dims, axis=1)
along = partial(ops.take_along_axis, axis=1)
columns = partial(ops.take, axis=1)
rows = take = partial(ops.take, axis=0)


def are_small(x: Tensor, limit: float) -> bool:
    return False


def cast(x: Tensor, like: Tensor) -> Tensor:
    return ops.cast(x, like.dtype)


def constant(array: Any, like: Tensor) -> Tensor:
    return ops.convert_to_tensor(array, dtype="float32")


def index(array: Any, like: Tensor) -> Tensor:
    return ops.convert_to_tensor(array, dtype="int32")


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    return -at(log_softmax(z), y)


def at(x: Tensor, y: Tensor) -> Tensor:
    return ops.squeeze(along(x, expand(y)), 1)


def without(x: Tensor, y: Tensor) -> Tensor:
    return ops.where(expand(y) == ops.arange(x.shape[1], dtype=y.dtype), -INF, x)


def per_class(c: Tensor, x: Tensor) -> Tensor:
    return ops.cast(c, x.dtype)


def matmul(matrix: Tensor, x: Tensor) -> Tensor:
    return ops.matmul(x, ops.transpose(matrix))


def full_labels(x: Tensor, label: int) -> Tensor:
    return ops.full_like(x[:, 0], label, dtype="int32")


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
    return ops.where(number == 0, 1.0, number)


class View(NamedTuple):
    """How a selection, which has no gradient, looks at tensors."""

    names: Any
    """Of the step: Keras's, or NumPy's."""
    see: Callable[[Any], Any]


TENSORS = View(sys.modules[__name__], lambda x: x)
ARRAYS = View(numpy_names, lambda x: None if x is None else ops.convert_to_numpy(x))


def view_of(x: Tensor, eager: bool) -> View:
    """Return how to look at a step: by NumPy where PyTorch's tensors are in memory and eager."""
    return ARRAYS if eager and getattr(x, "is_cpu", False) else TENSORS
