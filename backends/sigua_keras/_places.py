"""Predictions per time step or per pixel: one column of examples, and back."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops
from keras.src.backend import get_keras_mask, set_keras_mask

from sigua_keras._measure import Loss, Tensor, is_alias


def is_per_place(loss: Loss, y_pred: Any) -> bool:
    """Return whether there is an example per place: (n, d1, ..., k), and a loss for each.

    A loss of Keras, or of this package, has one for each; a loss of one's own is called with whole
    sequences or images, and returns one value for each of those.
    """
    if len(y_pred.shape) < 3:
        return False
    loss = "crossentropy" if is_alias(loss) else keras.losses.get(loss)
    module = getattr(getattr(loss, "fn", loss), "__module__", "keras.losses")
    return module.split(".")[0] in ("keras", "sigua_keras")


class Places:
    """The places of predictions: all axes but the last one, which is that of the classes.

    Args:
        y_pred: predictions, (n, d1, ..., k).
    """

    def __init__(self, y_pred: Tensor) -> None:
        self.static = tuple(y_pred.shape[:-1])
        self.shape = tuple(ops.shape(y_pred)[:-1])

    def predictions(self, y_pred: Tensor) -> Tensor:
        """Return predictions, (N, k), with what Keras has attached to them."""
        flat = self.flat(y_pred)
        mask, logits = get_keras_mask(y_pred), getattr(y_pred, "_keras_logits", None)
        if mask is not None:
            set_keras_mask(flat, self._column("mask", mask))
        if logits is not None:  # behind TensorFlow's softmax
            flat._keras_logits = self.flat(logits)
        return flat

    def labels(self, y_true: Tensor) -> Tensor:
        """Return labels, (N,) or (N, k), of labels (n, d1, ...) or (n, d1, ..., k).

        Raises:
            ValueError: labels of another shape.
        """
        y_true = ops.convert_to_tensor(y_true)
        places = tuple(y_true.shape[: len(self.static)])
        if len(y_true.shape) > len(self.static) + 1 or not _fits(places, self.static):
            raise ValueError(
                f"y: must have a label per place, {self.static}, got shape {tuple(y_true.shape)}; "
                "try a loss of your own that returns one value per example, if there is one label"
            )
        return self.flat(y_true)

    def weights(self, sample_weight: Any) -> Tensor | None:
        """Return weights, (N,), of weights per place, (n, d1, ...), or per example, (n, 1, ...).

        Raises:
            ValueError: weights of another shape.
        """
        if sample_weight is None:
            return None
        return self._column("sample_weight", ops.convert_to_tensor(sample_weight, dtype="float32"))

    def flat(self, tensor: Tensor) -> Tensor:
        """Return a tensor whose places are one axis."""
        return ops.reshape(tensor, (-1, *tensor.shape[len(self.static) :]))

    def shaped(self, tensor: Tensor) -> Tensor:
        """Undo `flat`."""
        return ops.reshape(tensor, (*self.shape, *tensor.shape[1:]))

    def first_axis(self) -> Tensor:
        """Return which sequence or image each place belongs to, int32, (N,)."""
        index = ops.arange(self.shape[0], dtype="int32")
        return self._column("index", index)

    def _column(self, name: str, value: Tensor) -> Tensor:
        given = tuple(value.shape)
        if len(given) == len(self.static) + 1 and given[-1] == 1:
            value = ops.squeeze(value, -1)
        while len(value.shape) < len(self.static):
            value = ops.expand_dims(value, -1)
        if not _fits(tuple(value.shape), self.static):
            raise ValueError(
                f"{name}: must be one per example or one per place, {self.static}, got shape "
                f"{given}; try one per place"
            )
        return ops.reshape(ops.broadcast_to(value, self.shape), (-1,))


def _fits(given: tuple[int | None, ...], wanted: tuple[int | None, ...]) -> bool:
    """Return whether a shape broadcasts to another, as far as both are known."""
    pairs = zip(given, wanted, strict=False)
    sizes = all(None in pair or pair[0] in (1, pair[1]) for pair in pairs)
    return len(given) == len(wanted) and sizes
