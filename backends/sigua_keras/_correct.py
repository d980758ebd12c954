"""The loss that a method optimises: at the label, or corrected by T; a class for each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from keras import ops

from sigua import Method
from sigua.requirements import find_correction, find_form, require_classes
from sigua.transition import require_matrix
from sigua_keras import _measure
from sigua_keras._matrix import INVERSES, TRANSPOSES
from sigua_keras._measure import Loss, Tensor

TINY = float(np.finfo(np.float32).tiny)


class Correction:
    """Measures each example as the method does.

    Cross-entropies are corrected from log-probabilities, in O(n k). Any other loss is called once
    per class for backward correction, and on T'p for forward correction.

    Args:
        method: whose `T` is taken.
    """

    def __init__(self, method: Method) -> None:
        self.method = method

    def __call__(
        self, loss: Loss, y_true: Tensor, y_pred: Tensor
    ) -> tuple[Tensor, Callable[[], Tensor] | None]:
        """Return the losses, (n,), with gradient, and for backward correction what gives 1'T^-1 l.

        Raises:
            ValueError: T has another number of classes than the predictions.
        """
        raise NotImplementedError

    def check(self, y_pred: Tensor) -> None:
        """Refuse another number of classes than T's."""
        require_classes(self.method, _measure.num_classes(y_pred), "predictions")


class Plain(Correction):
    """No correction."""

    def __call__(self, loss: Loss, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, None]:
        self.check(y_pred)
        return _measure.per_example(loss, y_true, y_pred), None

    def check(self, y_pred: Tensor) -> None:
        if self.method.needs_cross_entropy:
            require_classes(self.method, _measure.num_classes(y_pred), "predictions")


class Backward(Correction):
    """[T^-1 l]_y."""

    def __init__(self, method: Method) -> None:
        super().__init__(method)
        T = require_matrix("T", method.T)
        self.inverse = find_form(T, INVERSES)(T)
        self.sums = ops.convert_to_tensor(np.array(T.inverse_column_sums), dtype="float32")

    def __call__(
        self, loss: Loss, y_true: Tensor, y_pred: Tensor
    ) -> tuple[Tensor, Callable[[], Tensor]]:
        self.check(y_pred)
        table = _measure.every_class(loss, y_true, y_pred)
        entries, losses = self.inverse.at(_measure.label_index(y_true, y_pred), table)
        detached = ops.stop_gradient(table)
        return _dot(entries, losses), lambda: _dot(self.sums, detached)


class Forward(Correction):
    """-log [T'p]_y."""

    def __init__(self, method: Method) -> None:
        super().__init__(method)
        T = require_matrix("T", method.T)
        self.columns = find_form(T, TRANSPOSES)(T)

    def __call__(self, loss: Loss, y_true: Tensor, y_pred: Tensor) -> tuple[Tensor, None]:
        self.check(y_pred)
        logits = _measure.is_logits(loss)
        log_p = _measure.log_probabilities(y_pred, logits)
        if _measure.is_cross_entropy(loss, y_pred):
            labels = _measure.label_index(y_true, y_pred)
            # The logarithm of the sum, not the sum's: T'p may underflow where T has zeros.
            entries, log_p = self.columns.at(labels, log_p)
            return -ops.logsumexp(ops.log(entries) + log_p, -1), None
        noisy = self.columns.times(ops.exp(log_p))
        if logits:  # the slope of log 0 would be NaN
            noisy = ops.log(ops.maximum(noisy, TINY))
        if y_pred.shape[-1] == 1:
            noisy = noisy[:, 1:] - noisy[:, :1] if logits else noisy[:, 1:]
        return _measure.per_example(loss, y_true, noisy), None


CORRECTIONS: dict[str, type[Correction]] = {
    "none": Plain,
    "backward": Backward,
    "forward": Forward,
}


def correction_of(method: Method) -> Correction:
    """Return the method's correction, or raise ValueError if there is none of that name here."""
    return find_correction(method, CORRECTIONS)(method)


def _dot(entries: Tensor, losses: Tensor) -> Tensor:
    """Return the dot products of rows; +inf where an infinite loss, of either sign, is in the sum.

    An entry of 0 drops an infinite loss, too.
    """
    losses = ops.where(entries == 0, 0.0, losses)
    infinite = ops.any(ops.isinf(losses), axis=-1)
    return ops.where(infinite, float("inf"), ops.sum(entries * losses, axis=-1))
