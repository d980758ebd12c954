"""What forward correction needs of T', a class for each form in which T is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigua import TransitionMatrix
from sigua_torch._flat import INF, is_visible
from sigua_torch._measure import class_dim
from sigua_torch._sparse import SparseRows, places
from sigua_torch._tables import Tables, mix, rows_at

TINY = torch.finfo(torch.float32).tiny
SAFE = 1e-30
"""Sums of probabilities above it have lost nothing to float32's smallest numbers."""


class Observed(Tables):
    """log T'p, the observed classes' log-probabilities, for T in one of the forms."""

    def log_at(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return log [T'p]_y; it needs column y of T alone, and is exact however small p is."""
        raise NotImplementedError

    def log_all(self, logits: Tensor) -> Tensor:
        """Return log(T'p), with the logits' shape; -inf where no possible class leads there."""
        raise NotImplementedError


class SymmetricObserved(Observed):
    """By T's two numbers."""

    def __init__(self, T: TransitionMatrix) -> None:
        super().__init__(T)
        self.entries = T.entries

    def log_at(self, logits: Tensor, target: Tensor) -> Tensor:
        dim = class_dim(logits)
        on, off = self.entries
        p = logits.softmax(dim) if off else logits.log_softmax(dim)
        at_label = p.gather(dim, target.unsqueeze(dim)).squeeze(dim)
        return ((on - off) * at_label + off).log() if off else at_label

    def log_all(self, logits: Tensor) -> Tensor:
        dim = class_dim(logits)
        on, off = self.entries
        if not off:
            return logits.log_softmax(dim)
        return ((on - off) * logits.softmax(dim) + off).clamp_min(TINY).log()


class DenseObserved(Observed):
    places: Tensor | None
    """Where T has many zeros, the columns of log T' that have none, int64, (k, m)."""
    matrix: Tensor
    """log T', (k, k)."""

    def __init__(self, T: TransitionMatrix) -> None:
        super().__init__(T)
        self.has_zeros = bool((T.rows == 0).any())
        self._columns: Tensor | None = None  # T', on the CPU

    def arrays(self) -> dict[str, NDArray[Any] | None]:
        log_t = _log(self.T.rows.T)
        return {"places": places(log_t), "matrix": log_t}

    def log_at(self, logits: Tensor, target: Tensor) -> Tensor:
        self.match(logits)
        dim = class_dim(logits)
        if is_visible(logits):  # a product is several times as fast, and seldom too small
            p = logits.softmax(dim)
            observed = (p * rows_at(self._columns_of_t(logits), logits, target)).sum(dim)
            if (observed > SAFE).all():
                return observed.log()
        return _logsumexp(logits.log_softmax(dim) + rows_at(self.matrix, logits, target), dim)

    def _columns_of_t(self, logits: Tensor) -> Tensor:
        columns = self._columns  # read once: another thread may have another precision
        if columns is None or columns.dtype != logits.dtype:
            exact = np.ascontiguousarray(self.T.rows.T)
            self._columns = columns = torch.tensor(exact, dtype=logits.dtype)
        return columns

    def log_all(self, logits: Tensor) -> Tensor:
        self.match(logits)
        dim = class_dim(logits)
        if not self.has_zeros or is_visible(logits):
            columns = self._columns_of_t(logits) if is_visible(logits) else self.matrix.exp()
            observed = mix(logits.softmax(dim), columns.t())
            if not self.has_zeros or (observed > SAFE).all():
                return observed.log()
        return self._log_sums(logits.log_softmax(dim), dim)

    def _log_sums(self, log_p: Tensor, dim: int) -> Tensor:
        """Return log(T'p) where T has zeros, which may leave sums of small p alone."""
        if self.places is not None:
            few = SparseRows(self.places, self.matrix.gather(1, self.places))
            return _logsumexp(few.log_terms(log_p, dim), 0)
        wide = torch.float32 if log_p.device.type == "mps" else torch.float64  # down to e^-708
        observed = mix(log_p.to(wide).exp(), self.matrix.to(wide).exp().t())
        tiny = torch.finfo(wide).tiny
        return observed.clamp_min(tiny).log().masked_fill(observed == 0, -INF).to(log_p.dtype)


class SparseObserved(Observed):
    columns: Tensor
    """Of each entry of `matrix`, int64, (k, m)."""
    matrix: Tensor
    """The logarithms of the entries of T', (k, m); -inf for none."""

    def arrays(self) -> dict[str, NDArray[Any] | None]:
        columns, values = self.T.column_table
        return {"columns": columns, "matrix": _log(values)}

    def log_at(self, logits: Tensor, target: Tensor) -> Tensor:
        self.match(logits)
        dim = class_dim(logits)
        columns, log_t = SparseRows(self.columns, self.matrix).at(target, dim)
        return _logsumexp(logits.log_softmax(dim).gather(dim, columns) + log_t, dim)

    def log_all(self, logits: Tensor) -> Tensor:
        self.match(logits)
        dim = class_dim(logits)
        rows = SparseRows(self.columns, self.matrix)
        return _logsumexp(rows.log_terms(logits.log_softmax(dim), dim), 0)


OBSERVED: dict[str, type[Observed]] = {
    "symmetric": SymmetricObserved,
    "dense": DenseObserved,
    "sparse": SparseObserved,
}


def _log(array: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):  # log 0 is -inf, an impossible label
        return np.log(array)


def _logsumexp(x: Tensor, dim: int) -> Tensor:
    """Return `x.logsumexp(dim)`, whose gradient is 0, not NaN, where the sum is of none but 0."""
    nothing = x.detach().amax(dim) == -INF
    total = x.masked_fill(nothing.unsqueeze(dim), 0.0).logsumexp(dim)
    return total.masked_fill(nothing, -INF)
