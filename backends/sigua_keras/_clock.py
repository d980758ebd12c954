"""The epoch of the method: set by `fit` or by the user, or counted in steps."""

from __future__ import annotations

import warnings
from typing import Any
from weakref import WeakKeyDictionary

import keras

from sigua import Method, checks
from sigua_keras._schedule import Shares

FORGOTTEN_AFTER = 1_000
"""After this many training steps of a model at epoch 0, a warning says that it may be forgotten."""

_at_0: WeakKeyDictionary[Any, dict[Any, int]] = WeakKeyDictionary()
# Steps by model and output, because a new callback for each short `fit` begins at epoch 0 again.


class Clock:
    """Keeps the epoch, and writes its numbers.

    Args:
        method: the method whose epoch it is.
        shares: where the numbers are written.
        output: the output that is trained with it.
        steps_per_epoch: training steps per epoch; None if the epoch is set.
    """

    def __init__(
        self, method: Method, shares: Shares, output: Any, steps_per_epoch: int | None
    ) -> None:
        self.method, self.shares, self.output = method, shares, output
        self.steps_per_epoch = steps_per_epoch
        self.finished = False
        self.began = 0.0  # the epoch at which the epoch of `fit` began
        self._epoch, self._step = 0.0, 0
        self._ahead: float | None = None  # by how much it is ahead of the epochs of `fit`
        self._more = False  # whether this `fit` has more epochs after this one
        self.stepping = False

    @property
    def epoch(self) -> float:
        return self._epoch if self.steps_per_epoch is None else self._step / self.steps_per_epoch

    def tell(self, epoch: float) -> None:
        """Set the epoch, as the user asks.

        Raises:
            ValueError: the epoch is counted in steps, negative, or refused by a schedule.
        """
        if self.steps_per_epoch is not None:
            raise ValueError(
                "set_epoch: must not be called if the epoch is counted in steps, got "
                f"steps_per_epoch={self.steps_per_epoch}; try leaving one of the two out"
            )
        self.set(epoch)

    def set(self, epoch: float) -> None:
        """Write the numbers of an epoch; nothing changes if the epoch is refused."""
        self.shares.set_epoch(epoch)
        self._epoch, self.finished = float(epoch), False
        if self.steps_per_epoch is not None:
            self._step = round(epoch * self.steps_per_epoch)

    def begin_fit(self) -> None:
        self._ahead = None

    def begin_epoch(self, epoch: int, params: dict[str, Any] | None) -> None:
        """Follow an epoch of `fit`, which continues after the last one, or at initial_epoch."""
        params = params or {}
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

    def end_epoch(self) -> None:
        self.finished = self.steps_per_epoch is None

    def advance(self, model: Any) -> None:
        """Count the training steps of an execution."""
        steps = model.steps_per_execution
        epoch = self.epoch
        if self.steps_per_epoch is not None:
            self._step += steps
            if epoch < self.method.horizon:
                self.shares.set_epoch(self.epoch)
        elif epoch > 0:
            _at_0.pop(model, None)
        elif not self._more and self.method.horizon > 0:
            self._look(model, steps)

    def _look(self, model: Any, steps: int) -> None:
        counts = _at_0.setdefault(model, {})
        before = counts.get(self.output, 0)
        counts[self.output] = before + steps
        if before < FORGOTTEN_AFTER <= before + steps:
            warnings.warn(
                f"{FORGOTTEN_AFTER} training steps and still at epoch 0, where {self.method!r} "
                "begins: call set_epoch(epoch) before each epoch, use the same callback in a loop "
                "of fits, or count the epochs by SIGUA(method, steps_per_epoch=...)",
                stacklevel=2,
            )


class Epochs(keras.callbacks.Callback):
    """A callback that tells a `SIGUAModel` which epoch begins."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.model._sigua.clock.begin_fit()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model._sigua.clock.begin_epoch(epoch, self.params)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model._sigua.end_epoch(epoch, logs)


def steps_per_epoch(value: Any) -> int | None:
    """Return a number of steps, or None.

    Raises:
        ValueError: it is not a whole number of at least 1.
    """
    if value is None:
        return None
    return checks.whole("steps_per_epoch", value, 1, "try the number of mini-batches per epoch")
