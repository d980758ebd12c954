"""`SIGUAModel`, a model that always trains with SIGUA."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from sigua import Method
from sigua.requirements import require_method
from sigua_keras import _check, _clock
from sigua_keras._attach import strategy_scope
from sigua_keras._metrics import evaluating, require_tracked, track, without_shares
from sigua_keras._objective import Objective, total_loss
from sigua_keras._select import Ranking
from sigua_keras._step import carried, guarded


@keras.saving.register_keras_serializable(package="sigua")
class SIGUAModel(keras.Model):
    """Trains the model inside with a `sigua` method, however it is trained.

    It predicts and evaluates as the model inside does. `fit` follows the method's schedules, from
    the epoch of `set_epoch` or after the last epoch (of a loaded model, too), unless
    `initial_epoch` sets another; for `train_on_batch`, call `set_epoch`. A `train_step` of your own
    in a subclass works if it calls `self.compute_loss`. Method, epoch and class confidence are
    saved with the model.

    The notes of `SIGUA` on losses, labels, weights and logs hold here as well. A `SIGUAModel` is
    for one output; if several are noisy, use a `SIGUA` for each.

    Args:
        model: the model to train; built or not.
        method: the method to train with, such as `sigua.sigua_sl(noise_rate=0.5, delta=0.15)`.
        output: the output it is for, as for `SIGUA`.
        loss: the loss that training optimises, as for `SIGUA`; by default the compiled loss.
        per_class: whether to select among the examples of each label separately, as for `SIGUA`.
        per_image: whether to select among the places of each example separately, as for `SIGUA`.
        rank_by: the loss that decides, as for `SIGUA`.
        steps_per_epoch: count the epoch in training steps, as for `SIGUA`.
        **kwargs: of `keras.Model`.

    Raises:
        ValueError: as for `SIGUA`; `model` is not a model of Keras, or is a SIGUAModel already.
    """

    train_function: Any

    def __init__(
        self,
        model: Any,
        method: Method,
        output: str | int | None = None,
        loss: Any = None,
        per_class: bool = False,
        per_image: bool = False,
        rank_by: Any = None,
        steps_per_epoch: int | None = None,
        **kwargs: Any,
    ) -> None:
        require_method(method)
        _check.output(output)
        if not isinstance(model, keras.Layer) or isinstance(model, SIGUAModel):
            raise ValueError(
                f"model: must be a plain model of Keras, got {type(model).__name__}; "
                "try a keras.Model"
            )
        steps_per_epoch = _clock.steps_per_epoch(steps_per_epoch)
        super().__init__(**kwargs)
        self.model = model
        self.method = method
        ranking = Ranking(per_class, per_image, rank_by)
        self._sigua = Objective(method, output, loss, ranking, steps_per_epoch)
        track(self, [self._sigua])

    @property
    def output_names(self) -> Any:
        return self.model.output_names  # AttributeError, as Keras expects, if it has none

    @property
    def epoch(self) -> float:
        """The epoch whose numbers training reads."""
        return self._sigua.clock.epoch

    def set_epoch(self, epoch: float) -> None:
        """Set the epoch that begins; epochs count from 0 and may be fractional.

        Raises:
            ValueError: `epoch` is negative, a schedule left its range, or steps are counted.
        """
        self._sigua.clock.tell(epoch)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.model(inputs, training=training)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        given = x, y, y_pred, sample_weight, training
        return total_loss([self._sigua], self, super().compute_loss, *given)

    def make_train_function(self, force: bool = False) -> Any:
        if self.train_function is not None and not force:
            return
        with strategy_scope(self):
            self._sigua.check(self, self.model)
        require_tracked(self, self._sigua)
        self.__dict__.pop("train_step", None)
        self.__dict__["train_step"] = carried(self, [self._sigua], self.train_step)
        super().make_train_function(force=True)
        self.train_function = guarded(self, [self._sigua], self.train_function)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        **kwargs: Any,
    ) -> Any:
        epochs_told = _clock.Epochs()
        if not isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks = [epochs_told, *keras.tree.flatten(callbacks or [])]
            return super().fit(x, y, batch_size, epochs, verbose, callbacks, **kwargs)
        epochs_told.set_model(self)
        epochs_told.set_params({"epochs": epochs} | (callbacks.params or {}))
        callbacks.callbacks.insert(0, epochs_told)
        try:
            return super().fit(x, y, batch_size, epochs, verbose, callbacks, **kwargs)
        finally:
            callbacks.callbacks.remove(epochs_told)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        with evaluating(self, [self._sigua]):
            return super().evaluate(*args, **kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with evaluating(self, [self._sigua]):
            return super().test_on_batch(*args, **kwargs)

    def _flatten_metrics_in_order(self, logs: Any) -> Any:
        return super()._flatten_metrics_in_order(without_shares(logs, [self._sigua]))

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        clock, seen = self._sigua.clock, self._sigua.shares.seen()
        store["sigua_epoch"] = np.float64(clock.epoch)
        store["sigua_finished"] = np.float64(clock.finished)
        if seen is not None:
            store["sigua_confidence"] = seen

    def load_own_variables(self, store: Any) -> None:
        ours = {"sigua_epoch", "sigua_finished", "sigua_confidence"}
        names = set(store.keys())
        super().load_own_variables({name: store[name] for name in names - ours})
        clock = self._sigua.clock
        clock.set(float(np.asarray(store["sigua_epoch"])))
        clock.finished = bool(np.asarray(store["sigua_finished"]))
        if "sigua_confidence" in names:
            self._sigua.shares.go_on(np.asarray(store["sigua_confidence"]))

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "model": keras.saving.serialize_keras_object(self.model),
            "method": self.method.to_dict(),
            "output": self._sigua.output,
            "loss": keras.saving.serialize_keras_object(self._sigua.loss),
            "per_class": self._sigua.ranking.per_class,
            "per_image": self._sigua.ranking.per_image,
            "rank_by": keras.saving.serialize_keras_object(self._sigua.ranking.rank_by),
            "steps_per_epoch": self._sigua.clock.steps_per_epoch,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> SIGUAModel:
        load = keras.saving.deserialize_keras_object
        loaded = {
            name: load(config[name], custom_objects=custom_objects)
            for name in ("model", "loss", "rank_by", "dtype")
        }
        return cls(**config | loaded | {"method": Method.from_dict(config["method"])})
