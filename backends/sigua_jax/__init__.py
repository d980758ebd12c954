"""SIGUA for JAX: pure functions, for Flax, Optax, or a training step of your own."""

try:
    import jax as _jax  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    message = "sigua_jax needs JAX, which is not installed: pip install 'sigua[jax]'"
    raise ModuleNotFoundError(message, name="jax") from error

from sigua.step import CrossEntropy
from sigua_jax._confidence import init_confidence, update_confidence
from sigua_jax._examples import two_way
from sigua_jax.loss import corrected_losses, select, sigua_loss

__all__ = [
    "CrossEntropy",
    "corrected_losses",
    "init_confidence",
    "select",
    "sigua_loss",
    "two_way",
    "update_confidence",
]
