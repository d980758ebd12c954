"""JAX's names for the step, as `sigua.step.numpy_names` lists them, for logits (n, k).

Explicitly sharded columns are whole when sorted or looked up in; a lookup is sharded as its index.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jax import Array
from jax import numpy as jnp
from jax.lax import stop_gradient  # noqa: F401  # one of the names, as these are
from jax.numpy import abs, all, cumsum, log, maximum, minimum, reshape, roll, stack, sum, where  # noqa: F401
from jax.numpy import concatenate as concat  # noqa: F401
from jax.sharding import NamedSharding, PartitionSpec

TYPED = hasattr(jax, "reshard")  # older versions place what is sorted or looked up

along = partial(jnp.take_along_axis, axis=1)
class_argmax = partial(jnp.argmax, axis=1)
class_max = partial(jnp.max, axis=1)
class_sum = partial(jnp.sum, axis=1)
expand = partial(jnp.expand_dims, axis=1)
floor = jnp.maximum
integers = partial(jnp.asarray, dtype=jnp.int32)
last = partial(jnp.nan_to_num, nan=jnp.inf, posinf=jnp.inf, neginf=-jnp.inf)
log_softmax = partial(jax.nn.log_softmax, axis=1)
logsumexp = partial(jax.nn.logsumexp, axis=1)
softmax = partial(jax.nn.softmax, axis=1)


def are_small(x: Array, limit: float) -> bool:
    return False


def cast(x: Array, like: Array) -> Array:
    return x.astype(like.dtype)


def constant(array: Any, like: Array) -> Array:
    return jnp.asarray(array, like.dtype)


def index(array: Any, like: Array) -> Array:
    return jnp.asarray(array, jnp.int32)


def full_labels(x: Array, label: int) -> Array:
    return jnp.full_like(x[:, 0], label, jnp.int32)


def cross_entropy(z: Array, y: Array) -> Array:
    return -at(log_softmax(z), y)


def at(x: Array, y: Array) -> Array:
    return along(x, y[:, None])[:, 0]


def without(x: Array, y: Array) -> Array:
    return where(y[:, None] == jnp.arange(x.shape[1])[None], -jnp.inf, x)


def take(x: Array, index: Array) -> Array:
    return _whole(x).at[index].get(**_sharded_as(index))


rows = take


def per_class(c: Array, x: Array) -> Array:
    return c.astype(x.dtype)[None]


def columns(x: Array, indices: Array) -> Array:
    return x.at[:, indices].get(**_sharded_as(x))


def matmul(matrix: Array, x: Array) -> Array:
    # By default, accelerators round the factors.
    return jnp.matmul(x, matrix.T, precision=jax.lax.Precision.HIGHEST)


def sums_by(values: Array, groups: Array, number: int) -> Array:
    return jnp.zeros(number, values.dtype).at[_whole(groups)].add(_whole(values))


def sort(x: Array) -> Array:
    return jnp.sort(_whole(x))


def argsort(x: Array) -> Array:
    return jnp.argsort(_whole(x), stable=True)


def nth(ordered: Array, count: Any, size: Any) -> Array:
    # For two counts, XLA sorts once.
    return take(jnp.append(-jnp.inf, ordered), minimum(count, size))


def or_one(number: Any) -> Array:
    return where(number == 0, 1, number)


def _sharded_as(array: Array) -> dict[str, Any]:
    return {"out_sharding": jax.typeof(array).sharding} if TYPED else {}


def _whole(column: Array) -> Array:
    """Return a column that is not sharded: JAX cannot sort along an explicitly sharded axis."""
    if not TYPED or jax.typeof(column).sharding.mesh.empty:
        return column
    whole = NamedSharding(jax.typeof(column).sharding.mesh, PartitionSpec())  # type: ignore[no-untyped-call]  # JAX's
    return jnp.asarray(jax.reshard(column, whole))  # type: ignore[no-untyped-call]  # JAX's
