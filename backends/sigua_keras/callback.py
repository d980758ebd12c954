"""`SIGUA`, the callback: the objective of `model.fit` while it runs."""

from __future__ import annotations

from typing import Any

import keras

from sigua import Method, checks
from sigua_keras import _check
from sigua_keras._attach import Attachment, strategy_scope
from sigua_keras._objective import Objective
from sigua_keras._select import Ranking


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
    `weighted_metrics` and the weights of `validation_data` out then, for Keras hands them the
    signs, too. There is one right line for Known:

        model.fit(x, y, sample_weight=np.where(trusted, 1.0, -1.0), callbacks=[SIGUA(method)])

    Booleans are refused. 0 and 1 cannot be told from weights: 0 leaves an example out, and nothing
    is forgotten. Nor can `class_weight` alone, with which every example is good. Other outputs of
    the model are weighed by the magnitudes.

    For all other methods a negative weight, which would climb, makes the loss NaN: a compiled step
    cannot refuse it.

    Selection is per mini-batch: per replica under tf.distribute, global under keras.distribution
    on JAX. A NaN loss makes the objective NaN, and so does an infinite one, because Keras
    multiplies it by its weight of 0.

    T needs a label per example: of one-hot rows the largest entry. With a correction and several
    outputs, Keras's own log of that output's loss reads 0; the total is right.

    Each `fit` compiles the training step once. In a loop of short fits or of `train_on_batch`, call
    `attach` before it, `set_epoch` in it, and `detach` after it.

    A `fit` that is interrupted tells its callbacks nothing; the next `fit` or `train_on_batch` is
    plain again, and any other code finds the model clean after `detach()`. On JAX, an error
    inside a step loses the model's weights; that is Keras's own way there, with or without SIGUA.

    For `Agreement` (`sigua.sigua_ag()`) `sigua_bad` is the share that is dropped: after the warm-up
    an estimate of the noise rate. Margins are those of the model's own probabilities, whatever T
    corrects. Its class confidence begins empty at epoch 0 of a `fit` and in `attach`, and goes on
    when the same callback resumes the same model with `initial_epoch`; another callback, such as
    one in a new process, begins with nothing seen, and a `SIGUAModel` saves it. It is per replica
    under tf.distribute, as selection is. The compiled loss must be a cross-entropy between
    classes; one of your own must say, by an attribute `from_logits`, what predictions are.

    Once the warm-up of a small-loss method is over, an epoch in which nobody was dropped, or nobody
    bad, is warned of.

    Args:
        method: what to train with, such as `sigua.sigua_sl(noise_rate=0.5, delta=0.15)`.
        output: which output it is for, if the model has several: its name, or its index unless the
            model predicts a dict.
        loss: what measures an example, as for `compile`; by default the compiled loss. Per-example
            losses must have shape (batch,), hence predictions (batch, classes) or (batch, 1).
        per_class: select among the examples of each label apart, so that a rare or hard class is
            not dropped as a whole. A mini-batch then needs several of each. Not for `sigua_nf` and
            `sigua_fc`, whose floor is that of all classes.
        rank_by: the loss that decides, if it is not the one that is optimised, as for `compile`:
            plain cross-entropy beside label smoothing, say, the only one that `sigua_nf` takes.

    Raises:
        ValueError: `method` is none, or `output` neither name nor index. When training begins: no
            loss is compiled, or one that divides by the sum of its weights, or a `SIGUALoss`; the
            model has another SIGUA; for `Agreement` a loss of no classes, or by class a model whose
            outputs are unknown, if TensorFlow does not find them in the first step. Then, or in the
            first step of a model that does not know its outputs before: several outputs and no
            `output`, T of another size. In the first step: a loss without one value per example;
            for Known no sample weights, or booleans. After the first epoch: a `train_step` that
            never called `compute_loss`.
    """

    def __init__(
        self,
        method: Method,
        output: str | int | None = None,
        loss: Any = None,
        *,
        per_class: bool = False,
        rank_by: Any = None,
    ) -> None:
        super().__init__()
        Method.require(method)
        _check.output(output)
        _check.ranking(method, per_class, rank_by)
        self.method, self.output, self.loss = method, output, loss
        self._ranking = Ranking(per_class, rank_by)
        self._attachment: Attachment | None = None
        self._seen: tuple[Any, Any] = None, None  # a model and its class confidence so far

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
            self._seen = self._attachment.model, self._attachment.objective.shares.seen()
        self._attachment = None

    def _attach(self, model: Any, for_one_fit: bool) -> None:
        earlier = self._attachment
        if earlier is not None and earlier.model is not model:
            if not earlier.for_one_fit:
                rule = "a callback is attached to one model at a time"
                advice = "call detach() first, or make another SIGUA"
                raise checks.refuse("SIGUA", rule, "it is attached to another", advice)
            earlier.remove()  # of a fit that was interrupted
        with strategy_scope(model):
            objective = Objective(self.method, self.output, self.loss, self._ranking)
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
            if attachment is not None and attachment.for_one_fit:
                self.detach()  # a fit that was interrupted
            self._attach(self.model, for_one_fit=True)
            model, seen = self._seen
            if model is self.model:
                self._attached().objective.shares.go_on(seen)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.set_epoch(epoch)
        self._attached().objective.shares.forget(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._attached().objective.end_epoch(epoch, logs)

    def on_train_end(self, logs: Any = None) -> None:
        if self._attachment is not None and self._attachment.for_one_fit:
            self.detach()
