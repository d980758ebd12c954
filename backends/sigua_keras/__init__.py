"""SIGUA for Keras 3, on TensorFlow, JAX or PyTorch: one callback for `model.fit`."""

try:
    import keras as _keras  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "keras":  # keras is there, and it is its backend that is not
        raise
    message = "sigua_keras needs Keras 3, which is not installed: pip install 'sigua[keras]'"
    raise ModuleNotFoundError(message, name="keras") from error

from sigua_keras._objective import corrected_losses, select
from sigua_keras.callback import SIGUA
from sigua_keras.checked import with_checked
from sigua_keras.diagnostics import LabelWatch
from sigua_keras.model import SIGUAModel

__all__ = ["SIGUA", "LabelWatch", "SIGUAModel", "corrected_losses", "select", "with_checked"]
