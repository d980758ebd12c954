"""Per-example losses of a compiled Keras loss, at the label and against every class.

Predictions have shape (n, k), or (n, 1) for one sigmoid unit, which makes two classes. Labels are
integers (n,) or (n, 1), or one-hot (n, k). Losses are float32.
"""

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
_OF_ROWS = (
    _DENSE,
    _BINARY,
    keras.losses.binary_focal_crossentropy,
    keras.losses.categorical_focal_crossentropy,
    keras.losses.categorical_hinge,
    keras.losses.cosine_similarity,
    keras.losses.hinge,
    keras.losses.huber,
    keras.losses.kl_divergence,
    keras.losses.log_cosh,
    keras.losses.mean_absolute_error,
    keras.losses.mean_absolute_percentage_error,
    keras.losses.mean_squared_error,
    keras.losses.mean_squared_logarithmic_error,
    keras.losses.poisson,
    keras.losses.squared_hinge,
)
"""Losses whose labels have the predictions' shape."""
_CATEGORICAL = (
    keras.losses.SparseCategoricalCrossentropy,
    keras.losses.CategoricalCrossentropy,
)


def num_classes(y_pred: Tensor) -> int:
    return max(y_pred.shape[-1], 2)


def is_dense(y_true: Tensor, y_pred: Tensor) -> bool:
    """Return whether labels are rows with an entry per class."""
    k = y_pred.shape[-1]
    return len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] == k and k > 1


