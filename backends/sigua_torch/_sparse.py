"""Rows of a sparse k x k matrix on the device: gathers of their m entries, no k x k array."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

FEW_PLACES = 16
"""The most entries in a column of a dense T that are gathered, and not multiplied."""


class SparseRows(NamedTuple):
    """`sigua.TransitionMatrix.inverse_table` or `.column_table` as tensors.

    Args:
        columns: int64, (k, m).
        values: float, (k, m); an entry of 0 is none.
    """

    columns: Tensor
    values: Tensor

    def at(self, index: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """Return the columns and the values of the rows `index`, along dimension `dim`."""
        rows = (table.index_select(0, index.reshape(-1)) for table in self)
        columns, values = (row.reshape(*index.shape, row.shape[1]).movedim(-1, dim) for row in rows)
        return columns, values

    def dot(self, x: Tensor, index: Tensor, dim: int) -> Tensor:
        """Return row `index` . x, along the dimension of the classes, as `settled` sums it up."""
        columns, values = self.at(index, dim)
        return settled(x.gather(dim, columns), values, dim)

    def dense(self, index: Tensor, like: Tensor, dim: int) -> Tensor:
        """Return the rows `index` with all their columns, of the shape of `like`."""
        columns, values = self.at(index, dim)
        return torch.zeros_like(like).scatter_add(dim, columns, values)

    def log_terms(self, log_x: Tensor, dim: int) -> Tensor:
        """Return what the product with x sums, (m, ...), in logarithms, as the values are then."""
        pairs = zip(self.columns.unbind(1), self.values.unbind(1), strict=True)
        terms = (log_x.index_select(dim, column) + along(v, log_x, dim) for column, v in pairs)
        return torch.stack(list(terms))

    def transposed_times(self, x: Tensor, dim: int) -> Tensor:
        """Return the transpose's product with x."""
        total = torch.zeros_like(x)
        for columns, values in zip(self.columns.unbind(1), self.values.unbind(1), strict=True):
            total = total.index_add(dim, columns, along(values, x, dim) * x)
        return total


def places(log_matrix: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Return where the rows of log T' are not -inf, (k, m); None if those are many places."""
    longest = np.isfinite(log_matrix).sum(axis=1).max()
    return None if longest > FEW_PLACES else np.argsort(-log_matrix, axis=1)[:, :longest]


def along(vector: Tensor, x: Tensor, dim: int) -> Tensor:
    """Return a (k,) vector shaped to broadcast along dimension `dim` of x."""
    return vector.view([-1 if i == dim else 1 for i in range(x.ndim)])


def settled(losses: Tensor, coefficients: Tensor, dim: int) -> Tensor:
    """Return the sum of the products along `dim`; +inf where an infinite loss is counted in it.

    A coefficient of 0 drops an infinite loss. With any other, of either sign, nothing is said.
    """
    infinite = losses.detach() == float("inf")
    total = (coefficients * losses.masked_fill(infinite, 0.0)).sum(dim)
    return total.masked_fill((infinite & (coefficients != 0)).any(dim), float("inf"))
