"""NumPy's names for the step, and the list of what a backend supplies under these names.

Logits and losses against each class have shape (N, k, ...), labels y (N, ...): integers in [0, k).
Columns have shape (n,), an entry per example. A count is an integer, or a 0-d integer tensor.

Of entries: `abs`, `log`, `where`; `maximum` and `minimum`, whose second may be a number.
Of shapes: `stack`, `concat` (of rows), `roll`, `cumsum`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import abs, all, cumsum, log, maximum, minimum, roll, stack, where
from numpy import concatenate as concat

__all__ = ["abs", "all", "concat", "cumsum", "log", "maximum", "minimum", "roll", "stack", "where"]

Array = Any


def stop_gradient(x: Array) -> Array:
    """Return the values without their gradient."""
    return x


def cast(x: Array, like: Array) -> Array:
    """Return x in the dtype of `like`."""
    return x.astype(like.dtype)


def integers(mask: Array) -> Array:
    """Return a mask as 0 and 1, in the integers in which examples are counted."""
    return mask.astype(np.int64)


def constant(array: Any, like: Array) -> Array:
    """Return an array of NumPy in the dtype, and on the device, of `like`."""
    return np.asarray(array, like.dtype)


def index(array: Any, like: Array) -> Array:
    """Return integers of NumPy as indices, on the device of `like`."""
    return np.asarray(array)


def reshape(x: Array, shape: tuple[int, ...]) -> Array:
    """Return x in another shape."""
    return x.reshape(shape)


def class_sum(x: Array) -> Array:
    """Return the sum over classes."""
    return np.add.reduce(x, 1)  # what x.sum(1) arrives at


def class_max(x: Array) -> Array:
    """Return the maximum over classes."""
    return np.maximum.reduce(x, 1)


def class_argmax(x: Array) -> Array:
    """Return the class with the maximum, (N, ...)."""
    return x.argmax(1)


def softmax(z: Array) -> Array:
    """Return p, over classes."""
    p = np.exp(z - z.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def log_softmax(z: Array) -> Array:
    """Return log p, over classes."""
    z = z - z.max(1, keepdims=True)
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def logsumexp(x: Array) -> Array:
    """Return log sum exp over classes, (N, ...)."""
    largest = x.max(1, keepdims=True)
    return (np.log(np.exp(x - largest).sum(1, keepdims=True)) + largest)[:, 0]


def cross_entropy(z: Array, y: Array) -> Array:
    """Return -log p at the labels, (N, ...)."""
    return -at(log_softmax(z), y)


def at(x: Array, y: Array) -> Array:
    """Return the entries at the labels, (N, ...)."""
    if x.ndim == 2:
        return x[np.arange(len(x)), y]
    return np.take_along_axis(x, y[:, None], 1)[:, 0]


def without(x: Array, y: Array) -> Array:
    """Return x with -inf at the labels."""
    x = x.copy("K")
    if x.ndim == 2:
        x[np.arange(len(x)), y] = -np.inf
    else:
        np.put_along_axis(x, y[:, None], -np.inf, 1)
    return x


def along(x: Array, columns: Array) -> Array:
    """Return the entries of (N, k, ...) at columns (N, m, ...)."""
    return np.take_along_axis(x, columns, 1)


def columns(x: Array, indices: Array) -> Array:
    """Return the columns of (N, k, ...) at indices (m,): (N, m, ...)."""
    return x[:, indices]


def rows(table: Array, y: Array) -> Array:
    """Return the rows of a table (k, m) at the labels: (N, m, ...)."""
    return np.moveaxis(table[y], -1, 1)


def take(x: Array, index: Array) -> Array:
    """Return the entries, or rows, of x at an index of any shape."""
    return x[index]


def per_class(c: Array, x: Array) -> Array:
    """Return (k,), in the dtype of x, so that it broadcasts against x, (N, k, ...)."""
    return c.astype(x.dtype).reshape(-1, *[1] * (x.ndim - 2))


def expand(x: Array) -> Array:
    """Return (N, ...) as (N, 1, ...)."""
    return x[:, None]


def matmul(matrix: Array, x: Array) -> Array:
    """Return a matrix (k, k) times each vector of (N, k, ...)."""
    return np.moveaxis(np.moveaxis(x, 1, -1) @ matrix.T, -1, 1)


def full_labels(x: Array, label: int) -> Array:
    """Return the same label for all examples of (N, k, ...): (N, ...)."""
    return np.full(x[:, 0].shape, label)


def floor(z: Array, low: float) -> Array:
    """Return the maximum of logits and a number; NaN stays."""
    return np.maximum(z, low)


def are_small(x: Array, limit: float) -> bool:
    """Return whether it is known that no entry is beyond the limit, of either sign, or NaN.

    False where no value can be read.
    """
    return bool(np.vdot(x, x) <= limit * limit)


def sum(x: Array) -> Array:
    """Return the sum of all entries."""
    return x.sum()


def sums_by(values: Array, groups: Array, number: int) -> Array:
    """Return the sums of values (n,) by group, (number,), for groups in [0, number)."""
    return np.bincount(groups, values, number).astype(values.dtype)


def argsort(x: Array) -> Array:
    """Return the stable order of a column."""
    return np.argsort(x, kind="stable")


def sort(losses: Array) -> Array:
    """Return losses in order, as `nth` takes them."""
    ordered = losses.copy()
    ordered.sort()
    return ordered


def last(losses: Array) -> Array:
    """Return losses in which NaN is sorted after the others, as NumPy does; elsewhere +inf."""
    return losses


def nth(ordered: Array, count: Any, size: Any) -> Any:
    """Return the count-th smallest of sorted losses; -inf for 0, the `size`-th for more."""
    count = min(count, size)
    value = ordered[count - 1] if count > 0 else -np.inf
    return value if value == value else np.inf


def or_one(number: Any) -> Any:
    """Return a denominator, or 1 where it is 0 and so is everything above it."""
    return number if number else 1.0
