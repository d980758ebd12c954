"""The epoch of the method, and the numbers that the compiled step reads and counts.

On TensorFlow and JAX, a number that a callback changes on a loss or a model is frozen into the
compiled step. The variables of a metric that the model has while it trains are not, on any backend.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from sigua import Method, confidence
from sigua.conditions import reads
from sigua_keras._ops import ARRAYS, INTEGER, View

Tensor = Any


def variable(name: str, value: Any, dtype: str = "float32", **options: Any) -> keras.Variable:
    """Return a variable of a step's state.

    Not by `Metric.add_variable`: under tf.distribute, values assigned to those are divided by the
    number of replicas.
    """
    options = {"aggregation": "only_first_replica"} | options
    return keras.Variable(value, dtype=dtype, trainable=False, autocast=False, name=name, **options)


class Share(keras.metrics.Metric):
    """The share of the epoch's examples in a mask; other variables are not reset with it.

    Args:
        name: of the metric.
        place: of its mask among the counts: labels that are no class, good, taking part, bad.
    """

    def __init__(self, name: str, place: int) -> None:
        super().__init__(name=name, dtype="float32")
        self.counts = self.add_variable((4,), "zeros", name="counts")
        self._place = place

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a user's own training step updates every metric with (y, y_pred)."""

    def result(self) -> Tensor:
        counts = ops.convert_to_tensor(self.counts)
        return ops.divide_no_nan(counts[self._place], counts[2])

    def reset_state(self) -> None:
        self.counts.assign(ops.zeros((4,), dtype="float32"))


class Shares:
    """The metrics `sigua_good` and `sigua_bad`; the first carries all that a step needs.

    Args:
        method: its schedules are followed.

    Attributes:
        seen: the class confidence (`sigua.confidence`), if the method's rule reads it.
            Under tf.distribute each replica has its own; outside a step it reads as their mean.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self.metrics = Share("sigua_good", 1), Share("sigua_bad", 3)
        self.carrier: Any = self.metrics[0]  # which tracks its attributes
        self.reads_confidence = reads(method.condition, "confidence")
        self._counts = reads(method.condition, "counts")
        self.seen: Any = None

    def name_after(self, output: Any) -> None:
        """Add the name of an output to the names of the metrics, as Keras does; None for none."""
        prefix = "" if output is None else f"{output}_"
        for metric, name in zip(self.metrics, ("sigua_good", "sigua_bad"), strict=True):
            metric.name = prefix + name

    def open(self, k: int) -> None:
        """Create the class confidence if it is needed; before a step is traced, but on TensorFlow.

        Raises:
            ValueError: there is one of another number of classes.
        """
        if not self.reads_confidence:
            return
        if self.seen is None:
            each = {"aggregation": "mean", "synchronization": "on_read"}
            zeros = confidence.zeros(k, self._counts)
            self.seen = self.carrier.seen = variable("confidence", zeros, **each)
        elif self.seen.shape[1] != k:
            raise ValueError(
                "model: must keep its number of classes, because the class confidence has one "
                f"entry for each, got {k} after {self.seen.shape[1]}; "
                "try a new SIGUA or SIGUAModel"
            )

    def count(self, found: Any) -> None:
        """Add how many labels were not a class, and how many are good, take part, are bad, (4,)."""
        for metric in self.metrics:
            metric.counts.assign_add(ops.cast(found, "float32"))

    @property
    def lacks_confidence(self) -> bool:
        return self.reads_confidence and self.seen is None

    def forget(self) -> None:
        """Reset the class confidence, because a new training begins."""
        if self.seen is not None:
            self.seen.assign(np.zeros(self.seen.shape, dtype="float32"))


class Clock:
    """Keeps the epoch, which is set, or counted in steps, and the numbers that go with it.

    Attributes:
        values: gamma and the condition's numbers in the epoch.
        variables, arrays: the same, for a compiled step.
    """

    def __init__(self, shares: Shares, steps_per_epoch: int | None) -> None:
        self.shares, self.steps_per_epoch = shares, steps_per_epoch
        self.began = 0.0  # at which an epoch of `fit` did
        self._ahead: float | None = None  # by how much it is ahead of the epochs of `fit`
        self._more = False  # whether this `fit` has more epochs after this one
        self.variables = shares.carrier.numbers = [
            variable(f"number_{i}", value, INTEGER if isinstance(value, int) else "float32")
            for i, value in enumerate(shares.method.at(0))
        ]
        self.set(0.0)

    def numbers(self, view: View) -> tuple[Any, ...]:
        """Return the numbers of the epoch, which a compiled step reads as tensors."""
        if view is ARRAYS:
            return self.values
        return tuple(ops.convert_to_tensor(each) for each in self.variables)

    @property
    def epoch(self) -> float:
        return self._epoch if self.steps_per_epoch is None else self._step / self.steps_per_epoch

    def set(self, epoch: float) -> None:
        """Set the epoch and its numbers.

        Raises:
            ValueError: a schedule's value is refused, or numbers change type; nothing is changed.
        """
        values = self.shares.method.at(epoch)
        pairs = list(zip(self.variables, values, strict=True))
        for each, value in pairs:
            if isinstance(value, float) and "int" in each.dtype:
                raise ValueError(
                    f"condition: must return numbers of the same type in each epoch, got {value!r} "
                    f"at epoch {epoch:g} and an integer at epoch 0; try floats"
                )
        self.values, self.arrays = values, [np.asarray(value, each.dtype) for each, value in pairs]
        for each, value in pairs:
            each.assign(value)
        self._epoch, self.finished = float(epoch), False  # whether an epoch of `fit` has ended
        self._step = round(epoch * (self.steps_per_epoch or 0))

    def begin_fit(self) -> None:
        self._ahead = None

    def begin_epoch(self, epoch: int, params: dict[str, Any]) -> None:
        """Follow an epoch of `fit`, which continues after the last one, or at initial_epoch."""
        self._more = epoch + 1 < params.get("epochs", float("inf"))
        first = self._ahead is None
        if self._ahead is None:
            self._ahead = 0 if epoch else self.epoch + self.finished
        if self.steps_per_epoch is None:
            self.set(epoch + self._ahead)
        elif first and epoch:
            steps = params.get("steps") or self.steps_per_epoch
            self.set(epoch * steps / self.steps_per_epoch)
        self.began = self.epoch
        if self.began == 0:
            self.shares.forget()

    def advance(self, steps: int) -> bool:
        """Go on after some steps; return whether it stays at epoch 0 unless somebody says more."""
        if self.steps_per_epoch is None:
            return self._epoch == 0 and not self._more and self.shares.method.horizon > 0
        before, self._step = self.epoch, self._step + steps
        if before < self.shares.method.horizon:
            self.set(self.epoch)
        return False
