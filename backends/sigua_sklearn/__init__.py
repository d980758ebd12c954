"""SIGUA as a scikit-learn estimator: `SIGUAClassifier().fit(X, y)`, on labels partly wrong."""

try:
    import torch as _torch  # noqa: F401, I001  # first: scikit-learn looks whether it is there
    import sklearn as _sklearn  # noqa: F401
except ModuleNotFoundError as error:
    if error.name not in ("sklearn", "torch"):
        raise
    missing = "PyTorch" if error.name == "torch" else "scikit-learn"
    message = f"sigua_sklearn needs {missing}, which is not installed: pip install 'sigua[sklearn]'"
    raise ModuleNotFoundError(message, name=error.name) from error

from sigua_sklearn.classifier import SIGUAClassifier
from sigua_sklearn.pruned import PrunedClassifierCV

__all__ = ["PrunedClassifierCV", "SIGUAClassifier"]
