"""`SIGUALoss`, a Keras loss for methods that do not change from epoch to epoch."""

from __future__ import annotations

from typing import Any

import keras

from sigua import Method, checks
from sigua.conditions import reads
from sigua.requirements import require_method
from sigua_keras import _check, _measure
from sigua_keras._correct import correction_of
from sigua_keras._margins import require_classes
from sigua_keras._select import Ranking, weigh


@keras.saving.register_keras_serializable(package="sigua")
class SIGUALoss(keras.losses.Loss):
    """A loss that trains with a `sigua` method without an epoch, such as `sigua.sigua_bc(T)`.

    For `compile`, and for loops of your own around `tf.GradientTape`, `jax.grad` or `backward()`.
    A loss does not know whether it is training: compiled, it is the validation loss, too. The
    callback `SIGUA` leaves that alone, and takes every method. Who takes no part because of a
    label, a weight or a mask is as for `SIGUA`.

    Args:
        method: what to train with; without a schedule.
        loss: what measures an example: a name, a function or an object of `keras.losses`.
        reduction: as for any loss of Keras; "mean_with_sample_weight" is refused.
        name: of the loss.
        per_class: select among the examples of each label apart, as for `SIGUA`.
        rank_by: the loss that decides, as for `SIGUA`.

    Raises:
        ValueError: the method has a schedule, or keeps a class confidence (`Agreement` by class);
            a reduction that divides by signed weights; for `Agreement` a loss of no classes.
    """

    def __init__(
        self,
        method: Method,
        loss: Any = "sparse_categorical_crossentropy",
        reduction: str | None = "sum_over_batch_size",
        name: str = "sigua_loss",
        *,
        per_class: bool = False,
        rank_by: Any = None,
    ) -> None:
        require_method(method)
        if method.horizon > 0:
            rule = "must not change from epoch to epoch, which a loss does not know"
            advice = "use the callback, sigua_keras.SIGUA(method)"
            if method.horizon == float("inf") and not hasattr(method.condition, "horizon"):
                advice += "; horizon = 0 on the condition says that it never changes"
            raise checks.refuse("method", rule, f"{method!r} came", advice)
        if reads(method.condition, "confidence"):
            raise ValueError(
                "method: must not need the class confidence, which a loss cannot keep, got "
                f"{method!r}; try the callback, sigua_keras.SIGUA(method), or by_class=False"
            )
        if reduction == "mean_with_sample_weight":
            rule = "must not divide by the sum of the weights, which are signed here"
            came = "'mean_with_sample_weight' came"
            raise checks.refuse("reduction", rule, came, "use 'sum_over_batch_size'")
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.method, self.loss = method, loss
        _check.known("loss", loss)
        if reads(method.condition, "margins"):
            require_classes(loss)
        _check.ranking(method, per_class, rank_by)
        self._ranking = Ranking(per_class, rank_by)
        self._correction = correction_of(method)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the objective of a mini-batch.

        Args:
            y_true: labels, integers (n,) or (n, 1), or one-hot (n, k).
            y_pred: predictions, (n, k), or (n, 1) for one sigmoid unit.
            sample_weight: (n,); scales but does not rank, and 0 takes no rank. For `sigua.Known`
                its sign says who is good: `np.where(trusted, 1.0, -1.0)`.

        Raises:
            ValueError: sample weights that are none, or booleans, for `sigua.Known`; for other
                methods a negative one in a NumPy array or a list. In a tensor it makes the loss
                NaN.
        """
        y_true = _measure.squeeze_labels(keras.ops.convert_to_tensor(y_true), y_pred)
        loss = _measure.resolve(self.loss, y_true, y_pred)
        numbers = self.method.at(0)
        measured = loss, y_true, y_pred, sample_weight, self._ranking, self.reduction
        done = weigh(self.method, self._correction, numbers, *measured)
        return super().__call__(done.losses, done.losses, sample_weight=done.weights)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return y_pred  # already measured, by `__call__`

    def get_config(self) -> dict[str, Any]:
        loss = keras.saving.serialize_keras_object(self.loss)
        per_class, rank_by = self._ranking
        return super().get_config() | {
            "method": self.method.to_dict(),
            "loss": loss,
            "per_class": per_class,
            "rank_by": keras.saving.serialize_keras_object(rank_by),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SIGUALoss:
        method = Method.from_dict(config["method"])
        load = keras.saving.deserialize_keras_object
        losses = {name: load(config[name]) for name in ("loss", "rank_by")}
        return cls(**config | losses | {"method": method})
