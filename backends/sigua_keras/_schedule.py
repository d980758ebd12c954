"""The numbers that the compiled step reads and counts, kept in two metrics.

On TensorFlow and JAX, a number that a callback changes on a loss or a model is frozen into the
compiled step. The variables of a metric that the model tracks are not, on any backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from sigua import Method, Split
from sigua.conditions import reads
from sigua_keras._batch import INTEGER
from sigua_keras._margins import Confidence

Tensor = Any


class Share(keras.metrics.Metric):
    """The share of the epoch's examples in one of the masks that a step counts together.

    Args:
        name: of the metric.
        place: of its mask among those of `Shares.count`.
        first: the metric that has the counts, if it is not this one.
    """

    def __init__(self, name: str, place: int, first: Share | None = None) -> None:
        super().__init__(name=name, dtype="float32")
        self.place = place
        if first is None:
            first = self
            self.counts = self.add_variable((4,), "zeros", name="counts")
        # A metric tracks what it has as an attribute, but each variable must be tracked once.
        self._counts: Callable[[], Any] = lambda: first.counts

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a user's own training step updates every metric with (y, y_pred)."""

    def result(self) -> Tensor:
        counts = ops.convert_to_tensor(self._counts())
        return ops.divide_no_nan(counts[self.place], counts[2])

    def reset_state(self) -> None:
        self._counts().assign(np.zeros(4, dtype="float32"))


class Shares:
    """The metrics `sigua_good` and `sigua_bad`; the first carries numbers and class confidence.

    Args:
        method: its schedules are followed.

    Attributes:
        written: whether numbers were written since a compiled step read them.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self.good = Share("sigua_good", 0)
        self.bad = Share("sigua_bad", 1, self.good)
        # Not by `add_variable`: values assigned to those are divided by the number of replicas.
        self._values = method.at(0)
        self.good.numbers = [_variable(i, value) for i, value in enumerate(self._values)]
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
        """Count who is good, bad, takes part, and is asked to; all masks have the same shape."""
        masks = ops.stack([split.good, split.bad, takes_part, asked])
        self.good.counts.assign_add(ops.sum(ops.cast(masks, "float32"), axis=1))

    def classless(self) -> int:
        """Return how many labels of this epoch were not a class."""
        counts = ops.convert_to_numpy(self.good.counts)
        return int(counts[3] - counts[2])

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
