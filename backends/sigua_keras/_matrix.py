"""T^-1 and T' as tensors, a class for each form in which T is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from keras import ops

from sigua import TransitionMatrix
from sigua_keras._measure import Tensor


class Matrix(Protocol):
    """A k x k matrix M."""

    def at(self, index: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """Return the entries of the rows `index`, and those of `table`, (n, k), they belong to."""

    def times(self, p: Tensor) -> Tensor:
        """Return M p for rows of p that sum to 1."""


class Symmetric:
    """The matrix a I + b 11', as two numbers."""

    def __init__(self, own: float, everyone: float) -> None:
        self.own, self.everyone = own, everyone

    def at(self, index: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        one_hot = ops.one_hot(index, table.shape[-1], dtype="float32")
        return self.own * one_hot + self.everyone, table

    def times(self, p: Tensor) -> Tensor:
        return self.own * p + self.everyone


class Dense:
    """A k x k table, made outside any trace: a NumPy array inside one makes torch.compile break."""

    def __init__(self, table: Any) -> None:
        # Rows are gathered, several times as fast where each is in one piece.
        self.table = ops.convert_to_tensor(np.array(table, order="C"), dtype="float32")

    def at(self, index: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        return ops.take(self.table, index, axis=0), table

    def times(self, p: Tensor) -> Tensor:
        return ops.matmul(p, ops.transpose(self.table))


class Sparse:
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


def _mixture(on: float, off: float) -> Symmetric:
    return Symmetric(on - off, off)


Maker = Callable[[TransitionMatrix], Matrix]

INVERSES: dict[str, Maker] = {
    "symmetric": lambda T: Symmetric(*T.inverse_pair),
    "dense": lambda T: Dense(T.inverse),
    "sparse": lambda T: Sparse(*T.inverse_table),
}

TRANSPOSES: dict[str, Maker] = {
    "symmetric": lambda T: _mixture(*T.entries),
    "dense": lambda T: Dense(T.rows.T),
    "sparse": lambda T: Sparse(*T.column_table),
}
