"""`SIGUA`, the callback: the objective of `model.fit` while it runs."""

from __future__ import annotations

from typing import Any

import keras

from sigua import Method, checks
from sigua_keras._attach import Attachment, strategy_scope
from sigua_keras._objective import Objective


class SIGUA(keras.callbacks.Callback):
    """Trains a compiled model with a `sigua` method: add it to the callbacks of `fit`.

        objective = sum_i loss_i * (good_i - gamma * bad_i) / n                          (Eq. 3)

    Only training changes: validation, `evaluate` and everything after `fit` have the plain loss.
    The epochs of the method are those of `fit`, `initial_epoch` included. History and progress bar
    show `sigua_good` and `sigua_bad`, shares of the epoch's examples.

    The training loss in the logs is SIGUA's objective and is not comparable with `val_loss`: let
    EarlyStopping, ReduceLROnPlateau and ModelCheckpoint watch a `val_` metric.

    Sample and class weights scale losses but never decide who is good; an example of weight 0
    takes no rank. For `sigua.Known` (and a condition of your own) the *sign* of `sample_weight`
    marks each example, plus for good and minus for bad, and its magnitude is the weight; leave
    `weighted_metrics` out then, for Keras hands them the signs, too.

    Selection is per mini-batch: per replica under tf.distribute, global under keras.distribution
    on JAX. A NaN loss makes the objective NaN, and so does an infinite one, because Keras
    multiplies it by its weight of 0.

    T needs a label per example: of one-hot rows the largest entry. With a correction and several
    outputs, Keras's own log of that output's loss reads 0; the total is right.

    Each `fit` compiles the training step once. In a loop of short fits or of `train_on_batch`, call
    `attach` before it, `set_epoch` in it, and `detach` after it.

    A `fit` that is interrupted tells its callbacks nothing; the next `fit`, `train_on_batch` or
    `evaluate` finds the model clean, and so does any other code after `detach()`.

    Args:
        method: what to train with, such as `sigua.sigua_sl(noise_rate=0.5, delta=0.15)`.
        output: the name or index of the output it is for, if the model has several.
        loss: what measures an example, as for `compile`; by default the compiled loss. Per-example
            losses must have shape (batch,), hence predictions (batch, classes) or (batch, 1).

    Raises:
        ValueError: `method` is none. When training begins: no loss is compiled, or one that divides
            by the sum of its weights; the model has another SIGUA. In the first step: several
            outputs and no `output`, a loss without one value per example, T of another size. After
            the first epoch: a `train_step` that never called `compute_loss`.
    """

    def __init__(self, method: Method, output: str | int | None = None, loss: Any = None) -> None:
        super().__init__()
        require_method(method)
        self.method, self.output, self.loss = method, output, loss
        self._attachment: Attachment | None = None

    def attach(self, model: Any) -> None:
        """Train the compiled model with SIGUA until `detach`, from epoch 0 of the method."""
        self._attach(model, for_one_fit=False)

    def set_epoch(self, epoch: float) -> None:
        """Say which epoch begins; it counts from 0 and may be fractional.

        Raises:
            ValueError: `epoch` is negative, or nothing is attached.
        """
        self._attached().objective.shares.set_epoch(epoch)

    def detach(self) -> None:
        """Give the model its plain training back; without effect if nothing is attached."""
        if self._attachment is not None:
            self._attachment.remove()
        self._attachment = None

    def _attach(self, model: Any, for_one_fit: bool) -> None:
        with strategy_scope(model):
            objective = Objective(self.method, self.output, self.loss)
        self._attachment = Attachment(model, objective, for_one_fit)

    def _attached(self) -> Attachment:
        attachment = self._attachment
        if attachment is None or vars(attachment.model).get("_sigua") is not attachment:
            advice = "call attach(model) first, and no train_on_batch inside fit"
            raise checks.refuse("SIGUA", "must be attached to a model", "it is not", advice)
        return attachment

    def on_train_begin(self, logs: Any = None) -> None:
        attachment = self._attachment
        if attachment is None or vars(self.model).get("_sigua") is not attachment:
            self._attach(self.model, for_one_fit=True)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.set_epoch(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        require_reached(self._attached().objective)

    def on_train_end(self, logs: Any = None) -> None:
        if self._attachment is not None and self._attachment.for_one_fit:
            self.detach()


def require_method(method: Any) -> None:
    """Raise ValueError unless it is a method of `sigua`."""
    if not isinstance(method, Method):
        came = f"a {type(method).__name__} came"
        raise checks.refuse("method", "must be a method of sigua", came, "try sigua.sigua_sl(...)")


def require_reached(objective: Objective) -> None:
    """Raise ValueError if an epoch of training never asked for the loss."""
    if not objective.reached:
        rule = "must call self.compute_loss(x, y, y_pred, sample_weight)"
        came = "it did not in a whole epoch, so that training was plain"
        raise checks.refuse("train_step", rule, came, "compute the loss with it")
