"""A stand-in for a compiled loss, told its values: measured once a step, and reduced by Keras."""

from __future__ import annotations

import threading
from typing import Any

import keras

from sigua_keras._measure import Tensor
from sigua_keras._outputs import Output


class Told(keras.losses.Loss):
    """Stands in for a compiled loss: returns the values it was told, or else calls that loss.

    Keras still reduces the values, weighs each output and logs its loss, but the loss itself is
    called once. Values are kept per thread, because tf.distribute traces its replicas in several.

    Args:
        loss: the compiled loss.
    """

    def __init__(self, loss: Any) -> None:
        super().__init__(name="told", dtype="float32")
        self.loss = loss
        self._here = threading.local()

    def tell(self, losses: Tensor, reduction: str | None) -> None:
        """Set the values to return, one per example, and how they are reduced."""
        self.reduction = reduction
        self._here.losses, self._here.asked = losses, False

    def forget(self) -> bool:
        """Be the compiled loss again; return whether the values were asked for."""
        self._here.losses = None
        return self._here.asked

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        losses = getattr(self._here, "losses", None)
        if losses is None:
            return self.loss(y_true, y_pred, sample_weight)
        self._here.asked = True
        return super().__call__(losses, losses, sample_weight)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return y_pred


def stand_in(model: Any, output: Output, y: Any, y_pred: Any) -> Told:
    """Return the stand-in for the compiled loss of an output, which the first call puts in place.

    Raises:
        ValueError: no loss is compiled for the output.
    """
    compiled = model._compile_loss
    if not compiled.built:  # on TensorFlow, and in a loop of the user's own
        alone = not keras.tree.is_nested(y) and not keras.tree.is_nested(y_pred)
        (compiled.build if alone else compiled)(y, y_pred)  # the latter computes losses once more
    for i, entry in enumerate(compiled._flat_losses):
        if output.is_at(entry.path):
            if not isinstance(entry.loss, Told):
                compiled._flat_losses[i] = entry._replace(loss=Told(entry.loss))
            return compiled._flat_losses[i].loss
    raise ValueError(
        f"loss: must be compiled for the output {output.name!r}, got None; try naming one for it "
        "in model.compile(optimizer, loss)"
    )


def give_back(model: Any) -> None:
    """Put the compiled losses back."""
    compiled = model._compile_loss
    for i, entry in enumerate(getattr(compiled, "_flat_losses", None) or []):
        if isinstance(entry.loss, Told):
            compiled._flat_losses[i] = entry._replace(loss=entry.loss.loss)
