"""Arguments as arrays of JAX, or a sentence on what is wrong with them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from sigua import Method, Split
from sigua.conditions import reads


def array(name: str, value: Any) -> Array:
    """Return a JAX array, or raise ValueError on values that JAX refuses or would wrap around."""
    if np.ma.is_masked(value):
        raise ValueError(
            f"{name}: must have no masked entries, got {int(np.ma.getmaskarray(value).sum())} of "
            f"them; try {name}.filled(...) with where=, or leaving those examples out"
        )
    try:
        words = any(isinstance(leaf, str) for leaf in jax.tree.leaves(value))
        found: Array = jnp.asarray(None if words else value)  # JAX may take words for dtypes
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise ValueError(
            f"{name}: must be a NumPy or JAX array of numbers, in the machine's byte order, got "
            f"{getattr(value, 'dtype', type(value).__name__)}; try np.asarray(...), or astype(...)"
        ) from None
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size:
        limits: Any = np.iinfo(found.dtype)
        low, high = int(value.min()), int(value.max())
        if low < limits.min or high > limits.max:
            raise ValueError(
                f"{name}: must fit in {found.dtype}, got {low} to {high}; "
                "try smaller numbers, or jax_enable_x64"
            )
    return found


def per_example(name: str, value: Any, shape: tuple[int, ...], kind: Any, advice: str) -> Array:
    """Return an array with an entry per example, or raise ValueError on another shape or dtype."""
    found = array(name, value)
    if found.shape != shape or not is_kind(found, kind):
        raise ValueError(
            f"{name}: must be {kind.__name__}{shape}, one per example, got {written(found)}; "
            f"try {advice}"
        )
    return found


def mask(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    return per_example(name, value, shape, jnp.bool_, "astype(bool), or reshape")


def marks(method: Method, value: Any, shape: tuple[int, ...]) -> Any:
    """Return `trusted` as arrays: a mask, a `Split` of two masks, or None.

    Raises:
        ValueError: marks that the method does not read, or of another shape or dtype.
    """
    if value is not None and not reads(method.condition, "trusted"):
        raise ValueError(
            "trusted: must be None unless the condition is Known or a rule of your own that reads "
            f"it, got it for {method!r}; try leaving it out, or sigua.Known()"
        )
    if isinstance(value, Split):
        return Split(*(mask("trusted", part, shape) for part in value))
    return None if value is None else mask("trusted", value, shape)


def is_kind(found: Array, kind: Any) -> bool:
    return bool(jnp.issubdtype(found.dtype, kind))


def readable(found: Any) -> bool:
    return not isinstance(found, jax.core.Tracer)


def nan_unless(right: Any) -> Any:
    """Return a factor: 1, or NaN where what is traced turns out to be wrong."""
    return 1.0 if right is True else jnp.where(right, 1.0, jnp.nan)


def written(found: Array) -> str:
    """Return dtype and shape, such as float32(6, 10)."""
    return f"{found.dtype}{found.shape}"
