"""Losses for noisy labels that Keras does not have, to compile with and train with SIGUA.

    model.compile("adam", SymmetricCrossEntropy())
    model.fit(x, y, callbacks=[SIGUA(sigua.sigua_sl(noise_rate=0.5, delta=0.15))])

Labels are integers, (n,) or (n, 1), or rows of class probabilities, (n, k), such as one-hot ones;
predictions are (n, k), or (n, 1) for one sigmoid unit. Values are float32, one per example before
the reduction, and 0 for a label that is not a class. `sigua.losses` is the spec. Keras itself has
`CategoricalGeneralizedCrossEntropy` and `BinaryFocalCrossentropy`, and for one-hot labels
`CategoricalFocalCrossentropy` and `Huber`.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from sigua import checks
from sigua_keras._examples import Examples
from sigua_keras._loss import Tensor, float32, logits_of

__all__ = ["Bootstrapping", "SymmetricCrossEntropy"]

LOWEST = -3e38  # instead of -inf in 0 log 0, in float32

register = keras.saving.register_keras_serializable(package="sigua")


class _OnLabels(keras.losses.Loss):
    """A loss with parameters of its own, which are attributes and part of its config."""

    of_classes = True

    def __init__(self, name: str, reduction: str | None, **parameters: Any) -> None:
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self._parameters = parameters
        for parameter, value in parameters.items():
            setattr(self, parameter, value)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        given = Examples(self, y_true, ops.convert_to_tensor(y_pred), one_class=False)
        log_p = ops.log_softmax(logits_of(self, given.y_pred), axis=-1)
        losses = self.values(_rows(given), log_p)
        return losses if given.known is None else ops.where(given.known, losses, 0.0)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | self._parameters


@register
class SymmetricCrossEntropy(_OnLabels):
    """alpha * cross-entropy + beta * reverse cross-entropy, -sum_j p_j log y_j.

    log 0 is `log_zero`: for one-hot labels the second part is -log_zero * (1 - p_y).

    Wang et al. 2019, "Symmetric cross entropy for robust learning with noisy labels".

    Args:
        alpha, beta: at least 0; the paper uses 0.1 and 1 for CIFAR-10.
        log_zero: the paper's A, in [-80, 0]; a smaller log y_j is replaced by it.
        from_logits: whether predictions are logits instead of probabilities.
        reduction, name: as for any loss of Keras.

    Raises:
        ValueError: a parameter out of range.
    """

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 1.0,
        log_zero: float = -4.0,
        from_logits: bool = False,
        reduction: str | None = "sum_over_batch_size",
        name: str = "symmetric_cross_entropy",
    ) -> None:
        alpha = checks.number("alpha", alpha, 0, float("inf"), "try 0.1, the paper's for CIFAR-10")
        beta = checks.number("beta", beta, 0, float("inf"), "try 1.0, the paper's for CIFAR-10")
        log_zero = checks.number("log_zero", log_zero, -80, 0, "try -4.0, the default")
        parameters = {"alpha": alpha, "beta": beta, "log_zero": log_zero}
        super().__init__(name, reduction, **parameters, from_logits=from_logits)

    def values(self, y: Tensor, log_p: Tensor) -> Tensor:
        log_y = ops.maximum(ops.log(ops.maximum(y, 1e-37)), self.log_zero)
        reverse = -ops.sum(ops.exp(log_p) * log_y, axis=-1)
        return self.alpha * _expected(y, -log_p) + self.beta * reverse


@register
class Bootstrapping(_OnLabels):
    """The cross-entropy against beta * label + (1 - beta) * the model's own prediction.

    The prediction is p itself ("soft": the gradient flows through it, so the second part is the
    entropy of p) or the class of the largest p ("hard").

    Reed et al. 2014, "Training deep neural networks on noisy labels with bootstrapping".

    Args:
        beta: in [0, 1]; 0.95 for soft and 0.8 for hard by default, as in the paper.
        hard: whether to use the class of the largest p.
        from_logits: whether predictions are logits instead of probabilities.
        reduction, name: as for any loss of Keras.

    Raises:
        ValueError: beta outside [0, 1].
    """

    def __init__(
        self,
        beta: float | None = None,
        hard: bool = False,
        from_logits: bool = False,
        reduction: str | None = "sum_over_batch_size",
        name: str = "bootstrapping",
    ) -> None:
        beta = (0.8 if hard else 0.95) if beta is None else beta
        beta = checks.number("beta", beta, 0, 1, "try the paper's, 0.95 for soft and 0.8 for hard")
        super().__init__(name, reduction, beta=beta, hard=hard, from_logits=from_logits)

    def values(self, y: Tensor, log_p: Tensor) -> Tensor:
        if self.hard:
            own = -ops.max(log_p, axis=-1)
        else:
            own = -ops.sum(ops.exp(log_p) * ops.maximum(log_p, LOWEST), axis=-1)
        return self.beta * _expected(y, -log_p) + (1 - self.beta) * own


def _rows(given: Examples) -> Tensor:
    """Return labels as rows of class probabilities, two for one sigmoid unit."""
    y = float32(given.y_true)
    if given.is_dense:
        return y
    places = ops.shape(given.y_pred)[:-1]
    if given.units == 1:
        p = ops.reshape(y, places)
        return ops.stack([1 - p, p], axis=-1)
    return ops.reshape(ops.one_hot(given.index, given.units, dtype="float32"), (*places, -1))


def _expected(y: Tensor, losses: Tensor) -> Tensor:
    """Return sum_j y_j losses_j, where 0 times an infinite loss is 0."""
    return ops.sum(ops.where(y == 0, 0.0, y * losses), axis=-1)
