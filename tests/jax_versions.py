"""What tests of JAX call that has moved between its versions, or is not as in the tests."""

import os

import jax
from jax import experimental


def in_64_bits():
    """Return a context in which JAX keeps float64."""
    return (jax if hasattr(jax, "enable_x64") else experimental).enable_x64(True)


def as_users_do(function, *arguments):
    """Return what a function returns that is compiled with all of XLA's optimisations."""
    options = {
        "xla_backend_optimization_level": 3,
        "xla_llvm_disable_expensive_passes": False,
        "xla_cpu_use_fusion_emitters": True,
    }
    quick = "xla_cpu_use_fusion_emitters" in os.environ.get("XLA_FLAGS", "")  # see conftest.py
    lowered = jax.jit(function).lower(*arguments)
    return lowered.compile(options if quick else None)(*arguments)
