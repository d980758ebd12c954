"""Which epoch of the method it is: told by `fit` or by the user, or counted in steps."""

from __future__ import annotations

import warnings
from typing import Any
from weakref import WeakKeyDictionary

import keras

from sigua import Method, checks
from sigua_keras._schedule import Shares

FORGOTTEN_AFTER = 1_000
"""Training steps of a model at epoch 0 after which it is asked whether the epoch was forgotten."""

_at_0: WeakKeyDictionary[Any, dict[Any, int]] = WeakKeyDictionary()
# By model and output: a new callback for each short `fit` would begin at epoch 0 each time.


class Clock:
    """Keeps the epoch, and writes its numbers.

    Args:
        method: whose epoch it is.
        shares: where the numbers are written.
        output: which output is trained with it.
        steps_per_epoch: training steps per epoch; None if the epoch is told.
    """

    def __init__(
        self, method: Method, shares: Shares, output: Any, steps_per_epoch: int | None
    ) -> None:
        self.method, self.shares, self.output = method, shares, output
        self.steps_per_epoch = steps_per_epoch
        self.finished = False
        self.began = 0.0  # the epoch at which the epoch of `fit` began
        self._epoch, self._step = 0.0, 0
        self._ahead: float | None = None  # of the epochs of `fit`
        self._more = False  # epochs of this `fit` after this one
        self.stepping = False

    @property
    def epoch(self) -> float:
        return self._epoch if self.steps_per_epoch is None else self._step / self.steps_per_epoch

    def tell(self, epoch: float) -> None:
        """Take the epoch that the user says."""
        if self.steps_per_epoch is not None:
            raise ValueError(
                "set_epoch: must not be called where the epoch is counted in steps, got "
                f"steps_per_epoch={self.steps_per_epoch}; try leaving one of the two out"
            )
        self.set(epoch)

    def set(self, epoch: float) -> None:
        """Write the numbers of an epoch; nothing changes if it is refused."""
        self.shares.set_epoch(epoch)
        self._epoch, self.finished = float(epoch), False
        if self.steps_per_epoch is not None:
            self._step = round(epoch * self.steps_per_epoch)

    def begin_fit(self) -> None:
        self._ahead = None

    def begin_epoch(self, epoch: int, params: dict[str, Any] | None) -> None:
        """Follow an epoch of `fit`, which goes on where the last one stood, or at initial_epoch."""
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
        """Count the training steps that were just taken."""
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
                "begins: call set_epoch(epoch) before each epoch, keep one callback for a loop of "
                "fits, or count the epochs by SIGUA(method, steps_per_epoch=...)",
                stacklevel=2,
            )


class Epochs(keras.callbacks.Callback):
    """Tells a `SIGUAModel` which epoch begins."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.model._sigua.clock.begin_fit()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model._sigua.clock.begin_epoch(epoch, self.params)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model._sigua.end_epoch(epoch, logs)


def steps_per_epoch(value: Any) -> int | None:
    """Return a number of steps, or None.

    Raises:
        ValueError: it is no whole number of at least 1.
    """
    if value is None:
        return None
    return checks.whole("steps_per_epoch", value, 1, "give how many mini-batches make an epoch")
