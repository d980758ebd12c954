"""`SIGUAModel`, a model whose own training is SIGUA's."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from sigua import Method, checks
from sigua_keras import _check
from sigua_keras._attach import carried, evaluating, require_tracked, strategy_scope, track
from sigua_keras._objective import Objective
from sigua_keras._select import Ranking


@keras.saving.register_keras_serializable(package="sigua")
class SIGUAModel(keras.Model):
    """Trains the model inside with a `sigua` method, whatever asks it to train.

    It predicts and evaluates as the model inside does. `fit` follows the method's schedules by
    itself; for `train_on_batch` say `set_epoch`. A `train_step` of your own in a subclass works as
    long as it calls `self.compute_loss`. Method, epoch and class confidence are saved with it.

    What `SIGUA` says about outputs, losses, weights and logs holds here as well.

    Args:
        model: the model to train; built or not.
        method: what to train with, such as `sigua.sigua_sl(noise_rate=0.5, delta=0.15)`.
        output: which output it is for, as for `SIGUA`.
        loss: what measures an example, as for `compile`; by default the compiled loss.
        per_class: select among the examples of each label apart, as for `SIGUA`.
        rank_by: the loss that decides, as for `SIGUA`.
        **kwargs: of `keras.Model`.

    Raises:
        ValueError: as for `SIGUA`; `model` is none of Keras, or is a SIGUAModel already.
    """

    def __init__(
        self,
        model: Any,
        method: Method,
        output: str | int | None = None,
        loss: Any = None,
        per_class: bool = False,
        rank_by: Any = None,
        **kwargs: Any,
    ) -> None:
        Method.require(method)
        _check.output(output)
        if not isinstance(model, keras.Layer) or isinstance(model, SIGUAModel):
            came = f"a {type(model).__name__} came"
            advice = "give a keras.Model that trains plainly"
            raise checks.refuse("model", "must be a plain model of Keras", came, advice)
        super().__init__(**kwargs)
        self.model = model
        self.method = method
        self._sigua = Objective(method, output, loss, Ranking(per_class, rank_by))
        self._epoch = 0.0
        track(self, self._sigua)
        self.__dict__["train_step"] = carried(self, self._sigua, self.train_step)

    @property
    def output_names(self) -> Any:
        return self.model.output_names  # AttributeError, as Keras expects, if it has none

    @property
    def epoch(self) -> float:
        """The epoch whose numbers training reads."""
        return self._epoch

    def set_epoch(self, epoch: float) -> None:
        """Say which epoch begins; it counts from 0 and may be fractional.

        Raises:
            ValueError: `epoch` is negative, or a schedule left its range.
        """
        self._sigua.shares.set_epoch(epoch)
        self._epoch = float(epoch)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.model(inputs)  # Keras hands `training` down by itself

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        plain = super().compute_loss
        return self._sigua(self, plain, x, y, y_pred, sample_weight, training)

    def make_train_function(self, force: bool = False) -> Any:
        if force or self.train_function is None:
            with strategy_scope(self):
                self._sigua.check(self, self.model)
            require_tracked(self, self._sigua)
        return super().make_train_function(force=force)

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
        if isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks.append(Epochs())
        else:
            callbacks = [*keras.tree.flatten(callbacks or []), Epochs()]
        return super().fit(x, y, batch_size, epochs, verbose, callbacks, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        with evaluating(self, self._sigua):
            return super().evaluate(*args, **kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with evaluating(self, self._sigua):
            return super().test_on_batch(*args, **kwargs)

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        store["sigua_epoch"] = np.float64(self._epoch)
        seen = self._sigua.shares.seen()
        if seen is not None:
            store["sigua_confidence"] = seen

    def load_own_variables(self, store: Any) -> None:
        ours = {"sigua_epoch", "sigua_confidence"}
        names = set(store.keys())
        super().load_own_variables({name: store[name] for name in names - ours})
        self.set_epoch(float(np.asarray(store["sigua_epoch"])))
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
            "rank_by": keras.saving.serialize_keras_object(self._sigua.ranking.rank_by),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> SIGUAModel:
        load = keras.saving.deserialize_keras_object
        loaded = {
            name: load(config[name], custom_objects=custom_objects)
            for name in ("model", "loss", "rank_by", "dtype")
        }
        return cls(**config | loaded | {"method": Method.from_dict(config["method"])})


class Epochs(keras.callbacks.Callback):
    """Tells a `SIGUAModel` which epoch begins."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.set_epoch(epoch)
        self.model._sigua.shares.forget(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model._sigua.end_epoch(epoch, logs)
