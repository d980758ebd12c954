"""What the compiled step reads and counts: kept in two metrics, for Keras carries those along.

A number that a callback changes on a loss or on a model is frozen into the compiled step on
TensorFlow and JAX. The variables of a metric that the model tracks are not, on any backend.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from sigua import Method, Split, checks
from sigua.conditions import reads
from sigua_keras._margins import Confidence

Tensor = Any


class Share(keras.metrics.Metric):
    """The share of the epoch's examples that a mask held; other variables outlive `reset_state`."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, dtype="float32")
        self.count = self.add_variable((), "zeros", name="count")
        self.total = self.add_variable((), "zeros", name="total")

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: a training step of one's own updates every metric with (y, y_pred)."""

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
        method: whose schedules are followed.

    Attributes:
        written: whether numbers were written since a compiled step took them.
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self.good, self.bad = Share("sigua_good"), Share("sigua_bad")
        # Not `add_variable`: what is assigned to those is divided by the number of replicas.
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
        """Be told from the shares of another output by its name, as Keras's own metrics are."""
        prefix = "" if output is None else f"{output}_"
        self.good.name, self.bad.name = f"{prefix}sigua_good", f"{prefix}sigua_bad"

    def count(self, split: Split, size: Tensor, classless: Tensor | None) -> None:
        """Count who was good and bad among how many, and who had no class; None for nobody."""
        self.good.add(split.good, size)
        self.bad.add(split.bad, size)
        if classless is not None:
            self.good.no_class.assign_add(ops.cast(classless, "float32"))

    def classless(self) -> int:
        """Return how many labels were no class so far."""
        return int(ops.convert_to_numpy(self.good.no_class))

    def set_epoch(self, epoch: float) -> None:
        """Write an epoch's numbers; nothing changes if a schedule's value is refused."""
        values = self.method.at(epoch)
        for variable, value in zip(self.good.numbers, values, strict=True):
            if isinstance(value, float) and "int" in variable.dtype:
                came = f"{value!r} came at epoch {epoch:g} and an integer at epoch 0"
                raise checks.refuse("condition", "numbers must keep their type", came, "use floats")
        self._values = values
        self.rewritten()
        self.written = True

    def rewritten(self) -> list[keras.Variable]:
        """Return the variables of the numbers, written anew: a step on JAX takes and drops them."""
        for variable, value in zip(self.good.numbers, self._values, strict=True):
            variable.assign(value)
        self.written = False
        return self.good.numbers

    def forget(self) -> None:
        """Empty the class confidence, for a new training begins."""
        if self.confidence is not None:
            self.confidence.clear()

    def seen(self) -> Any:
        """Return the class confidence so far, (2, k), or None."""
        return None if self.confidence is None else self.confidence.get()

    def go_on(self, seen: Any) -> None:
        """Take over what `seen` returned."""
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
