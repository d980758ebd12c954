"""What is optimised: a loss against each class, and a row of T^-1 or T' over it.

Logits have shape (N, k, ...). Labels y are class indices (N, ...), or class probabilities of the
logits' shape. `ops` has a framework's names (see `_ops`). Before a correction, logits of -inf
become -HUGE, so that no product is NaN by itself: a loss beyond FINITE is one in which a class
without any probability has a share. It is +inf, and says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from sigua._method import Method
from sigua.requirements import find_correction
from sigua.transition import TransitionMatrix

Array = Any
INF, HUGE, FINITE, TINY = float("inf"), 1e30, 1e15, 1e-37


def is_index(y: Array, x: Array) -> bool:
    """Return whether labels are class indices, and not a row of probabilities each."""
    return len(y.shape) < len(x.shape)


def at_label(ops: Any, x: Array, y: Array) -> Array:
    """Return the entries of (N, k, ...) at the labels, or their mean over the probabilities y."""
    return ops.at(x, y) if is_index(y, x) else ops.class_sum(y * x)


class Loss(Protocol):
    """The plain loss, which a correction corrects."""

    def at_label(self, ops: Any, logits: Array, y: Array) -> Array:
        """Return the loss at the label, (N, ...)."""

    def log_likelihood(self, ops: Any, logits: Array) -> Array:
        """Return minus the loss against each class, with the logits' shape.

        For cross-entropy that is log p. Signs change after sums over classes, where it costs less.
        """


class CrossEntropy(NamedTuple):
    """Cross-entropy as PyTorch has it: class weights, (k,), and label smoothing, in [0, 1]."""

    weight: Array | None = None
    smoothing: float = 0.0

    def at_label(self, ops: Any, logits: Array, y: Array) -> Array:
        if self.smoothing or not is_index(y, logits):
            return -at_label(ops, self.log_likelihood(ops, logits), y)
        losses = ops.cross_entropy(logits, y)
        return losses if self.weight is None else losses * ops.take(self.weight, y)

    def log_likelihood(self, ops: Any, logits: Array) -> Array:
        log_p = ops.log_softmax(logits)
        if self.weight is not None:
            log_p = log_p * ops.per_class(self.weight, log_p)
        if self.smoothing:
            mean = ops.expand(ops.class_sum(log_p) / log_p.shape[1])
            log_p = (1 - self.smoothing) * log_p + self.smoothing * mean
        return log_p


class Own(NamedTuple):
    """A loss of the user's: a function of logits and labels that returns a loss per example."""

    function: Callable[[Array, Array], Array]

    def at_label(self, ops: Any, logits: Array, y: Array) -> Array:
        return self.function(logits, y)

    def log_likelihood(self, ops: Any, logits: Array) -> Array:
        k = logits.shape[1]
        return -ops.stack([self.function(logits, ops.full_labels(logits, j)) for j in range(k)], 1)


class Matrix(Protocol):
    """T^-1 or T', kept as T is."""

    def row_dot(self, ops: Any, y: Array, x: Array) -> Array:
        """Return [M x]_y, for class indices y."""

    def log_row_dot(self, ops: Any, y: Array, logits: Array) -> Array:
        """Return log [M p]_y, for class indices y; exact however small p is."""

    def times(self, ops: Any, x: Array) -> Array:
        """Return M x."""


class Symmetric(NamedTuple):
    """M = own I + everyone 11'."""

    own: float
    everyone: float

    def row_dot(self, ops: Any, y: Array, x: Array) -> Array:
        return self.own * ops.at(x, y) + self.everyone * ops.class_sum(x)

    def log_row_dot(self, ops: Any, y: Array, logits: Array) -> Array:
        if not self.everyone:
            return -ops.cross_entropy(logits, y)
        return ops.log(self.own * ops.at(ops.softmax(logits), y) + self.everyone)

    def times(self, ops: Any, x: Array) -> Array:
        return self.own * x + self.everyone * ops.expand(ops.class_sum(x))


class Dense(NamedTuple):
    """All k x k entries."""

    entries: Array

    def row_dot(self, ops: Any, y: Array, x: Array) -> Array:
        return ops.class_sum(ops.rows(self.entries, y) * x)

    def log_row_dot(self, ops: Any, y: Array, logits: Array) -> Array:
        return ops.log(self.row_dot(ops, y, ops.softmax(logits)))

    def times(self, ops: Any, x: Array) -> Array:
        return ops.matmul(self.entries, x)


