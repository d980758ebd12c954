"""The numbers that the compiled step reads and counts, kept in two metrics.

On TensorFlow and JAX, a number that a callback changes on a loss or a model is frozen into the
compiled step. The variables of a metric that the model tracks are not, on any backend.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from sigua import Method, Split
from sigua.conditions import reads
from sigua_keras._margins import Confidence

Tensor = Any


class Share(keras.metrics.Metric):
    """The share of the epoch's examples in a mask; other variables are not reset with it."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, dtype="float32")
        self.count = self.add_variable((), "zeros", name="count")
        self.total = self.add_variable((), "zeros", name="total")

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a user's own training step updates every metric with (y, y_pred)."""

    def add(self, mask: Tensor, size: Tensor) -> None:
        self.count.assign_add(ops.sum(ops.cast(mask, "float32")))
        self.total.assign_add(ops.cast(size, "float32"))

    def result(self) -> Tensor:
        return ops.divide_no_nan(self.count, self.total)

    def reset_state(self) -> None:
        for variable in (self.count, self.total):
            variable.assign(ops.zeros((), dtype="float32"))


class Shares:
    """The metrics `sigua_good` and `sigua_bad`; the first carries numbers and class confidence.

    Args:
        method: its schedules are followed.

    Attributes:
        written: whether numbers were written since a compiled step read them.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self.good, self.bad = Share("sigua_good"), Share("sigua_bad")
        # Not by `add_variable`: values assigned to those are divided by the number of replicas.
        self._values = method.at(0)
        self.good.numbers = [_variable(i, value) for i, value in enumerate(self._values)]
        self.good.no_class = self.good.add_variable((), "zeros", name="no_class")
        by_class = reads(method.condition, "confidence")
        self.confidence = Confidence(self.good) if by_class else None
        self.written = False

    @property
    def metrics(self) -> tuple[Share, Share]:
        return self.good, self.bad

    def name_after(self, output: Any) -> None:
        """Add the name of an output to the names of the metrics, as Keras does; None for none."""
        prefix = "" if output is None else f"{output}_"
        self.good.name, self.bad.name = f"{prefix}sigua_good", f"{prefix}sigua_bad"

    def count(self, split: Split, size: Tensor, classless: Tensor | None) -> None:
        """Count the good and bad examples among `size`, and labels that are not a class, if any."""
        self.good.add(split.good, size)
        self.bad.add(split.bad, size)
        if classless is not None:
            self.good.no_class.assign_add(ops.cast(classless, "float32"))

    def classless(self) -> int:
        """Return how many labels so far were not a class."""
        return int(ops.convert_to_numpy(self.good.no_class))

    def set_epoch(self, epoch: float) -> None:
        """Write an epoch's numbers.

        Raises:
            ValueError: a schedule's value is refused, or numbers change type; nothing is changed.
        """
        values = self.method.at(epoch)
        for variable, value in zip(self.good.numbers, values, strict=True):
            if isinstance(value, float) and "int" in variable.dtype:
                raise ValueError(
                    f"condition: must return numbers of the same type in each epoch, got {value!r} "
                    f"at epoch {epoch:g} and an integer at epoch 0; try floats"
                )
        self._values = values
        self.rewritten()
        self.written = True

    def rewritten(self) -> list[keras.Variable]:
        """Write the numbers again and return their variables: a step on JAX consumes them."""
        for variable, value in zip(self.good.numbers, self._values, strict=True):
            variable.assign(value)
        self.written = False
        return self.good.numbers

    def forget(self) -> None:
        """Reset the class confidence, because a new training begins."""
        if self.confidence is not None:
            self.confidence.clear()

    def seen(self) -> Any:
        """Return the class confidence so far, (2, k), or None."""
        return None if self.confidence is None else self.confidence.get()

    def go_on(self, seen: Any) -> None:
        """Continue from the class confidence that `seen` returned."""
        if self.confidence is not None:
            self.confidence.set(seen)

    def numbers(self) -> tuple[Tensor, ...]:
        """Return gamma and the condition's numbers as tensors: int32 (exact) or float32."""
        return tuple(
            ops.cast(ops.convert_to_tensor(v), "int32" if "int" in v.dtype else "float32")
            for v in self.good.numbers
        )


def _variable(i: int, value: float) -> keras.Variable:
    # "int" is int64 on TensorFlow, which keeps int32 variables off accelerators.
    return keras.Variable(
        value,
        dtype="int" if isinstance(value, int) else "float32",
        trainable=False,
        autocast=False,
        aggregation="only_first_replica",
        name=f"number_{i}",
    )
