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
from sigua_keras._batch import INTEGER
from sigua_keras._margins import Confidence

Tensor = Any


class Share(keras.metrics.Metric):
    """The share of the epoch's examples in a mask; other variables are not reset with it.

    Args:
        name: of the metric.
        place: of the mask's count in `counts`, 0 or 1; the other is how many took part.
    """

    def __init__(self, name: str, place: int) -> None:
        super().__init__(name=name, dtype="float32")
        self.place = place
        self.counts = self.add_variable((2,), "zeros", name="counts")

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a user's own training step updates every metric with (y, y_pred)."""

    def result(self) -> Tensor:
        counts = ops.convert_to_tensor(self.counts)
        return ops.divide_no_nan(counts[self.place], counts[1 - self.place])

    def reset_state(self) -> None:
        self.counts.assign(ops.zeros(2, dtype="float32"))


class Shares:
    """The metrics `sigua_good` and `sigua_bad`; the first carries numbers and class confidence.

    Args:
        method: its schedules are followed.

    Attributes:
        written: whether numbers were written since a compiled step read them.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self.good, self.bad = Share("sigua_good", 0), Share("sigua_bad", 1)
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

    def count(self, split: Split, takes_part: Tensor, asked: Tensor) -> None:
        """Count the examples that are good, take part, are bad, and are asked to; masks (n,)."""
        masks = ops.stack([split.good, takes_part, split.bad, asked])
        counts = ops.sum(ops.cast(masks, "float32"), axis=1)
        self.good.counts.assign_add(counts[:2])
        self.bad.counts.assign_add(counts[1:3])
        self.good.no_class.assign_add(counts[3] - counts[1])

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
        """Return gamma and the condition's numbers as tensors, of dtype `INTEGER` or float32."""
        return tuple(ops.convert_to_tensor(variable) for variable in self.good.numbers)


def _variable(i: int, value: float) -> keras.Variable:
    # TensorFlow keeps int32 variables off accelerators.
    return keras.Variable(
        value,
        dtype=INTEGER if isinstance(value, int) else "float32",
        trainable=False,
        autocast=False,
        aggregation="only_first_replica",
        name=f"number_{i}",
    )
