"""SIGUA for JAX: pure functions, for Flax, Optax, or a training step of your own."""

try:
    import jax as _jax  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    message = "sigua_jax needs JAX, which is not installed: pip install 'sigua[jax]'"
    raise ModuleNotFoundError(message, name="jax") from error

from sigua_jax._margins import init_confidence, update_confidence
from sigua_jax._measure import cross_entropy
from sigua_jax.loss import sigua_loss, sigua_split

__all__ = ["cross_entropy", "init_confidence", "sigua_loss", "sigua_split", "update_confidence"]
