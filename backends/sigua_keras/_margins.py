"""Margins of the model's own prediction, and the class confidence that divides it."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from sigua import confidence
from sigua.conditions import no_margins
from sigua_keras._measure import Loss, Tensor, is_alias, is_logits, label_index, num_classes


class Confidence:
    """The class confidence (`sigua.confidence`), in a variable that a metric carries.

    Under tf.distribute each replica has its own, of the examples that it sees. Outside a step the
    variable reads as their mean.

    Args:
        carrier: a metric that the model has while it trains.
    """

    def __init__(self, carrier: Any) -> None:
        self.carrier = carrier
        self.variable: Any = None

    def open(self, k: int) -> None:
        """Create the variable if there is none; before the step is traced, except on TensorFlow.

        Raises:
            ValueError: the variable has another number of classes.
        """
        if self.variable is None:
            # Not by `add_variable`, as for the epoch's numbers. The metric tracks its attributes.
            self.variable = self.carrier.confidence = keras.Variable(
                np.zeros((2, k)),
                dtype="float32",
                trainable=False,
                autocast=False,
                aggregation="mean",
                synchronization="on_read",
                name="confidence",
            )
        elif self.variable.shape[1] != k:
            raise ValueError(
                "model: must keep its number of classes, because the class confidence has one "
                f"entry for each, got {k} after {self.variable.shape[1]}; "
                "try a new SIGUA or SIGUAModel"
            )

    def rates(self) -> Tensor:
        """Return c, (k,), as it was before this mini-batch."""
        return confidence.rates(ops.convert_to_tensor(self.variable))

    def update(self, batch: Tensor) -> None:
        """Add a mini-batch's sums, (2, k)."""
        self.variable.assign(confidence.moved(ops.convert_to_tensor(self.variable), batch))

    def clear(self) -> None:
        """Reset to zeros; between steps."""
        if self.variable is not None:
            self.variable.assign(np.zeros(self.variable.shape, dtype="float32"))

    def get(self) -> Any:
        """Return the state as an array, (2, k), or None if there is none yet."""
        return None if self.variable is None else np.array(ops.convert_to_numpy(self.variable))

    def set(self, state: Any) -> None:
        """Continue from a state that `get` returned; between steps.

        Raises:
            ValueError: the state has another number of classes.
        """
        self.open(state.shape[1])
        self.variable.assign(state)


class Margins:
    """A mini-batch's predictions against its labels, in float32 and without gradient.

    Args:
        loss: a loss object or function that `require_classes` accepts; it says whether predictions
            are logits.
        y_true: labels, integers (n,) or (n, 1), or rows (n, k), whose largest entry is the label.
        y_pred: predictions, (n, k), or (n, 1) for one unit.
        takes_part: bool, (n,).
        confidence: the class confidence that margins by class divide by; None if not used.
    """

    def __init__(
        self,
        loss: Loss,
        y_true: Tensor,
        y_pred: Tensor,
        takes_part: Tensor,
        confidence: Confidence | None,
    ) -> None:
        self.p = _probabilities(y_pred, is_logits(loss))
        classes = ops.arange(num_classes(y_pred), dtype="int32")
        self.at_label = ops.expand_dims(label_index(y_true, y_pred), -1) == classes
        self.takes_part, self.confidence = takes_part, confidence

    def __call__(self, by_class: bool) -> Tensor:
        """Return the margins, (n,), of p, divided by c if `by_class`, and scaled to sum to 1.

        Raises:
            ValueError: the rule reads margins by class without naming "confidence" in `reads`.
        """
        u = self.p
        if by_class:
            if self.confidence is None:
                raise no_margins()
            u = u / self.confidence.rates()
        own = ops.sum(ops.where(self.at_label, u, 0.0), axis=-1)
        other = ops.max(ops.where(self.at_label, 0.0, u), axis=-1)
        return (own - other) / ops.sum(u, axis=-1)

    def sums(self) -> Tensor:
        """Return the sum of p(j | x) over examples labelled j, and their number, (2, k)."""
        counted = self.at_label & ops.expand_dims(self.takes_part, -1)
        counted = counted & ~ops.isnan(self.p)  # otherwise one NaN would stay for ever
        sums = ops.sum(ops.where(counted, self.p, 0.0), axis=0)
        return ops.stack([sums, ops.sum(ops.cast(counted, "float32"), axis=0)])


def _probabilities(y_pred: Tensor, from_logits: bool) -> Tensor:
    """Return p, float32, (n, k)."""
    given = ops.stop_gradient(ops.cast(y_pred, "float32"))
    one_unit = given.shape[-1] == 1
    if from_logits:
        logits = ops.concatenate([ops.zeros_like(given), given], axis=-1) if one_unit else given
        return ops.softmax(logits, axis=-1)
    if one_unit:
        return ops.concatenate([1 - given, given], axis=-1)
    return given / ops.sum(given, axis=-1, keepdims=True)


def require_classes(loss: Loss, units: int | None = None) -> None:
    """Raise ValueError unless a loss takes one probability or logit per class.

    Args:
        loss: a loss object or function, or its name.
        units: the number of predictions per example, if that is known.
    """
    if is_alias(loss):
        return
    loss = keras.losses.get(loss)
    kind = loss if hasattr(loss, "__name__") else type(loss)
    name = kind.__name__
    if kind.__module__.split(".")[0] == "keras":
        plain = name.replace("_", "").lower()
        of_classes = "crossentropy" in plain or plain == "kldivergence"
        fits = units is None or ("binary" in plain) == (units == 1)
        if not (of_classes and fits):
            of = "" if units is None else f" of {units} output{'s' if units > 1 else ''}"
            raise ValueError(
                "loss: must be a cross-entropy between classes, because margins are differences "
                f"of their probabilities, got {name}{of}; try 'sparse_categorical_crossentropy', "
                "or 'binary_crossentropy' of one output for two classes"
            )
    elif not hasattr(loss, "from_logits"):
        raise ValueError(
            "loss: must say by an attribute from_logits whether predictions are logits or "
            f"probabilities of classes, which margins need, got {name} without it; "
            "try loss.from_logits = True"
        )
