"""`SIGUA`, the callback that trains a model with SIGUA while `model.fit` runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import keras

from sigua import Method
from sigua.requirements import require_method
from sigua_keras import _check, _schedule
from sigua_keras._examples import Groups
from sigua_keras._objective import Objective
from sigua_keras._outputs import Objectives
from sigua_keras._training import add, objectives_of


class SIGUA(keras.callbacks.Callback):
    """Trains a compiled model with a `sigua` method: add it to the callbacks of `fit`."""

    def __init__(
        self,
        method: Method,
        output: str | int | None = None,
        loss: Any = None,
        *,
        groups: Groups = None,
        steps_per_epoch: int | None = None,
        **gone: Any,
    ) -> None:
        super().__init__()
        require_method(method)
        _check.arguments(gone)
        _check.output(output)
        _check.groups(method, groups)
        _check.known(loss)
        _schedule.whole_steps(steps_per_epoch)
        self.method, self.output, self.loss, self.groups = method, output, loss, groups
        self.steps_per_epoch = steps_per_epoch
        self._sigua: Objectives | None = None  # of the model it is attached to
        self._objective: Objective | None = None
        self._trained: Any = None  # the model it is for
        self._for_one_fit = True

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or pickle holds: the arguments, so that it begins at epoch 0."""
        nothing = dict.fromkeys(["_sigua", "_objective", "_trained", "_model", "params"])
        return vars(self) | nothing | {"_for_one_fit": True}

    @property
    def epoch(self) -> float:
        """The epoch of the method whose numbers training reads."""
        return 0.0 if self._objective is None else self._objective.clock.epoch

    def attach(self, model: Any) -> None:
        """Train the compiled model with SIGUA until `detach`, from epoch 0 of the method.

        Raises:
            ValueError: the model cannot be trained with SIGUA, or the callback is attached to
                another one.
        """
        found = objectives_of(model)
        self._leave(model)
        found.leave_one_fit()  # one that was interrupted
        self._attach(model, for_one_fit=False)

    def set_epoch(self, epoch: float) -> None:
        """Set the epoch that begins; epochs count from 0 and may be fractional.

        Raises:
            ValueError: `epoch` is negative, nothing is attached, or steps are counted.
        """
        self._attached().clock.tell(epoch)

    def detach(self) -> None:
        """Restore plain training; without effect if nothing is attached."""
        if self._sigua is not None and self._objective is not None:
            self._sigua.remove(self._objective)
        self._sigua = None

    def _leave(self, model: Any) -> None:
        """Let go of another model, if its `fit` is over."""
        if self._sigua is None or self._trained is model:
            return
        if not self._for_one_fit:
            raise ValueError(
                "SIGUA: must be attached to one model at a time, got a second one; "
                "try detach() first, or another SIGUA"
            )
        self.detach()  # after a fit that was interrupted

    def _attach(self, model: Any, for_one_fit: bool) -> None:
        objective = self._objective
        if objective is None or not for_one_fit or self._trained is not model:
            strategy = getattr(model, "distribute_strategy", None)  # of tf.distribute
            with nullcontext() if strategy is None else strategy.scope():
                objective = self._new()
        self._sigua = add(model, objective, for_one_fit)
        self._objective, self._trained, self._for_one_fit = objective, model, for_one_fit

    def _new(self) -> Objective:
        given = self.method, self.output, self.loss, self.groups, self.steps_per_epoch
        return Objective(*given)

    def bind(self, model: Any, sigua: Objectives) -> None:
        """Be that of a model which always trains with SIGUA."""
        self._sigua, self._objective, self._trained = sigua, self._new(), model
        self._for_one_fit = False
        sigua.put([self._objective])

    def _attached(self) -> Objective:
        objective = self._objective
        if self._sigua is None or objective is None or objective not in self._sigua.all:
            raise ValueError(
                "SIGUA: must be attached to a model, got none; "
                "try attach(model) first, and no train_on_batch inside fit"
            )
        return objective

    @contextmanager
    def _cleaning(self) -> Iterator[None]:
        """Restore the model if training is refused."""
        try:
            yield
        except Exception:
            if self._for_one_fit:
                self.detach()
            raise

    def on_train_begin(self, logs: Any = None) -> None:
        self._leave(self.model)
        if self._sigua is None or self._objective not in self._sigua.all:
            self._attach(self.model, for_one_fit=True)
        self._attached().clock.begin_fit()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        with self._cleaning():
            self._attached().clock.begin_epoch(epoch, self.params)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        with self._cleaning():
            self._attached().end_epoch(epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        if self._for_one_fit:
            self.detach()