class Sparse(NamedTuple):
    """T' where it has zeros: the m entries that a row has at most, (k, m), and their columns."""

    places: Array
    entries: Array
    logs: Array
    """-HUGE for no entry."""

    def row_dot(self, ops: Any, y: Array, x: Array) -> Array:
        return ops.class_sum(ops.rows(self.entries, y) * ops.along(x, ops.rows(self.places, y)))

    def log_row_dot(self, ops: Any, y: Array, logits: Array) -> Array:
        log_p = ops.along(ops.log_softmax(logits), ops.rows(self.places, y))
        return ops.logsumexp(ops.rows(self.logs, y) + log_p)

    def times(self, ops: Any, x: Array) -> Array:
        m = self.entries.shape[1]
        parts = [ops.columns(x, self.places[:, j]) for j in range(m)]
        total = parts[0] * ops.per_class(self.entries[:, 0], x)
        for j in range(1, m):
            total = total + parts[j] * ops.per_class(self.entries[:, j], x)
        return total


def matrix(ops: Any, method: Method, like: Array) -> Matrix | None:
    """Return T^-1 for backward correction, T' for forward correction, None without one.

    Args:
        ops: the framework's names.
        method: whose T it is.
        like: has the dtype and the device that the matrix gets.

    Raises:
        ValueError: backward correction by a sparse T, or an unknown correction.
    """
    made: dict[str, Any] = {"none": lambda *_: None, "backward": _inverse, "forward": _observed}
    found: Matrix | None = find_correction(method, made)(ops, method.T, like)
    return found


def _inverse(ops: Any, T: TransitionMatrix, like: Array) -> Matrix:
    if T.form == "symmetric":
        return Symmetric(*T.inverse_pair)
    return Dense(ops.constant(T.inverse, like))


def _observed(ops: Any, T: TransitionMatrix, like: Array) -> Matrix:
    if T.form == "symmetric":
        on, off = T.entries
        return Symmetric(on - off, off)
    if T.form == "dense" and (T.rows > 0).all():
        return Dense(ops.constant(T.rows.T, like))
    places, entries = T.column_table if T.form == "sparse" else _padded(T.rows.T)
    logs = np.log(entries, where=entries > 0, out=np.full(entries.shape, -HUGE))
    return Sparse(ops.index(places, like), ops.constant(entries, like), ops.constant(logs, like))


def _padded(rows: np.ndarray[Any, Any]) -> tuple[Array, Array]:
    """Return the entries of each row that are not 0, first, and their columns; 0 pads."""
    longest = (rows > 0).sum(1).max()
    places = np.argsort(rows == 0, axis=1, kind="stable")[:, :longest]
    return places, np.take_along_axis(rows, places, 1)


def corrected_losses(
    ops: Any, correction: str, M: Any, loss: Any, logits: Array, y: Array
) -> Array:
    """Return what a method optimises, (N, ...), with gradient.

    Args:
        ops: the framework's names.
        correction: "none", "backward" ([T^-1 l]_y, Eq. 8) or "forward" (-log [T'p]_y).
        M: from `matrix`.
        loss: the plain loss, a `Loss`.
        logits: (N, k, ...).
        y: labels.
    """
    if correction == "none":
        return loss.at_label(ops, logits, y)
    logits = ops.floor(logits, -HUGE)
    if correction == "backward":
        log_p = loss.log_likelihood(ops, logits)
        if is_index(y, logits):
            found = -M.row_dot(ops, y, log_p)
        else:
            found = -at_label(ops, M.times(ops, log_p), y)
    elif isinstance(loss, CrossEntropy) and not loss.smoothing and is_index(y, logits):
        found = -M.log_row_dot(ops, y, logits)
        found = found if loss.weight is None else found * ops.take(loss.weight, y)
    else:
        observed = ops.maximum(M.times(ops, ops.softmax(logits)), TINY)
        found = loss.at_label(ops, ops.log(observed), y)
    if ops.are_small(found, FINITE):
        return found
    return ops.where(ops.abs(found) > FINITE, INF, found)


def class_sums(ops: Any, column_sums: Array, loss: Any, logits: Array) -> Array:
    """Return 1'T^-1 l, (N, ...): the left-hand side of Eq. 11.

    `column_sums` is `T.inverse_column_sums`, or what `ops.constant` made of it.
    """
    log_p = loss.log_likelihood(ops, ops.floor(logits, -HUGE))
    row = ops.per_class(ops.constant(column_sums, log_p), log_p)
    return -ops.class_sum(row * log_p)
