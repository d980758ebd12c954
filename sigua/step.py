"""What an adapter is built from: the step, written once over a framework's names.

    losses = corrected_losses(names, method.correction, M, loss, logits, y)   # with gradient
    chosen = select(names, method, numbers, losses without gradient, ...)
    objective = (where(chosen.silent, 0, losses) * chosen.weights).sum() / n                (Eq. 3)

`numpy_names` lists what a backend supplies under these names, and serves arrays of NumPy.
"""

from sigua import _ops as numpy_names
from sigua._measure import (
    CrossEntropy,
    Loss,
    Matrix,
    Own,
    at_label,
    class_sums,
    corrected_losses,
    is_index,
    matrix,
)
from sigua._select import Margins, Selection, select

__all__ = [
    "CrossEntropy",
    "Loss",
    "Margins",
    "Matrix",
    "Own",
    "Selection",
    "at_label",
    "class_sums",
    "corrected_losses",
    "is_index",
    "matrix",
    "numpy_names",
    "select",
]
