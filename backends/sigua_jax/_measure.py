"""The loss per example, plain."""

from __future__ import annotations

from jax import Array
from jax import numpy as jnp


def at_label(log_p: Array, labels: Array) -> Array:
    """Return the cross-entropy at the label, (n,)."""
    return -jnp.take_along_axis(log_p, labels[:, None], -1)[:, 0]