def squeeze_labels(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Return labels of shape (n, 1) as (n,) where there are k > 1 predictions.

    Some losses of Keras silently broadcast (n, 1) against (n, k) into (n, n).
    """
    column = len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] == 1
    return ops.squeeze(y_true, -1) if column and y_pred.shape[-1] != 1 else y_true


def label_index(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Return labels as int32, shape (n,); the class of one-hot rows.

    Raises:
        ValueError: rows with an entry for another number of classes.
    """
    if is_dense(y_true, y_pred):
        return ops.cast(ops.argmax(y_true, axis=-1), "int32")
    if len(y_true.shape) > 1 and y_true.shape[-1] not in (1, None):
        raise ValueError(
            "y: must be integers (n,) or one-hot rows with an entry per class, got shape "
            f"{tuple(y_true.shape)} for predictions {tuple(y_pred.shape)}; try a unit per class"
        )
    if y_pred.shape[-1] == 1:  # the label is p(1): take the nearer class
        y_true = ops.cast(y_true, "float32") > 0.5
    return ops.reshape(ops.cast(y_true, "int32"), (-1,))


def resolve(loss: Loss, y_true: Tensor, y_pred: Tensor) -> Loss:
    """Return the loss object or function for an argument of `compile`."""
    if not is_alias(loss):
        return keras.losses.get(loss)
    if y_pred.shape[-1] == 1:
        return _BINARY
    return _DENSE if is_dense(y_true, y_pred) else _SPARSE


def is_alias(loss: Loss) -> bool:
    return str(loss).lower() in ("crossentropy", "ce")


def per_example(loss: Loss, y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Return the loss of each example, shape (n,), with gradient, and with the loss's own mask.

    Raises:
        ValueError: the loss has reduced its examples away, or has several values per example; or
            labels do not have the shape that a loss of Keras needs.
    """
    _require_labels(loss, y_true, y_pred)
    # As `keras.losses.Loss.__call__` does, but never in half precision, where labels above 256
    # (bfloat16) or 2048 (float16) are wrong and losses tie.
    y_true = ops.convert_to_tensor(y_true, dtype="float32")
    y_pred = ops.convert_to_tensor(y_pred, dtype="float32")
    if isinstance(loss, keras.losses.Loss):
        losses = loss.call(y_true, y_pred)
    else:
        expand = y_pred.shape[-1] == 1 and len(y_true.shape) == len(y_pred.shape) - 1
        losses = loss(ops.expand_dims(y_true, -1) if expand else y_true, y_pred)
    mask = get_keras_mask(losses)
    losses = ops.convert_to_tensor(losses, dtype="float32")
    if len(losses.shape) == 2 and losses.shape[-1] == 1:
        losses = ops.squeeze(losses, -1)
    if len(losses.shape) != 1:
        raise ValueError(
            f"loss: must return one value per example, got shape {tuple(losses.shape)} for "
            f"predictions {tuple(y_pred.shape)}; try predictions (batch, classes), and a loss "
            "that does not average over the batch"
        )
    if mask is not None:
        set_keras_mask(losses, mask)
    return losses


def _require_labels(loss: Loss, y_true: Tensor, y_pred: Tensor) -> None:
    """Raise ValueError on labels that a loss of Keras cannot take, or would broadcast to (n, n)."""
    function: Any = getattr(loss, "fn", loss)
    sparse = function is _SPARSE
    units, width = y_pred.shape[-1], y_true.shape[-1] if len(y_true.shape) > 1 else 1
    if not (sparse or function in _OF_ROWS) or len(y_pred.shape) != 2 or None in (units, width):
        return
    if width != (1 if sparse else units):
        kind, advice = "one-hot rows or targets", "keras.utils.to_categorical(y)"
        other = "'sparse_categorical_crossentropy'"
        if sparse:
            kind, advice, other = "integers", "y.argmax(-1)", "'categorical_crossentropy'"
        raise ValueError(
            f"y: must be {kind} for {function.__name__}, got shape {tuple(y_true.shape)} for "
            f"predictions {tuple(y_pred.shape)}; try {advice}, or {other}"
        )


def mask_of(tensor: Tensor) -> Tensor | None:
    """Return the Keras mask of a tensor of predictions or losses, bool, (n,), or None.

    Raises:
        ValueError: the mask is not one per example.
    """
    mask = get_keras_mask(tensor)
    if mask is None:
        return None
    mask = ops.cast(mask, "bool")
    if len(mask.shape) == 2 and mask.shape[-1] == 1:
        mask = ops.squeeze(mask, -1)
    if len(mask.shape) != 1:
        raise ValueError(
            f"mask: must be one per example, (batch,), got shape {tuple(mask.shape)}; try "
            "predicting (batch, classes)"
        )
    return mask


def taken_mask(losses: Tensor) -> Tensor | None:
    """Return the losses' mask as `mask_of` does, and remove it, so that Keras does not apply it."""
    mask = mask_of(losses)
    if mask is not None:
        set_keras_mask(losses, None)
    return mask


def every_class(loss: Loss, y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Return the loss against every class, shape (n, k), with gradient.

    A cross-entropy costs O(n k) in all; any other loss is called once per class.
    """
    if is_cross_entropy(loss, y_pred):
        return -log_probabilities(y_pred, is_logits(loss))
    k = num_classes(y_pred)
    nothing = ops.zeros_like(ops.convert_to_tensor(y_true, dtype="float32"))
    labels = ops.eye(k, dtype="float32") if is_dense(y_true, y_pred) else range(k)
    return ops.stack([per_example(loss, nothing + labels[j], y_pred) for j in range(k)], axis=-1)


def is_logits(loss: Loss) -> bool:
    return bool(getattr(loss, "from_logits", False))


def is_cross_entropy(loss: Loss, y_pred: Tensor) -> bool:
    """Return whether the loss is minus the logarithm of the label's probability."""
    if getattr(loss, "label_smoothing", 0):
        return False
    if y_pred.shape[-1] == 1:
        return loss is _BINARY or type(loss) is keras.losses.BinaryCrossentropy
    return loss is _SPARSE or loss is _DENSE or type(loss) in _CATEGORICAL


def log_probabilities(y_pred: Tensor, from_logits: bool) -> Tensor:
    """Return log p, shape (n, k)."""
    logits = y_pred if from_logits else None
    if logits is None and keras.config.backend() == "tensorflow":
        # Only TensorFlow's losses use the logits behind a softmax or a sigmoid.
        logits = getattr(y_pred, "_keras_logits", None)
    one_unit = y_pred.shape[-1] == 1
    if logits is not None:
        logits = ops.cast(logits, "float32")
        if one_unit:
            logits = ops.concatenate([ops.zeros_like(logits), logits], axis=-1)
        return ops.log_softmax(logits, axis=-1)
    p = ops.cast(y_pred, "float32")
    p = ops.concatenate([1 - p, p], axis=-1) if one_unit else p / ops.sum(p, -1, keepdims=True)
    return ops.log(ops.clip(p, keras.config.epsilon(), 1 - keras.config.epsilon()))
