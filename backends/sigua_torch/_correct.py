"""Corrected losses, on the device, with T's tables as buffers.

Shapes are those of `_measure`. Rows of T^-1 are signed, and cross-entropy takes signed
"probabilities" as they are: only row y is needed, O(k) per example and never O(k^2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigua import Method, TransitionMatrix, checks
from sigua.conditions import may_read_class_sums
from sigua_torch import _check
from sigua_torch._flat import is_visible
from sigua_torch._measure import Measure, class_dim, is_index
from sigua_torch._sparse import SparseRows, along, places, tables

FEW_CLASSES = 100  # up to here copying whole rows costs less than operators saved
INF = float("inf")
TINY = torch.finfo(torch.float32).tiny
SAFE = 1e-30
"""Sums of probabilities above it have lost nothing to float32's smallest numbers."""


class Correction(nn.Module):
    """The losses that a method optimises, with T's tables as buffers on the device.

    Args:
        method: whose `correction` and `T` are used.
    """

    matrix: Tensor | None
    """T^-1 (backward) or log T' (forward), (k, k); None for symmetric noise, which needs none."""
    columns: Tensor | None
    """Where T is sparse, the column of each entry of `matrix`, int64; both are then (k, m)."""
    places: Tensor | None
    """Where a dense T has many zeros, the columns of log T' that have none, int64, (k, m)."""
    sums: Tensor | None
    """1'T^-1, (k,), where the condition asks for class sums."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        checks.choice("correction", method.correction, ("none", "backward", "forward"))
        self.kind = method.correction
        self.T = method.T
        self.has_zeros = False
        self._inverse: Tensor | None = None  # of symmetric noise with few classes, on the CPU
        self.asks_for_sums = self.kind == "backward" and may_read_class_sums(method.condition)
        self._make_tables(torch.float32, torch.device("cpu"))

    def losses(self, measure: Measure, logits: Tensor, target: Tensor) -> Tensor:
        """Return what is optimised, a loss per example."""
        if self.T is None or self.kind == "none":
            return measure.at_label(logits, target)
        self._match(logits)
        if self.kind == "backward":
            return self._backward(measure, logits, target, self.T)
        if measure.base is None and not measure.smoothing and is_index(logits, target):
            loss = -self._log_observed_at(logits, target, self.T)
            return loss if measure.weight is None else loss * measure.weight[target]
        return measure.of_probabilities(self._log_observed(logits, self.T), target)

    def losses_if_finite(self, measure: Measure, logits: Tensor, target: Tensor) -> Tensor:
        """Return `losses` of everyday input, in fewer operators; NaN or inf if one is infinite."""
        T = self.T
        if T is None or self.kind != "backward" or self.columns is not None:
            return self.losses(measure, logits, target)
        if self.matrix is not None:
            self._match(logits)
            return measure.combined_if_finite(logits, _rows(self.matrix, logits, target))
        if T.num_classes > FEW_CLASSES or logits.ndim != 2:
            return self.losses(measure, logits, target)
        inverse = self._inverse  # read once: another thread may have another precision
        if inverse is None or inverse.dtype != logits.dtype:
            self._inverse = inverse = torch.tensor(T.inverse, dtype=logits.dtype)
        return measure.combined_if_finite(logits, _rows(inverse, logits, target))

    def class_sums(self, measure: Measure, logits: Tensor) -> Tensor | None:
        """Return 1'T^-1 l per example, the left-hand side of Eq. 11; None if nobody asks."""
        if self.sums is None:
            return None
        self._match(logits)
        return measure.combined(
            logits, along(self.sums, logits, class_dim(logits)).expand_as(logits)
        )

    def _backward(
        self, measure: Measure, logits: Tensor, target: Tensor, T: TransitionMatrix
    ) -> Tensor:
        """Return [T^-1 l]_y, or q'T^-1 l for class probabilities q (Eq. 8)."""
        matrix = self.matrix
        if matrix is None:
            own, everyone = T.inverse_pair
            loss, total = measure.at_label_and_total(logits, target)
            corrected = own * loss + (everyone * total if everyone else 0.0)
            counted = total if everyone else loss
            # An infinite loss says nothing, whatever its sign is in the sum.
            return corrected.masked_fill(counted.detach() == INF, INF)
        if self.columns is not None:
            return _sparse_backward(measure, SparseRows(self.columns, matrix), logits, target)
        return measure.combined(logits, _rows(matrix, logits, target))

    def _log_observed_at(self, logits: Tensor, target: Tensor, T: TransitionMatrix) -> Tensor:
        """Return log [T'p]_y; it needs column y of T alone, and is exact however small p is."""
        dim = class_dim(logits)
        if self.matrix is None:
            on, off = T.entries
            p = logits.softmax(dim) if off else logits.log_softmax(dim)
            at_label = p.gather(dim, target.unsqueeze(dim)).squeeze(dim)
            return ((on - off) * at_label + off).log() if off else at_label
        log_p = logits.log_softmax(dim)
        if self.columns is not None:
            columns, log_t = SparseRows(self.columns, self.matrix).at(target, dim)
            return _logsumexp(log_p.gather(dim, columns) + log_t, dim)
        return _logsumexp(log_p + _rows(self.matrix, logits, target), dim)

    def _log_observed(self, logits: Tensor, T: TransitionMatrix) -> Tensor:
        """Return log(T'p), with the logits' shape; -inf where no possible class leads there."""
        dim = class_dim(logits)
        if self.matrix is None:
            on, off = T.entries
            if not off:
                return logits.log_softmax(dim)
            return ((on - off) * logits.softmax(dim) + off).clamp_min(TINY).log()
        if self.columns is None and (not self.has_zeros or is_visible(logits)):
            observed = _mix(logits.softmax(dim), self.matrix.exp().t())
            if not self.has_zeros or (observed > SAFE).all():
                return observed.log()
        return self._log_sums(logits.log_softmax(dim), self.matrix, dim)

    def _log_sums(self, log_p: Tensor, log_t: Tensor, dim: int) -> Tensor:
        """Return log(T'p) where T has zeros, which may leave sums of small p alone."""
        if self.columns is not None:
            return _logsumexp(SparseRows(self.columns, log_t).log_terms(log_p, dim), 0)
        if self.places is not None:
            few = SparseRows(self.places, log_t.gather(1, self.places))
            return _logsumexp(few.log_terms(log_p, dim), 0)
        wide = torch.float32 if log_p.device.type == "mps" else torch.float64  # down to e^-708
        observed = _mix(log_p.to(wide).exp(), log_t.to(wide).exp().t())
        log_observed = (
            observed.clamp_min(torch.finfo(wide).tiny).log().masked_fill(observed == 0, -INF)
        )
        return log_observed.to(log_p.dtype)

    def _make_tables(self, dtype: torch.dtype, device: torch.device) -> None:
        def table(array: NDArray[Any] | None) -> Tensor | None:
            if array is None:
                return None
            exact = dtype if array.dtype.kind == "f" else torch.int64
            return torch.tensor(array, dtype=exact, device=device)

        columns = matrix = sums = filled = None
        if self.T is not None and self.T.flip_rate is None and self.kind != "none":
            columns, matrix = tables(self.T, self.kind)
            if self.kind == "forward" and columns is None:
                filled, self.has_zeros = places(matrix), bool(np.isneginf(matrix).any())
        if self.T is not None and self.asks_for_sums:
            sums = self.T.inverse_column_sums
        # The one whose precision `_match` looks at comes last, for another thread may do so.
        made = {"columns": table(columns), "places": table(filled)}
        made |= {"sums": table(sums), "matrix": table(matrix)}
        for name, value in made.items():
            self.register_buffer(name, value, persistent=False)

    def _match(self, logits: Tensor) -> None:
        """Make the tables in the logits' precision, from the exact T, if they are in another."""
        table = self.matrix
        table = self.sums if table is None else table
        if table is None or (table.dtype == logits.dtype and table.device == logits.device):
            return
        _check.device(table.device, logits)
        self._make_tables(logits.dtype, logits.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Correction:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        table = self.sums if self.matrix is None else self.matrix
        if table is not None:  # a cast has rounded what it should have made afresh
            exact = torch.float64 if table.dtype == torch.float64 else torch.float32
            self._make_tables(exact, table.device)
        return self


def _sparse_backward(
    measure: Measure, inverse: SparseRows, logits: Tensor, target: Tensor
) -> Tensor:
    """Return [T^-1 l]_y, or q'T^-1 l for class probabilities q, of a sparse T^-1."""
    dim = class_dim(logits)
    if not is_index(logits, target):
        return measure.combined(logits, inverse.transposed_times(target, dim))
    if measure.base is not None or measure.smoothing:
        return measure.combined(logits, inverse.dense(target, logits, dim))
    if measure.weight is not None:
        inverse = inverse._replace(values=inverse.values * measure.weight[inverse.columns])
    return inverse.dot(-logits.log_softmax(dim), target, dim)


def _rows(matrix: Tensor, logits: Tensor, target: Tensor) -> Tensor:
    """Return row y of a (k, k) matrix, or q' matrix, with the classes in the class dimension."""
    dim = class_dim(logits)
    if is_index(logits, target):
        # index_select copies whole rows, where matrix[target] goes entry by entry.
        rows = matrix.index_select(0, target.reshape(-1))
        if logits.ndim == 2:
            return rows
        return rows.reshape(*target.shape, matrix.shape[1]).movedim(-1, dim)
    return _mix(target, matrix)


def _logsumexp(x: Tensor, dim: int) -> Tensor:
    """Return `x.logsumexp(dim)`, whose gradient is 0, not NaN, where the sum is of none but 0."""
    nothing = x.detach().amax(dim) == -math.inf
    total = x.masked_fill(nothing.unsqueeze(dim), 0.0).logsumexp(dim)
    return total.masked_fill(nothing, -math.inf)


def _mix(probabilities: Tensor, matrix: Tensor) -> Tensor:
    """Return q' matrix along the class dimension, in full precision under autocast, too."""
    dim = class_dim(probabilities)
    device = probabilities.device.type
    can_cast = torch.amp.is_autocast_available(device)
    with torch.autocast(device, enabled=False) if can_cast else nullcontext():
        return (probabilities.movedim(dim, -1) @ matrix).movedim(-1, dim)
