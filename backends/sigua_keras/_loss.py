"""What a loss of Keras says about itself, and its values for single examples."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops
from keras.src.backend import get_keras_mask, set_keras_mask

Tensor = Any
Loss = Any

_SPARSE = keras.losses.sparse_categorical_crossentropy
_DENSE = keras.losses.categorical_crossentropy
_BINARY = keras.losses.binary_crossentropy
_GCE = keras.losses.categorical_generalized_cross_entropy
BINARY = (_BINARY, keras.losses.binary_focal_crossentropy)
OF_INTEGERS = (_SPARSE, _GCE)
OF_CLASSES = (*OF_INTEGERS, _DENSE, keras.losses.categorical_focal_crossentropy)
OF_PROBABILITIES = (*OF_CLASSES, keras.losses.kl_divergence)
_OF_NO_ROWS = (*OF_INTEGERS, keras.losses.ctc, keras.losses.circle)
"""Losses of Keras whose labels do not have the predictions' shape."""


def function_of(loss: Loss) -> Any:
    """Return the function that a loss object wraps, as Keras makes of each; another as it is."""
    return getattr(loss, "fn", loss)


def is_keras(loss: Loss) -> bool:
    return str(getattr(function_of(loss), "__module__", "")).split(".")[0] == "keras"


def name_of(loss: Loss) -> str:
    return str(getattr(function_of(loss), "__name__", loss.name))


def option(loss: Loss, name: str, default: Any = None) -> Any:
    """Return an argument that a loss object of Keras was made with, or an attribute of another."""
    arguments = getattr(loss, "_fn_kwargs", {})  # the one place where each of them is
    own = getattr(function_of(loss), name, default)  # of a function that Keras has wrapped
    return arguments.get(name, getattr(loss, name, own))


def class_axis(loss: Loss, y_pred: Tensor) -> int:
    """Return which axis of the predictions is that of the classes."""
    axis = option(loss, "axis", -1) if function_of(loss) in OF_CLASSES else -1
    return int(axis) % len(y_pred.shape)


def num_classes(loss: Loss, y_pred: Tensor) -> int:
    return max(y_pred.shape[class_axis(loss, y_pred)], 2)


def is_cross_entropy(loss: Loss, y_pred: Tensor, axis: int) -> bool:
    """Return whether the loss is cross-entropy between classes, smoothed or not."""
    if y_pred.shape[-1] == 1:
        return function_of(loss) is _BINARY
    # Keras divides what it smooths by the size of the last axis.
    smoothed_elsewhere = option(loss, "label_smoothing") and axis != len(y_pred.shape) - 1
    return function_of(loss) in (_SPARSE, _DENSE) and not smoothed_elsewhere


def float32(x: Any) -> Tensor:
    """Return a tensor in float32.

    In half precision labels above 256 (bfloat16) or 2048 (float16) are wrong, and losses tie.
    """
    return ops.convert_to_tensor(x, dtype="float32")


def per_example(loss: Loss, y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Return the loss of each example, (n,) or (n, d1, ...), with gradient and the loss's mask.

    Raises:
        ValueError: the loss has reduced its examples away, or has a value per class; or labels do
            not have the shape that a loss of Keras needs.
    """
    _require_labels(loss, y_true, y_pred)
    y_true, y_pred = float32(y_true), float32(y_pred)
    if type(loss).__call__ is keras.losses.Loss.__call__:
        losses = loss.call(y_true, y_pred)
    else:  # a loss that does all by itself
        expand = y_pred.shape[-1] == 1 and len(y_true.shape) == len(y_pred.shape) - 1
        losses = loss(ops.expand_dims(y_true, -1) if expand else y_true, y_pred)
    mask, losses = get_keras_mask(losses), float32(losses)
    if len(losses.shape) == len(y_pred.shape) and losses.shape[-1] == 1:
        losses = ops.squeeze(losses, -1)
    sizes = {*losses.shape[:1], *y_pred.shape[:1]} - {None}
    if not 0 < len(losses.shape) < len(y_pred.shape) or len(sizes) > 1:
        raise ValueError(
            f"loss: must return one value per example, got shape {tuple(losses.shape)} for "
            f"predictions {tuple(y_pred.shape)}; try a loss whose call does not average over the "
            "batch, and predictions (batch, classes)"
        )
    if mask is not None:
        set_keras_mask(losses, mask)
    return losses


def _require_labels(loss: Loss, y_true: Tensor, y_pred: Tensor) -> None:
    """Raise ValueError on labels that a loss of Keras cannot take, or would broadcast to (n, n)."""
    function = function_of(loss)
    sparse, rows = function is _SPARSE, is_keras(loss) and function not in _OF_NO_ROWS
    units, width = y_pred.shape[-1], y_true.shape[-1] if len(y_true.shape) > 1 else 1
    if not (sparse or rows) or len(y_pred.shape) != 2 or None in (units, width):
        return
    if width == (1 if sparse else units):
        return
    kind, advice = "one-hot rows or targets", "keras.utils.to_categorical(y)"
    if sparse:
        kind, advice = "integers", "y.argmax(-1)"
    other = "categorical_crossentropy" if sparse else "sparse_categorical_crossentropy"
    raise ValueError(
        f"y: must be {kind} for {function.__name__}, got shape {tuple(y_true.shape)} for "
        f"predictions {tuple(y_pred.shape)}; try {advice}, or {other!r}"
    )
