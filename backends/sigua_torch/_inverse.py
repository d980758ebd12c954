"""What backward correction needs of T^-1, a class for each form in which T is kept.

Rows of T^-1 are signed, and cross-entropy takes signed "probabilities" as they are: only row y is
needed, O(k) per example and never O(k^2).
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from sigua import TransitionMatrix
from sigua_torch._flat import INF
from sigua_torch._measure import Measure, class_dim, is_index
from sigua_torch._rows import row_losses, takes
from sigua_torch._sparse import SparseRows
from sigua_torch._tables import FEW_CLASSES, Tables, rows_at


class Inverse(Tables):
    """T^-1 in one of the forms."""

    def corrected(self, measure: Measure, logits: Tensor, target: Tensor) -> Tensor:
        """Return [T^-1 l]_y, or q'T^-1 l for class probabilities q (Eq. 8)."""
        raise NotImplementedError


class SymmetricInverse(Inverse):
    """T^-1 = a I + b 11', which needs no matrix."""

    def __init__(self, T: TransitionMatrix) -> None:
        super().__init__(T)
        self.pair = T.inverse_pair
        self._rows: Tensor | None = None  # of few classes, on the CPU

    def corrected(self, measure: Measure, logits: Tensor, target: Tensor) -> Tensor:
        if measure.unguarded and self.T.num_classes <= FEW_CLASSES and logits.ndim == 2:
            return _at_rows(measure, self._few_rows(logits), logits, target)
        own, everyone = self.pair
        loss, total = measure.at_label_and_total(logits, target)
        corrected = own * loss + (everyone * total if everyone else 0.0)
        counted = total if everyone else loss
        # An infinite loss says nothing, whatever its sign is in the sum.
        return corrected.masked_fill(counted.detach() == INF, INF)

    def _few_rows(self, logits: Tensor) -> Tensor:
        rows = self._rows  # read once: another thread may have another precision
        if rows is None or rows.dtype != logits.dtype:
            self._rows = rows = torch.tensor(self.T.inverse, dtype=logits.dtype)
        return rows


class DenseInverse(Inverse):
    matrix: Tensor
    """(k, k)."""

    def arrays(self) -> dict[str, NDArray[Any] | None]:
        return {"matrix": self.T.inverse}

    def corrected(self, measure: Measure, logits: Tensor, target: Tensor) -> Tensor:
        self.match(logits)
        return _at_rows(measure, self.matrix, logits, target)


class SparseInverse(Inverse):
    columns: Tensor
    """Of each entry of `matrix`, int64, (k, m)."""
    matrix: Tensor
    """The entries of T^-1, (k, m)."""

    def arrays(self) -> dict[str, NDArray[Any] | None]:
        columns, values = self.T.inverse_table
        return {"columns": columns, "matrix": values}

    def corrected(self, measure: Measure, logits: Tensor, target: Tensor) -> Tensor:
        self.match(logits)
        inverse = SparseRows(self.columns, self.matrix)
        dim = class_dim(logits)
        if not is_index(logits, target):
            return measure.combined(logits, inverse.transposed_times(target, dim))
        if measure.base is not None or measure.smoothing:
            return measure.combined(logits, inverse.dense(target, logits, dim))
        if measure.weight is not None:
            inverse = inverse._replace(values=inverse.values * measure.weight[inverse.columns])
        return inverse.dot(-logits.log_softmax(dim), target, dim)


def _at_rows(measure: Measure, inverse: Tensor, logits: Tensor, target: Tensor) -> Tensor:
    """Return the loss against row y of T^-1, which is (k, k)."""
    if measure.unguarded and not measure.smoothing and takes(logits):
        return row_losses(logits, inverse, target)
    return measure.combined(logits, rows_at(inverse, logits, target))


INVERSES: dict[str, type[Inverse]] = {
    "symmetric": SymmetricInverse,
    "dense": DenseInverse,
    "sparse": SparseInverse,
}
