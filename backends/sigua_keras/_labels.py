"""Which labels are classes: an example whose label is not a class takes no part.

For some such labels Keras raises on some backends, and on others computes a loss of 0, which would
be the smallest of all.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from sigua_keras._measure import Loss, Tensor, is_dense, num_classes

_OF_CLASSES = (
    keras.losses.sparse_categorical_crossentropy,
    keras.losses.categorical_crossentropy,
    keras.losses.categorical_focal_crossentropy,
    keras.losses.categorical_generalized_cross_entropy,
)
_NARROW = ("bool", "int8", "uint8", "int16", "uint16")
_BINARY = (keras.losses.binary_crossentropy, keras.losses.binary_focal_crossentropy)


def _function(loss: Loss) -> Any:
    return getattr(loss, "fn", loss)  # Keras's loss objects wrap its functions


def is_several(loss: Loss, y_pred: Tensor) -> bool:
    """Return whether a row holds several labels, each with a sigmoid of its own."""
    return y_pred.shape[-1] != 1 and _function(loss) in _BINARY


def without_class(
    loss: Loss, y_true: Tensor, y_pred: Tensor, one_class: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the labels, with some class for those that are not one, and a mask, bool, (n,).

    The mask is True for labels that are a class. It is None where any label is allowed: in a
    regression, and for a loss that is not known.

    Args:
        loss: a loss object or function.
        y_true: labels: (n,), (n, 1) or (n, k).
        y_pred: predictions, (n, k) or (n, 1).
        one_class: whether a class per example is needed, whatever the loss.
    """
    y_true = ops.convert_to_tensor(y_true)
    if keras.backend.standardize_dtype(y_true.dtype) in _NARROW:  # k may lie outside
        y_true = ops.cast(y_true, "int32")
    function = _function(loss)
    binary = function in _BINARY
    classes = one_class or function in _OF_CLASSES or getattr(loss, "of_classes", False)
    if not (binary or classes):
        return y_true, None
    if is_dense(y_true, y_pred):
        if binary and not one_class:
            known = ops.all((y_true >= 0) & (y_true <= 1), axis=-1)
        else:  # NaN is neither
            known = ops.all(y_true >= 0, axis=-1) & ops.any(y_true > 0, axis=-1)
        return ops.where(known[..., None], y_true, 1), known
    column = len(y_true.shape) == len(y_pred.shape)
    if column and y_true.shape[-1] != 1:
        return y_true, None  # the loss itself will refuse these
    known = (y_true >= 0) & (y_true <= num_classes(y_pred) - 1)
    if y_pred.shape[-1] != 1 and keras.backend.is_float_dtype(y_true.dtype):
        known = known & (y_true == ops.floor(y_true))  # of one unit the label is p(1)
    y_true = ops.where(known, y_true, 0)
    return y_true, ops.squeeze(known, -1) if column else known


def without_ignored(loss: Loss, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the labels, with 0 for those of the loss's `ignore_class`, and a mask, bool, (n,).

    The mask is True for the others; None if no class is ignored.
    """
    ignored = getattr(loss, "ignore_class", None)
    if ignored is None or is_dense(y_true, y_pred):
        return y_true, None
    y_true = ops.convert_to_tensor(y_true)
    kept = y_true != ignored
    column = len(y_true.shape) == len(y_pred.shape)
    return ops.where(kept, y_true, 0), ops.squeeze(kept, -1) if column else kept


def holds_several(y_true: Tensor, y_pred: Tensor) -> Tensor | None:
    """Return which rows hold more than one class, bool, (n,); None if labels are indices."""
    if not is_dense(y_true, y_pred):
        return None
    return ops.sum(ops.cast(y_true, "float32"), axis=-1) > 1.02
