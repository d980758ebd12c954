"""What tests of JAX call that has moved between its versions."""

import jax
from jax import experimental


def in_64_bits():
    """Return a context in which JAX keeps float64."""
    return (jax if hasattr(jax, "enable_x64") else experimental).enable_x64(True)
