"""`SIGUA`, the callback that trains a model with SIGUA while `model.fit` runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import keras
import numpy as np
from keras.src.trainers.compile_utils import get_loss

from sigua import Method, checks
from sigua.requirements import require_method
from sigua_keras import _check
from sigua_keras._check import Groups
from sigua_keras._objective import Objective
from sigua_keras._outputs import Objectives
from sigua_keras._training import add, objectives_of


class SIGUA(keras.callbacks.Callback):
    """Trains a compiled model with a `sigua` method: add it to the callbacks of `fit`.

        objective = sum_i loss_i * (good_i - gamma * bad_i) / n                          (Eq. 3)

    Only training changes: validation, `evaluate`, a saved model and everything after `fit` are
    plain. History and progress bar show `sigua_good` and `sigua_bad`, shares of the epoch's
    examples that take part. The training loss in the logs is SIGUA's objective, not comparable with
    `val_loss`: let EarlyStopping and ModelCheckpoint monitor `val_accuracy`.

    The epochs of the method are those of `fit`. If a callback is used again on the same model it
    continues where it stopped; `initial_epoch` sets another epoch, and a new callback, or a copy,
    begins at 0. A loop of short fits or of `train_on_batch` compiles once between `attach` and
    `detach`, with `set_epoch` in it.

    Sample and class weights scale losses but never decide which examples are good. An example takes
    no part if its weight is 0, if a Keras mask hides it, if its label is the loss's `ignore_class`,
    or if it is no class of T or of a classification loss: -1, k, a fraction, NaN, a row of zeros.
    With predictions (batch, d1, ..., classes) each time step or pixel for which the loss has a
    value is an example. Selection is per mini-batch: per replica under tf.distribute, global under
    keras.distribution on JAX.

    For `sigua.Known` the *sign* of `sample_weight` marks each example, plus for good and minus for
    bad: `sample_weight=np.where(trusted, 1.0, -1.0)`. For all other methods a negative weight makes
    the loss NaN, because a compiled step cannot refuse it; so do rows of several classes where T,
    groups by class or `Agreement` need one. A NaN loss makes the objective NaN; an infinite one is
    neither good nor bad, and 0 in the sum, unless all are infinite.

    For `Agreement` (`sigua.sigua_ag()`) the loss must be a cross-entropy between classes; one of
    your own says what predictions are by an attribute `from_logits`. The class confidence is reset
    in `attach`, and when a `fit` begins epoch 0 of the method.

    Args:
        method: the method to train with, such as `sigua.sigua_sl(noise_rate=0.5, delta=0.15)`.
        output: the output it is for, if the model has several, each with a callback of its own: its
            name, or its index unless the model predicts a dict. Metrics are then named after it.
        loss: the loss that training optimises, as for `compile`; by default the compiled loss,
            which is always used for validation.
        groups: who is judged together: "class", the examples of each label, so that a rare or hard
            class is not dropped as a whole; "image", the places of each example; or a function of
            (y, y_pred) that returns integers in the loss's shape, such as annotators. All by
            default.
        steps_per_epoch: the number of training steps to count as an epoch, over all that the
            callback trains, instead of the epochs of `fit` or `set_epoch`. With Keras's
            `steps_per_execution`, all steps of an execution use the numbers of its first, and only
            those count in which the optimizer of the model moves.

    Raises:
        ValueError: arguments that do not fit each other. In the first step, which then changes no
            weight: no compiled loss, or one without a value per example; several outputs and no
            `output`; labels, T or sample weights that do not fit; a `compute_loss` of the model's
            that does not call `super().compute_loss`. After the first epoch: a `train_step` that
            never called `compute_loss`.
    """

    def __init__(
        self,
        method: Method,
        output: str | int | None = None,
        loss: Any = None,
        *,
        groups: Groups = None,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        require_method(method)
        _check.groups(method, groups)
        get_loss(loss, np.empty((1, 1)), np.empty((1, 1)))  # which refuses what it does not know
        if steps_per_epoch is not None:
            advice = "try the number of mini-batches per epoch"
            steps_per_epoch = checks.whole("steps_per_epoch", steps_per_epoch, 1, advice)
        self.method, self.output, self.loss, self.groups = method, output, loss, groups
        self.steps_per_epoch = steps_per_epoch
        self._sigua: Objectives | None = None  # of the model that it is for
        self._objective: Objective | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or pickle holds: the arguments, so that it begins at epoch 0."""
        nothing = dict.fromkeys(["_sigua", "_objective", "_model", "params"])
        return vars(self) | nothing

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
        self._begin(model, anew=True).for_one_fit = False

    def set_epoch(self, epoch: float) -> None:
        """Set the epoch that begins; epochs count from 0 and may be fractional.

        Raises:
            ValueError: `epoch` is negative, nothing is attached, or steps are counted.
        """
        clock = self._attached().clock
        if clock.steps_per_epoch is not None:
            raise ValueError(
                "set_epoch: must not be called if the epoch is counted in steps, got "
                f"steps_per_epoch={clock.steps_per_epoch}; try leaving one of the two out"
            )
        clock.set(epoch)

    def detach(self) -> None:
        """Restore plain training; without effect if nothing is attached."""
        if self._sigua is not None and self._objective is not None:
            self._sigua.remove(self._objective)

    def enter(self, model: Any, anew: bool = True) -> Objective:
        """Be one of those that a model trains with, by the train functions that it will make."""
        found, other, objective = objectives_of(model), self._trained, self._objective
        if other is not None and other is not model:
            self._end_one_fit()  # which was interrupted
            if self._trained is not None:
                raise ValueError(
                    "SIGUA: must be attached to one model at a time, got a second one; "
                    "try detach() first, or another SIGUA"
                )
        if anew:
            found.leave_one_fit()  # which was interrupted, too
        again = not anew and self._sigua is not None and self._sigua.model is model
        if objective is None or not again:
            strategy = getattr(model, "distribute_strategy", None)  # of tf.distribute
            arguments = self.method, self.output, self.loss, self.groups, self.steps_per_epoch
            with nullcontext() if strategy is None else strategy.scope():
                objective = Objective(*arguments)
        self._sigua, self._objective = add(model, objective), objective
        return objective

    def _begin(self, model: Any, anew: bool) -> Objective:
        objective = self.enter(model, anew)
        objective.for_one_fit = True
        with self._cleaning():  # without force, a model fitted before would keep its plain step
            model.make_train_function(force=True)
        return objective

    @property
    def _trained(self) -> Any:
        """The model that trains with it now; None if there is none."""
        sigua = self._sigua
        return None if sigua is None or self._objective not in sigua.all else sigua.model

    def _end_one_fit(self) -> None:
        if self._objective is not None and self._objective.for_one_fit:
            self.detach()

    def _attached(self) -> Objective:
        if self._objective is None or self._trained is None:
            raise ValueError(
                "SIGUA: must be attached to a model, got none; "
                "try attach(model) first, and no train_on_batch inside fit"
            )
        return self._objective

    @contextmanager
    def _cleaning(self) -> Iterator[None]:
        """Restore the model if training is refused."""
        try:
            yield
        except Exception:
            self._end_one_fit()
            raise

    def on_train_begin(self, logs: Any = None) -> None:
        if self._trained is not self.model:
            self._begin(self.model, anew=False)
        self._attached().clock.begin_fit()
        # Keras does not tell callbacks of each other, but their list is what calls them.
        caller = inspect.currentframe().f_back  # type: ignore[union-attr]  # CPython has frames
        siblings = getattr(caller.f_locals.get("self"), "callbacks", []) if caller else []
        _check.monitors(siblings)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        with self._cleaning():
            self._attached().clock.begin_epoch(epoch, self.params or {})

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        with self._cleaning():
            self._attached().end_epoch(epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        self._end_one_fit()
