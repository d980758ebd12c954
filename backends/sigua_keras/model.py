"""`SIGUAModel`, a model that always trains with SIGUA."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from sigua import Method
from sigua.requirements import require_method
from sigua_keras import _check
from sigua_keras._examples import Groups
from sigua_keras._objective import Objective
from sigua_keras._outputs import Objectives
from sigua_keras._training import Training


@keras.saving.register_keras_serializable(package="sigua")
class SIGUAModel(Training, keras.Model):
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
        groups: who is judged together, as for `SIGUA`; a function must be registered with Keras
            to be saved.
        steps_per_epoch: count the epoch in training steps, as for `SIGUA`.
        **kwargs: of `keras.Model`.

    Raises:
        ValueError: as for `SIGUA`; `model` is not a model of Keras, or is a SIGUAModel already.
    """

    def __init__(
        self,
        model: Any,
        method: Method,
        output: str | int | None = None,
        loss: Any = None,
        groups: Groups = None,
        steps_per_epoch: int | None = None,
        **kwargs: Any,
    ) -> None:
        require_method(method)
        _check.arguments({name: kwargs[name] for name in kwargs.keys() & _check.GONE.keys()})
        _check.output(output)
        _check.groups(method, groups)
        if not isinstance(model, keras.Layer) or isinstance(model, SIGUAModel):
            raise ValueError(
                f"model: must be a plain model of Keras, got {type(model).__name__}; "
                "try a keras.Model"
            )
        objective = Objective(method, output, loss, groups, steps_per_epoch)
        vars(self)["_sigua"] = Objectives()
        super().__init__(**kwargs)
        self.model = model
        self.method = method
        self._sigua.model = self
        self._sigua.put([objective])

    @property
    def _objective(self) -> Objective:
        return self._sigua.all[0]

    @property
    def output_names(self) -> Any:
        return self.model.output_names  # AttributeError, as Keras expects, if it has none

    @property
    def epoch(self) -> float:
        """The epoch whose numbers training reads."""
        return self._objective.clock.epoch

    def set_epoch(self, epoch: float) -> None:
        """Set the epoch that begins; epochs count from 0 and may be fractional.

        Raises:
            ValueError: `epoch` is negative, a schedule left its range, or steps are counted.
        """
        self._objective.clock.tell(epoch)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.model(inputs, training=training)

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
        told = _Epochs()
        if not isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks = [told, *keras.tree.flatten(callbacks or [])]
            return super().fit(x, y, batch_size, epochs, verbose, callbacks, **kwargs)
        told.set_model(self)
        told.set_params({"epochs": epochs} | (callbacks.params or {}))
        callbacks.callbacks.insert(0, told)
        try:
            return super().fit(x, y, batch_size, epochs, verbose, callbacks, **kwargs)
        finally:
            callbacks.callbacks.remove(told)

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        clock, seen = self._objective.clock, self._objective.shares.seen
        store["sigua_epoch"] = np.float64(clock.epoch)
        store["sigua_finished"] = np.float64(clock.finished)
        if seen is not None:
            store["sigua_confidence"] = np.array(keras.ops.convert_to_numpy(seen))

    def load_own_variables(self, store: Any) -> None:
        ours = {"sigua_epoch", "sigua_finished", "sigua_confidence"}
        names = set(store.keys())
        super().load_own_variables({name: store[name] for name in names - ours})
        clock, shares = self._objective.clock, self._objective.shares
        clock.set(float(np.asarray(store["sigua_epoch"])))
        clock.finished = bool(np.asarray(store["sigua_finished"]))
        if "sigua_confidence" in names:
            seen = np.asarray(store["sigua_confidence"])
            shares.open(seen.shape[1])
            shares.seen.assign(seen)

    def get_config(self) -> dict[str, Any]:
        save, objective = keras.saving.serialize_keras_object, self._objective
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": save(self.dtype_policy),
            "model": save(self.model),
            "method": self.method.to_dict(),
            "output": objective.output,
            "loss": save(objective.loss),
            "groups": save(objective.groups),
            "steps_per_epoch": objective.clock.steps_per_epoch,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> SIGUAModel:
        load = keras.saving.deserialize_keras_object
        loaded = {
            name: load(config[name], custom_objects=custom_objects)
            for name in ("model", "loss", "groups", "dtype")
        }
        return cls(**config | loaded | {"method": Method.from_dict(config["method"])})


class _Epochs(keras.callbacks.Callback):
    """Tells a `SIGUAModel` which epoch begins."""

    def on_train_begin(self, logs: Any = None) -> None:
        self.model._objective.clock.begin_fit()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model._objective.clock.begin_epoch(epoch, self.params)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model._objective.end_epoch(epoch, logs)
