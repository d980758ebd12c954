"""`SIGUA`, the callback that trains a model with SIGUA while `model.fit` runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from sigua import Method
from sigua.requirements import require_method
from sigua_keras import _check, _clock
from sigua_keras._attach import Attachment, strategy_scope
from sigua_keras._objective import Objective
from sigua_keras._select import Ranking


class SIGUA(keras.callbacks.Callback):
    """Trains a compiled model with a `sigua` method: add it to the callbacks of `fit`.

        objective = sum_i loss_i * (good_i - gamma * bad_i) / n                          (Eq. 3)

    Only training changes: validation, `evaluate` and everything after `fit` use the plain loss.
    History and progress bar show `sigua_good` and `sigua_bad`, shares of the epoch's examples that
    take part.

    The training loss in the logs is SIGUA's objective and is not comparable with `val_loss`: let
    EarlyStopping, ReduceLROnPlateau and ModelCheckpoint monitor a `val_` metric.

    The epochs of the method are those of `fit`, and whole: training for one epoch, or on an endless
    stream, is plain unless `steps_per_epoch` counts epochs in steps. If a callback is used again on
    the same model it continues where it stopped, so a loop of `fit(epochs=1)` has its warm-up;
    `initial_epoch` sets another epoch, and a new callback, or a copy, begins at 0. After 1,000
    steps at epoch 0, with no other epoch to come, it warns that the epoch may have been forgotten.

    Sample and class weights scale losses but never decide which examples are good. An example of
    weight 0 has no rank. Nor has an example whose label is not a class of T, or of a classification
    loss of Keras or ours: -1, k, a fraction, NaN, a row of zeros; the first epoch warns how many
    there were. An example that a Keras mask hides, or whose label is the loss's `ignore_class`, has
    no rank either, and is not counted in n.

    With predictions (batch, d1, ..., classes) each time step or pixel is an example: labels have
    shape (batch, d1, ...), or one-hot rows, and sample weights (batch, d1, ...), or (batch, 1, ...)
    for one per sequence or image. A loss of your own is called with whole sequences or images, and
    returns one value for each.

    For `sigua.Known` (and a condition of your own that reads `trusted`) the *sign* of
    `sample_weight` marks each example, plus for good and minus for bad, and its magnitude is the
    weight. Leave out `weighted_metrics` and the weights of `validation_data` then, because Keras
    gives them the signs, too. This is the line for Known:

        model.fit(x, y, sample_weight=np.where(trusted, 1.0, -1.0), callbacks=[SIGUA(method)])

    Booleans are refused. 0 and 1 cannot be distinguished from weights: 0 leaves an example out, and
    nothing is forgotten. Nor can `class_weight` alone, with which every example is good. Other
    outputs of the model are weighed by the magnitudes.

    For all other methods a negative weight, which would climb, makes the loss NaN, because a
    compiled step cannot refuse it. Nor can it refuse rows of several classes where T, `per_class`
    or `Agreement` needs one.

    Selection is per mini-batch: per replica under tf.distribute, global under keras.distribution
    on JAX. A NaN loss makes the objective NaN; an infinite one is neither good nor bad, and 0 in
    the sum.

    T needs one label per example; the label of a one-hot row is its largest entry.

    Each noisy output has a callback of its own, whose metrics are then named after the output:
    `callbacks=[SIGUA(one, output="a"), SIGUA(other, output="b")]` shows `a_sigua_good`.

    Each `fit` compiles the training step once. In a loop of short fits or of `train_on_batch`, call
    `attach` before it, `set_epoch` in it, and `detach` after it.

    If a `fit` is interrupted, Keras does not tell its callbacks. The next `fit` or `train_on_batch`
    is plain again; before any other code, call `detach()` to clean the model. So it is after an
    error in another callback. An error in a training step leaves the model as it was. On JAX, a
    step that fails on the device, not while it is traced, loses the model's weights; Keras itself
    does that, with or without SIGUA.

    For `Agreement` (`sigua.sigua_ag()`), `sigua_bad` is the share that is dropped: after the
    warm-up an estimate of the noise rate. Margins are those of the model's own probabilities,
    whatever T corrects. The class confidence is reset in `attach`, and when a `fit` begins epoch 0
    of the method, and otherwise continues with the epochs. Another callback, such as one in a new
    process, starts with an empty one; a `SIGUAModel` saves it. Each output has its own. Under
    tf.distribute it is per replica, as selection is. The loss must be a cross-entropy between
    classes; a loss of your own must say what predictions are, by an attribute `from_logits`.

    After the warm-up of a small-loss method, an epoch in which no example was dropped, or none was
    bad, gives a warning.

    Args:
        method: the method to train with, such as `sigua.sigua_sl(noise_rate=0.5, delta=0.15)`.
        output: the output it is for, if the model has several: its name, or its index unless the
            model predicts a dict.
        loss: the loss that training optimises, as for `compile`; by default the compiled loss,
            which is always used for validation.
        per_class: whether to select among the examples of each label separately, so that a rare or
            hard class is not dropped as a whole. A mini-batch then needs several examples of each.
            Not for `sigua_nf` and `sigua_fc`, whose floor is that of all classes.
        per_image: whether to select among the time steps or pixels of each example separately, with
            predictions (batch, d1, ..., classes). With `per_class`, among those of each label in
            each example.
        rank_by: the loss that decides, if it is not the one that is optimised, as for `compile`:
            for example plain cross-entropy with label smoothing, the only one for `sigua_nf`.
        steps_per_epoch: the number of training steps to count as an epoch, over all that the
            callback trains, instead of the epochs of `fit` or `set_epoch`. With Keras's
            `steps_per_execution`, all steps of an execution use the numbers of its first.

    Raises:
        ValueError: `method` is not a method, `output` is neither a name nor an index, or
            `steps_per_epoch` is not a whole number. When training begins: no loss is compiled, or
            it divides by the sum of its weights, or is a `SIGUALoss`; the output has another SIGUA;
            for `Agreement`, a loss that is not between classes, or by class a model with unknown
            outputs, unless TensorFlow finds them in the first step. Then, or in the first step if
            the model's outputs are not known before: several outputs and no `output`, T of another
            size, several labels per example with T or `per_class`. In the first step: a loss
            without one value per example, or labels that do not fit a loss of Keras; for Known, no
            sample weights, or booleans; a `compute_loss` of the model's that does not call
            `super().compute_loss`. After the first epoch: a `train_step` that never called it.
    """

    def __init__(
        self,
        method: Method,
        output: str | int | None = None,
        loss: Any = None,
        *,
        per_class: bool = False,
        per_image: bool = False,
        rank_by: Any = None,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        require_method(method)
        _check.output(output)
        _check.ranking(method, per_class, per_image, rank_by)
        self.method, self.output, self.loss = method, output, loss
        self.steps_per_epoch = _clock.steps_per_epoch(steps_per_epoch)
        self._ranking = Ranking(per_class, per_image, rank_by)
        self._attachment: Attachment | None = None
        self._objective: Objective | None = None
        self._trained: Any = None  # the model it is for
        self._for_one_fit = True

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or pickle holds: the arguments, so that it begins at epoch 0."""
        nothing = dict.fromkeys(["_attachment", "_objective", "_trained", "_model", "params"])
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
        attachment = Attachment.of(model)
        self._leave(model)
        attachment.leave_one_fit()  # one that was interrupted
        self._attach(model, for_one_fit=False)

    def set_epoch(self, epoch: float) -> None:
        """Set the epoch that begins; epochs count from 0 and may be fractional.

        Raises:
            ValueError: `epoch` is negative, nothing is attached, or steps are counted.
        """
        self._attached().clock.tell(epoch)

    def detach(self) -> None:
        """Restore plain training; without effect if nothing is attached."""
        if self._attachment is not None and self._objective is not None:
            self._attachment.remove(self._objective)
        self._attachment = None

    def _leave(self, model: Any) -> None:
        """Let go of another model, if its `fit` is over."""
        earlier = self._attachment
        if earlier is None or earlier.model is model:
            return
        if not self._for_one_fit:
            raise ValueError(
                "SIGUA: must be attached to one model at a time, got a second one; "
                "try detach() first, or another SIGUA"
            )
        self.detach()  # after a fit that was interrupted

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
            raise ValueError(
                "SIGUA: must be attached to a model, got none; "
                "try attach(model) first, and no train_on_batch inside fit"
            )
        assert objective is not None
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
