"""`SIGUAModel`, a model that always trains with SIGUA."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from sigua import Method
from sigua_keras._check import Groups
from sigua_keras.callback import SIGUA

_ARGUMENTS = ("output", "loss", "groups", "steps_per_epoch")


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
        output, loss, groups, steps_per_epoch: as for `SIGUA`. A function of your own is saved if it
            is registered with Keras.
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
        callback = SIGUA(method, output, loss, groups=groups, steps_per_epoch=steps_per_epoch)
        if not isinstance(model, keras.Layer) or isinstance(model, SIGUAModel):
            raise ValueError(
                f"model: must be a plain model of Keras, got {type(model).__name__}; "
                "try a keras.Model"
            )
        super().__init__(**kwargs)
        self.model, self.method = model, method
        self._callback = callback
        self.built = model.built  # it has no weights of its own
        self._objective = callback.enter(self)

    @property
    def output_names(self) -> Any:
        return self.model.output_names  # AttributeError, as Keras expects, if it has none

    @property
    def _outputs_struct(self) -> Any:
        return (getattr(self.model, "_functional", None) or self.model)._outputs_struct

    @property
    def epoch(self) -> float:
        """The epoch whose numbers training reads."""
        return self._callback.epoch

    def set_epoch(self, epoch: float) -> None:
        """Set the epoch that begins; epochs count from 0 and may be fractional.

        Raises:
            ValueError: `epoch` is negative, a schedule left its range, or steps are counted.
        """
        self._callback.set_epoch(epoch)

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
        given = getattr(callbacks, "callbacks", callbacks)  # of a CallbackList
        callbacks = [self._callback, *keras.tree.flatten(given or [])]
        return super().fit(x, y, batch_size, epochs, verbose, callbacks, **kwargs)

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        clock, seen = self._objective.clock, self._objective.shares.seen
        store["sigua_epoch"] = np.float64(clock.epoch)
        store["sigua_finished"] = np.float64(clock.finished)
        if seen is not None:
            store["sigua_confidence"] = np.array(keras.ops.convert_to_numpy(seen))

    def load_own_variables(self, store: Any) -> None:
        found = {name: store[name] for name in store.keys()}  # noqa: SIM118  # of a file
        epoch, finished = found.pop("sigua_epoch"), found.pop("sigua_finished")
        seen = found.pop("sigua_confidence", None)
        super().load_own_variables(found)
        clock, shares = self._objective.clock, self._objective.shares
        clock.set(float(np.asarray(epoch)))
        clock.finished = bool(np.asarray(finished))
        if seen is not None:
            shares.open(seen.shape[1])
            shares.seen.assign(np.asarray(seen))

    def get_config(self) -> dict[str, Any]:
        config = {name: getattr(self._callback, name) for name in _ARGUMENTS}
        config |= {name: getattr(self, name) for name in ("model", "name", "trainable")}
        config |= {"dtype": self.dtype_policy, "method": self.method.to_dict()}
        return dict(keras.saving.serialize_keras_object(config))

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> SIGUAModel:
        config = keras.saving.deserialize_keras_object(config, custom_objects=custom_objects)
        return cls(**config | {"method": Method.from_dict(config["method"])})
