"""The loss that a method optimises: at the label, or corrected by a transition matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

from sigua import Method, TransitionMatrix, checks
from sigua_keras import _measure
from sigua_keras._measure import Loss, Tensor

TINY = float(np.finfo(np.float32).tiny)


class _Symmetric:
    """The matrix a I + b 11', as two numbers."""

    def __init__(self, pair: tuple[float, float]) -> None:
        self.own, self.everyone = pair

    def at(self, index: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """Return the entries of the rows `index`, and those of `table`, (n, k), they belong to."""
        one_hot = ops.one_hot(index, table.shape[-1], dtype="float32")
        return self.own * one_hot + self.everyone, table

    def times(self, p: Tensor) -> Tensor:
        """Return M p for rows of p that sum to 1."""
        return self.own * p + self.everyone


class _Dense:
    """A k x k table, made outside any trace: a NumPy array inside one makes torch.compile break."""

    def __init__(self, table: Any) -> None:
        self.table = ops.convert_to_tensor(np.array(table), dtype="float32")

    def at(self, index: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        return ops.take(self.table, index, axis=0), table

    def times(self, p: Tensor) -> Tensor:
        return ops.matmul(p, ops.transpose(self.table))


class _Sparse:
    """The m entries that a row has at most, (k, m), and their columns."""

    def __init__(self, columns: Any, values: Any) -> None:
        self.columns = ops.convert_to_tensor(np.array(columns), dtype="int32")
        self.values = ops.convert_to_tensor(np.array(values), dtype="float32")

    def at(self, index: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        values = ops.take(self.values, index, axis=0)
        picked = ops.take_along_axis(table, ops.take(self.columns, index, axis=0), axis=-1)
        return values, ops.where(values == 0, 0.0, picked)  # which is no entry: 0 x inf is NaN

    def times(self, p: Tensor) -> Tensor:
        parts = zip(
            ops.unstack(self.columns, axis=1), ops.unstack(self.values, axis=1), strict=True
        )
        return sum(values * ops.take(p, columns, axis=-1) for columns, values in parts)


class Correction:
    """Measures each example as the method does.

    Cross-entropies are corrected from log-probabilities, in O(n k). Any other loss is called once
    per class for backward correction, and on T'p for forward correction.

    Args:
        method: whose `correction` and `T` are taken.
    """

    def __init__(self, method: Method) -> None:
        checks.choice("correction", method.correction, ("none", "backward", "forward"))
        self.method = method
        self.kind, T = method.correction, method.T
        if T is None:
            return
        if self.kind == "forward":
            self.columns = _columns(T)
        else:
            self.inverse = _inverse(T)
            self.sums = ops.convert_to_tensor(np.array(T.inverse_column_sums), dtype="float32")

    def __call__(
        self, loss: Loss, y_true: Tensor, y_pred: Tensor
    ) -> tuple[Tensor, Callable[[], Tensor] | None]:
        """Return the losses, (n,), with gradient, and for backward correction what gives 1'T^-1 l.

        Raises:
            ValueError: T has another number of classes than the predictions, or the loss ignores a
                class, which a correction cannot.
        """
        self.check(loss, y_pred)
        if self.kind == "none":
            return _measure.per_example(loss, y_true, y_pred), None
        if self.kind == "forward":
            return self._forward(loss, y_true, y_pred), None
        table = _measure.every_class(loss, y_true, y_pred)
        entries, losses = self.inverse.at(_measure.label_index(y_true, y_pred), table)
        detached = ops.stop_gradient(table)
        return _dot(entries, losses), lambda: _dot(self.sums, detached)

    def check(self, loss: Loss, y_pred: Tensor) -> None:
        """Refuse another number of classes than T's, and a loss that ignores one."""
        if self.kind == "none" and not self.method.needs_cross_entropy:
            return
        self.method.require_classes(_measure.num_classes(y_pred), "predictions")
        if self.kind != "none" and getattr(loss, "ignore_class", None) is not None:
            advice = "give those examples a sample_weight of 0"
            raise checks.refuse(
                "loss", "a correction ignores no class", "ignore_class came", advice
            )

    def _forward(self, loss: Loss, y_true: Tensor, y_pred: Tensor) -> Tensor:
        logits = _measure.is_logits(loss)
        log_p = _measure.log_probabilities(y_pred, logits)
        if _measure.is_cross_entropy(loss, y_pred):
            labels = _measure.label_index(y_true, y_pred)
            # The logarithm of the sum, not the sum's: T'p may underflow where T has zeros.
            entries, log_p = self.columns.at(labels, log_p)
            return -ops.logsumexp(ops.log(entries) + log_p, -1)
        noisy = self.columns.times(ops.exp(log_p))
        if logits:  # the slope of log 0 would be NaN
            noisy = ops.log(ops.maximum(noisy, TINY))
        if y_pred.shape[-1] == 1:
            noisy = noisy[:, 1:] - noisy[:, :1] if logits else noisy[:, 1:]
        return _measure.per_example(loss, y_true, noisy)


def _dot(entries: Tensor, losses: Tensor) -> Tensor:
    """Return the dot products of rows; +inf where an infinite loss, of either sign, is in the sum.

    An entry of 0 drops an infinite loss, too.
    """
    losses = ops.where(entries == 0, 0.0, losses)
    infinite = ops.any(ops.isinf(losses), axis=-1)
    return ops.where(infinite, float("inf"), ops.sum(entries * losses, axis=-1))


def _columns(T: TransitionMatrix) -> _Symmetric | _Dense | _Sparse:
    """Return T'."""
    if T.flip_rate is not None:
        on, off = T.entries
        return _Symmetric((on - off, off))
    return _Dense(T.rows.T) if T.csr is None else _Sparse(*T.column_table)


def _inverse(T: TransitionMatrix) -> _Symmetric | _Dense | _Sparse:
    """Return T^-1."""
    if T.flip_rate is not None:
        return _Symmetric(T.inverse_pair)
    return _Dense(T.inverse) if T.csr is None else _Sparse(*T.inverse_table)
