"""`SIGUALoss`, a Keras loss for methods that do not change from epoch to epoch."""

from __future__ import annotations

from typing import Any

import keras

from sigua import Method
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
    A loss does not know whether the model is training, so once compiled it is the validation loss,
    too. The callback `SIGUA` keeps the plain validation loss, and accepts every method. Examples
    take no part because of a label, a weight or a mask as with `SIGUA`.

    Args:
        method: the method to train with; without a schedule.
        loss: the loss of an example: a name, a function or an object of `keras.losses`.
        reduction: as for any loss of Keras; "mean_with_sample_weight" is refused.
        name: of the loss.
        per_class: whether to select among the examples of each label separately, as for `SIGUA`.
        per_image: whether to select among the places of each example separately, as for `SIGUA`.
        rank_by: the loss that decides, as for `SIGUA`.

    Raises:
        ValueError: the method has a schedule, or keeps a class confidence (`Agreement` by class);
            a reduction that divides by signed weights; for `Agreement`, a loss that is not between
            classes; or other arguments that do not fit the method.
    """

    def __init__(
        self,
        method: Method,
        loss: Any = "sparse_categorical_crossentropy",
        reduction: str | None = "sum_over_batch_size",
        name: str = "sigua_loss",
        *,
        per_class: bool = False,
        per_image: bool = False,
        rank_by: Any = None,
    ) -> None:
        require_method(method)
        if method.horizon > 0:
            advice = "the callback, sigua_keras.SIGUA(method)"
            if method.horizon == float("inf") and not hasattr(method.condition, "horizon"):
                advice += ", or horizon = 0 on the condition if it never changes"
            raise ValueError(
                "method: must not change from epoch to epoch, because a loss does not know the "
                f"epoch, got {method!r}; try {advice}"
            )
        if reads(method.condition, "confidence"):
            raise ValueError(
                "method: must not need the class confidence, which a loss cannot keep, got "
                f"{method!r}; try the callback, sigua_keras.SIGUA(method), or by_class=False"
            )
        if reduction == "mean_with_sample_weight":
            raise ValueError(
                "reduction: must not divide by the sum of the weights, which are signed here, "
                "got 'mean_with_sample_weight'; try 'sum_over_batch_size'"
            )
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.method, self.loss = method, loss
        _check.known("loss", loss)
        if reads(method.condition, "margins"):
            require_classes(loss)
        _check.ranking(method, per_class, per_image, rank_by)
        self._ranking = Ranking(per_class, per_image, rank_by)
        self._correction = correction_of(method)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Return the objective of a mini-batch.

        Args:
            y_true: labels, integers (n,) or (n, 1), or one-hot (n, k); or one for each place.
            y_pred: predictions, (n, k), or (n, 1) for one sigmoid unit; or (n, d1, ..., k).
            sample_weight: (n,) or (n, d1, ...); it scales losses but does not change their rank,
                and an example of weight 0 has no rank. For `sigua.Known` its sign marks the good
                examples: `np.where(trusted, 1.0, -1.0)`.

        Raises:
            ValueError: no sample weights, or booleans, for `sigua.Known`; for other methods a
                negative weight in a NumPy array or a list (in a tensor it makes the loss NaN);
                predictions that do not fit the method.
        """
        y_true = _measure.squeeze_labels(keras.ops.convert_to_tensor(y_true), y_pred)
        loss = _measure.resolve(self.loss, y_true, y_pred)
        numbers = self.method.at(0)
        measured = loss, y_true, y_pred, sample_weight, self._ranking, self.reduction
        done = weigh(self.method, self._correction, numbers, *measured)
        return super().__call__(done.losses, done.losses, sample_weight=done.weights)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return y_pred  # `__call__` has already computed the losses

    def get_config(self) -> dict[str, Any]:
        loss = keras.saving.serialize_keras_object(self.loss)
        per_class, per_image, rank_by = self._ranking
        return super().get_config() | {
            "method": self.method.to_dict(),
            "loss": loss,
            "per_class": per_class,
            "per_image": per_image,
            "rank_by": keras.saving.serialize_keras_object(rank_by),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SIGUALoss:
        method = Method.from_dict(config["method"])
        load = keras.saving.deserialize_keras_object
        losses = {name: load(config[name]) for name in ("loss", "rank_by")}
        return cls(**config | losses | {"method": method})
