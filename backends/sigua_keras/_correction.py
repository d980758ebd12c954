"""The loss that a method optimises: at the label, or corrected by a transition matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from sigua import Method, TransitionMatrix, checks
from sigua_keras import _losses
from sigua_keras._losses import Loss, Tensor


class _Matrix:
    """A constant k x k matrix: a table, or a I + b 11' as two numbers.

    Made outside any trace, because a NumPy array inside one makes torch.compile break the graph.
    """

    def __init__(self, pair: tuple[float, float] | None, table: Callable[[], Any]) -> None:
        self.pair = pair
        self.table = None if pair else ops.convert_to_tensor(np.array(table()), dtype="float32")

    def rows(self, index: Tensor, k: int) -> Tensor:
        if self.pair is None:
            return ops.take(self.table, index, axis=0)
        return self.pair[0] * ops.one_hot(index, k, dtype="float32") + self.pair[1]

    def times(self, p: Tensor) -> Tensor:
        """Return M p for rows of p that sum to 1."""
        if self.pair is None:
            return ops.matmul(p, ops.transpose(self.table))
        return self.pair[0] * p + self.pair[1]


class Correction:
    """Measures each example as the method does.

    Cross-entropies are corrected from log-probabilities, in O(n k). Any other loss is called once
    per class for backward correction, and on T'p for forward correction.

    Args:
        method: whose `correction` and `T` are taken.
    """

    def __init__(self, method: Method) -> None:
        self.kind, T = method.correction, method.T
        if T is None:
            return
        self.num_classes = T.num_classes
        if self.kind == "forward":
            self.columns = _Matrix(_pair(T), lambda: T.rows.T)
        else:
            pair = None if T.flip_rate is None else T.inverse_pair
            self.inverse = _Matrix(pair, lambda: T.inverse)
            self.sums = ops.convert_to_tensor(np.array(T.inverse_column_sums), dtype="float32")

    def __call__(
        self, loss: Loss, y_true: Tensor, y_pred: Tensor
    ) -> tuple[Tensor, Callable[[], Tensor] | None]:
        """Return the losses, (n,), with gradient, and for backward correction what gives 1'T^-1 l.

        Raises:
            ValueError: T has another number of classes than the predictions, or the loss ignores a
                class, which a correction cannot.
        """
        if self.kind == "none":
            return _losses.per_example(loss, y_true, y_pred), None
        self.check(loss, y_pred)
        if self.kind == "forward":
            return self._forward(loss, y_true, y_pred), None
        table = _losses.every_class(loss, y_true, y_pred)
        rows = self.inverse.rows(_losses.label_index(y_true, y_pred), self.num_classes)
        detached = ops.stop_gradient(table)
        return ops.sum(rows * table, axis=-1), lambda: ops.sum(self.sums * detached, axis=-1)

    def check(self, loss: Loss, y_pred: Tensor) -> None:
        """Refuse another number of classes than T's, and a loss that ignores one."""
        if self.kind == "none":
            return
        k = _losses.num_classes(y_pred)
        if self.num_classes != k:
            came = f"T has {self.num_classes} and the predictions have {k}"
            raise checks.refuse("T", "must have a row per class", came, "use one number of classes")
        if getattr(loss, "ignore_class", None) is not None:
            advice = "give those examples a sample_weight of 0"
            raise checks.refuse(
                "loss", "a correction ignores no class", "ignore_class came", advice
            )

    def _forward(self, loss: Loss, y_true: Tensor, y_pred: Tensor) -> Tensor:
        logits = _losses.is_logits(loss)
        log_p = _losses.log_probabilities(y_pred, logits)
        if _losses.is_cross_entropy(loss, y_pred):
            labels = _losses.label_index(y_true, y_pred)
            # The logarithm of the sum, not the sum's: T'p may underflow where T has zeros.
            return -ops.logsumexp(ops.log(self.columns.rows(labels, self.num_classes)) + log_p, -1)
        noisy = self.columns.times(ops.exp(log_p))
        if y_pred.shape[-1] == 1:
            noisy = noisy[:, 1:]
            noisy = noisy / (1 - noisy) if logits else noisy
        return _losses.per_example(loss, y_true, ops.log(noisy) if logits else noisy)


def _pair(T: TransitionMatrix) -> tuple[float, float] | None:
    """Return (a, b) with T = a I + b 11'; None unless the noise is symmetric."""
    if T.flip_rate is None:
        return None
    off = T.flip_rate / (T.num_classes - 1)
    return 1 - T.flip_rate - off, off
