"""`SIGUA`, the callback: the objective of `model.fit` while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from sigua import Method, checks
from sigua.requirements import require_method
from sigua_keras import _check, _clock
from sigua_keras._attach import Attachment, strategy_scope
from sigua_keras._objective import Objective
from sigua_keras._select import Ranking


class SIGUA(keras.callbacks.Callback):
    """Trains a compiled model with a `sigua` method: add it to the callbacks of `fit`.

        objective = sum_i loss_i * (good_i - gamma * bad_i) / n                          (Eq. 3)

    Only training changes: validation, `evaluate` and everything after `fit` have the plain loss.
    History and progress bar show `sigua_good` and `sigua_bad`, shares of the epoch's examples.

    The training loss in the logs is SIGUA's objective and is not comparable with `val_loss`: let
    EarlyStopping, ReduceLROnPlateau and ModelCheckpoint watch a `val_` metric.

    The epochs of the method are those of `fit`, and whole: a training of one epoch, or of an
    endless stream, is plain unless `steps_per_epoch` counts them in steps. A callback that is used
    again on the same model goes on where it stood, so that a loop of `fit(epochs=1)` has its
    warm-up; `initial_epoch` says another epoch, and a new callback begins at 0. After 1,000 steps
    at epoch 0, with no other epoch to come, it asks whether the epoch was forgotten.

    Sample and class weights scale losses but never decide who is good; an example of weight 0
    takes no rank. So does one whose label is no class of a classification loss of Keras or ours, or
    of T: -1, k, NaN, a row of zeros; the first epoch warns how many there were. One that a Keras
    mask hides takes no rank either, and is not in n.

    For `sigua.Known` (and a condition of your own that reads `trusted`) the *sign* of
    `sample_weight` marks each example, plus for good and minus for bad, and its magnitude is the
    weight; leave `weighted_metrics` and the weights of `validation_data` out then, for Keras hands
    them the signs, too. There is one right line for Known:

        model.fit(x, y, sample_weight=np.where(trusted, 1.0, -1.0), callbacks=[SIGUA(method)])

    Booleans are refused. 0 and 1 cannot be told from weights: 0 leaves an example out, and nothing
    is forgotten. Nor can `class_weight` alone, with which every example is good. Other outputs of
    the model are weighed by the magnitudes.

    For all other methods a negative weight, which would climb, makes the loss NaN: a compiled step
    cannot refuse it. Nor can it refuse rows of several classes where T, `per_class` or
    `Agreement` needs one.

    Selection is per mini-batch: per replica under tf.distribute, global under keras.distribution
    on JAX. A NaN loss makes the objective NaN, and so does an infinite one, because Keras
    multiplies it by its weight of 0.

    T needs a label per example: of one-hot rows the largest entry.

    Each noisy output has a callback of its own, whose metrics are then named after the output:
    `callbacks=[SIGUA(one, output="a"), SIGUA(other, output="b")]` shows `a_sigua_good`.

    Each `fit` compiles the training step once. In a loop of short fits or of `train_on_batch`, call
    `attach` before it, `set_epoch` in it, and `detach` after it.

    A `fit` that is interrupted tells its callbacks nothing; the next `fit` or `train_on_batch` is
    plain again, and any other code finds the model clean after `detach()`. What is refused leaves
    the model as it was. On JAX, any other error inside a step loses the model's weights; that is
    Keras's own way there, with or without SIGUA.

    For `Agreement` (`sigua.sigua_ag()`) `sigua_bad` is the share that is dropped: after the warm-up
    an estimate of the noise rate. Margins are those of the model's own probabilities, whatever T
    corrects. Its class confidence begins empty where a `fit` begins epoch 0 of the method and in
    `attach`, and goes on where the epochs go on; another callback, such as one in a new process,
    begins with nothing seen, and a `SIGUAModel` saves it. Each output has its own. It is per
    replica under tf.distribute, as selection is. The loss must be a cross-entropy between classes;
    one of your own must say, by an attribute `from_logits`, what predictions are.

    Once the warm-up of a small-loss method is over, an epoch in which nobody was dropped, or nobody
    bad, is warned of.

    Args:
        method: what to train with, such as `sigua.sigua_sl(noise_rate=0.5, delta=0.15)`.
        output: which output it is for, if the model has several: its name, or its index unless the
            model predicts a dict.
        loss: what training optimises, as for `compile`; by default the compiled loss, which stays
            the one of validation. Per-example losses must have shape (batch,), hence predictions
            (batch, classes) or (batch, 1).
        per_class: select among the examples of each label apart, so that a rare or hard class is
            not dropped as a whole. A mini-batch then needs several of each. Not for `sigua_nf` and
            `sigua_fc`, whose floor is that of all classes.
        rank_by: the loss that decides, if it is not the one that is optimised, as for `compile`:
            plain cross-entropy beside label smoothing, say, the only one that `sigua_nf` takes.
        steps_per_epoch: count the epoch in training steps, so many to one, over all that the
            callback trains, instead of taking it from `fit` or `set_epoch`. With Keras's
            `steps_per_execution`, those of one execution have the numbers of its first.

    Raises:
        ValueError: `method` is none, `output` neither name nor index, or `steps_per_epoch` no whole
            number. When training begins: no loss is compiled, or one that divides by the sum of its
            weights, or a `SIGUALoss`; the output has another SIGUA; for `Agreement` a loss of no
            classes, or by class a model whose outputs are unknown, if TensorFlow does not find them
            in the first step. Then, or in the first step of a model that does not know its outputs
            before: several outputs and no `output`, T of another size, several labels per example
            with T or `per_class`. In the first step: a loss without one value per example; for
            Known no sample weights, or booleans. After the first epoch: a `train_step` that never
            called `compute_loss`.
    """

    def __init__(
        self,
        method: Method,
        output: str | int | None = None,
        loss: Any = None,
        *,
        per_class: bool = False,
        rank_by: Any = None,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        require_method(method)
        _check.output(output)
        _check.ranking(method, per_class, rank_by)
        self.method, self.output, self.loss = method, output, loss
        self.steps_per_epoch = _clock.steps_per_epoch(steps_per_epoch)
        self._ranking = Ranking(per_class, rank_by)
        self._attachment: Attachment | None = None
        self._objective: Objective | None = None
        self._trained: Any = None  # the model it is for
        self._for_one_fit = True

    @property
    def epoch(self) -> float:
        """The epoch of the method whose numbers training reads."""
        return 0.0 if self._objective is None else self._objective.clock.epoch

    def attach(self, model: Any) -> None:
        """Train the compiled model with SIGUA until `detach`, from epoch 0 of the method."""
        self._leave(model)
        Attachment.of(model).leave_one_fit()  # one that was interrupted
        self._attach(model, for_one_fit=False)

    def set_epoch(self, epoch: float) -> None:
        """Say which epoch begins; it counts from 0 and may be fractional.

        Raises:
            ValueError: `epoch` is negative, nothing is attached, or steps are counted.
        """
        self._attached().clock.tell(epoch)

    def detach(self) -> None:
        """Give the model its plain training back; without effect if nothing is attached."""
        if self._attachment is not None and self._objective is not None:
            self._attachment.remove(self._objective)
        self._attachment = None

    def _leave(self, model: Any) -> None:
        """Let go of another model, if its `fit` is over."""
        earlier = self._attachment
        if earlier is None or earlier.model is model:
            return
        if not self._for_one_fit:
            rule = "a callback is attached to one model at a time"
            advice = "call detach() first, or make another SIGUA"
            raise checks.refuse("SIGUA", rule, "it is attached to another", advice)
        self.detach()  # of a fit that was interrupted

    def _attach(self, model: Any, for_one_fit: bool) -> None:
        attachment = Attachment.of(model)
        objective = self._objective
        if objective is None or not for_one_fit or self._trained is not model:
            with strategy_scope(model):
                given = self.method, self.output, self.loss, self._ranking, self.steps_per_epoch
                objective = Objective(*given)
        attachment.add(objective, for_one_fit)
        self._attachment, self._objective, self._trained = attachment, objective, model
        self._for_one_fit = for_one_fit

    def _attached(self) -> Objective:
        attachment, objective = self._attachment, self._objective
        if attachment is None or objective not in attachment.objectives:
            advice = "call attach(model) first, and no train_on_batch inside fit"
            raise checks.refuse("SIGUA", "must be attached to a model", "it is not", advice)
        assert objective is not None
        return objective

    @contextmanager
    def _cleaning(self) -> Iterator[None]:
        """Leave the model as it was if training is refused."""
        try:
            yield
        except ValueError:
            if self._for_one_fit:
                self.detach()
            raise

    def on_train_begin(self, logs: Any = None) -> None:
        self._leave(self.model)
        attachment = self._attachment
        if attachment is None or self._objective not in attachment.objectives:
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
