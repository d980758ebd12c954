"""Losses for noisy labels that Keras does not have, to compile with and train with SIGUA.

    model.compile("adam", GeneralizedCrossEntropy(q=0.5))
    model.fit(x, y, callbacks=[SIGUA(sigua.sigua_sl(noise_rate=0.5, delta=0.15))])

Labels are integers, (n,) or (n, 1), or rows of class probabilities, (n, k), such as one-hot ones;
predictions are (n, k), or (n, 1) for one sigmoid unit. Values are float32, one per example before
the reduction, and 0 for a label that is not a class. `sigua.losses` is the spec. Keras itself has
`BinaryFocalCrossentropy`, and for one-hot labels `CategoricalFocalCrossentropy` and `Huber`.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from sigua import checks
from sigua_keras._labels import without_class
from sigua_keras._measure import Tensor, is_dense, log_probabilities

__all__ = ["Bootstrapping", "GeneralizedCrossEntropy", "LogSum", "SymmetricCrossEntropy"]

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
        y_true, known = without_class(self, y_true, y_pred, one_class=False)
        losses = self.values(y_true, y_pred)
        return losses if known is None else ops.where(known, losses, 0.0)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | self._parameters


@register
class GeneralizedCrossEntropy(_OnLabels):
    """(1 - p_y^q) / q: from cross-entropy (q -> 0) to 1 - p_y (q = 1).

    Zhang and Sabuncu 2018, "Generalized cross entropy loss for training deep neural networks with
    noisy labels".

    Args:
        q: in [0, 1].
        from_logits: whether predictions are logits instead of probabilities.
        reduction: as for any loss of Keras.
        name: of the loss.

    Raises:
        ValueError: q outside [0, 1].
    """

    def __init__(
        self,
        q: float = 0.7,
        from_logits: bool = False,
        reduction: str | None = "sum_over_batch_size",
        name: str = "generalized_cross_entropy",
    ) -> None:
        q = checks.number("q", q, 0, 1, "try 0.7, the paper's")
        super().__init__(name, reduction, q=q, from_logits=from_logits)

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y, log_p = _labels_and_log_p(y_true, y_pred, self.from_logits)
        return _expected(y, -ops.expm1(self.q * log_p) / self.q if self.q else -log_p)


@register
class SymmetricCrossEntropy(_OnLabels):
    """alpha * cross-entropy + beta * reverse cross-entropy, -sum_j p_j log y_j.

    log 0 is `log_zero`: for one-hot labels the second part is -log_zero * (1 - p_y).

    Wang et al. 2019, "Symmetric cross entropy for robust learning with noisy labels".

    Args:
        alpha: at least 0; the paper uses 0.1 for CIFAR-10.
        beta: at least 0; the paper uses 1 for CIFAR-10.
        log_zero: the paper's A, in [-80, 0]; a smaller log y_j is replaced by it.
        from_logits: whether predictions are logits instead of probabilities.
        reduction: as for any loss of Keras.
        name: of the loss.

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

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y, log_p = _labels_and_log_p(y_true, y_pred, self.from_logits)
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
        reduction: as for any loss of Keras.
        name: of the loss.

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

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y, log_p = _labels_and_log_p(y_true, y_pred, self.from_logits)
        if self.hard:
            own = -ops.max(log_p, axis=-1)
        else:
            own = -ops.sum(ops.exp(log_p) * ops.maximum(log_p, LOWEST), axis=-1)
        return self.beta * _expected(y, -log_p) + (1 - self.beta) * own


@register
class LogSum(_OnLabels):
    """sum_j log(1 + |f_j - y_j| / epsilon) for predictions f and the one-hot y.

    Candes et al. 2008, "Enhancing sparsity by reweighted l1 minimization", less the constant
    k log(epsilon). Predictions are used as they are: scores for a regression on one-hot vectors
    (the SIGUA paper, Section 4, which gives no epsilon), or probabilities, as forward correction
    needs them.

    Args:
        epsilon: above 0; residuals well above it cost little more than those near it.
        reduction: as for any loss of Keras.
        name: of the loss.

    Raises:
        ValueError: epsilon not above 0.
    """

    def __init__(
        self,
        epsilon: float = 0.1,
        reduction: str | None = "sum_over_batch_size",
        name: str = "log_sum",
    ) -> None:
        epsilon = checks.number("epsilon", epsilon, 0, float("inf"), "try 0.1, the default")
        if epsilon == 0:
            raise ValueError("epsilon: must be above 0, got 0; try 0.1, the default")
        super().__init__(name, reduction, epsilon=epsilon)

    def values(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        y_pred = ops.convert_to_tensor(y_pred, dtype="float32")
        y = _label_rows(y_true, y_pred)
        y = y[..., 1:] if y_pred.shape[-1] == 1 else y
        return ops.sum(ops.log1p(ops.abs(y_pred - y) / self.epsilon), axis=-1)


def _labels_and_log_p(y_true: Tensor, y_pred: Tensor, from_logits: bool) -> tuple[Tensor, Tensor]:
    y_pred = ops.convert_to_tensor(y_pred)
    return _label_rows(y_true, y_pred), log_probabilities(y_pred, from_logits)


def _label_rows(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """Return labels as rows of class probabilities, two for one sigmoid unit."""
    y_true = ops.convert_to_tensor(y_true, dtype="float32")
    if is_dense(y_true, y_pred):
        return y_true
    if len(y_true.shape) < len(y_pred.shape):
        y_true = ops.expand_dims(y_true, -1)
    if y_true.shape[-1] != 1:
        raise ValueError(
            f"y_true: must have an entry per example or class, got labels {tuple(y_true.shape)} "
            f"and predictions {tuple(y_pred.shape)}; "
            "try integers (n,) or (n, 1), or one-hot (n, k)"
        )
    if y_pred.shape[-1] == 1:
        return ops.concatenate([1 - y_true, y_true], axis=-1)
    classes = ops.arange(y_pred.shape[-1], dtype="float32")
    return ops.cast(ops.equal(y_true, classes), "float32")


def _expected(y: Tensor, losses: Tensor) -> Tensor:
    """Return sum_j y_j losses_j, where 0 times an infinite loss is 0."""
    return ops.sum(ops.where(y == 0, 0.0, y * losses), axis=-1)
