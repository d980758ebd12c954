"""The forms in which a transition matrix is kept: two numbers, a k x k array, or its entries.

Each knows all that depends on how it is kept. `TransitionMatrix` holds one and asks it.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigua import checks
from sigua.transition import _sparse, _sparse_inverse
from sigua.transition._form import Form, surprise
from sigua.transition._sparse import Csr, Integers, Matrix, Padded
from sigua.transition._stochastic import from_dense, from_sparse, refuse_above


class Symmetric(Form):
    """A noise rate and a number of classes."""

    name = "symmetric"
    key = "noise_rate"
    flip_rate: float

    def __init__(self, flip_rate: float, size: int) -> None:
        self._keep(flip_rate=flip_rate, size=size)

    @classmethod
    def checked(cls, noise_rate: Any, num_classes: Any) -> Symmetric:
        rate, k = rate_and_size(noise_rate, num_classes)
        # The eigenvalues are 1 and 1 - eps - eps / (k - 1), which is 0 at eps = (k - 1) / k.
        spread = abs(1 - rate - rate / (k - 1))
        refuse_above(1 / spread if spread else float("inf"), "noise_rate")
        return cls(rate, k)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Form:
        return cls.checked(**data)

    def to_dict(self) -> dict[str, Any]:
        return {"noise_rate": self.flip_rate, "num_classes": self.size}

    def _dense(self) -> Matrix:
        on, off = self.entries
        rows = np.full((self.size, self.size), off)
        np.fill_diagonal(rows, on)
        return rows

    @property
    def entries(self) -> tuple[float, float]:
        return 1 - self.flip_rate, self.flip_rate / (self.size - 1)

    def inverse_column_sums(self) -> Matrix:
        return np.ones(self.size)

    def entropy(self, frequencies: Matrix) -> float:
        """Return the entropy that every row has, whatever the frequencies."""
        rate = self.flip_rate
        return float(surprise(np.array([1 - rate, rate])).sum() + rate * math.log(self.size - 1))

    def draw(self, labels: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.integer]:
        flipped = rng.random(len(labels)) < self.flip_rate
        step = rng.integers(1, self.size, len(labels))
        return np.where(flipped, (labels + step) % self.size, labels)

    def __repr__(self) -> str:
        return f"TransitionMatrix.symmetric({self.flip_rate}, {self.size})"

    def _parts(self) -> tuple[Any, ...]:
        return self.size, self.flip_rate


class Dense(Form):
    """A k x k array."""

    name = "dense"
    key = "rows"

    def __init__(self, rows: Matrix) -> None:
        self._keep(rows=rows, size=len(rows))

    @classmethod
    def checked(cls, rows: Any) -> Dense:
        rows = from_dense(rows)
        refuse_above(float(np.linalg.cond(rows)), "rows")
        return cls(rows)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Form:
        return cls.checked(data["rows"])

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.rows.tolist()}

    def __repr__(self) -> str:
        return f"TransitionMatrix({self.rows.tolist()})"

    def _parts(self) -> tuple[Any, ...]:
        return (self.rows,)


class Sparse(Form):
    """Compressed sparse rows."""

    name = "sparse"
    key = "indptr"
    csr: Csr

    def __init__(self, csr: Csr) -> None:
        self._keep(csr=csr, size=csr.size)

    @classmethod
    def checked(cls, rows: Any) -> Sparse:
        csr = from_sparse(rows)
        refuse_above(_sparse_inverse.condition(csr), "rows")
        return cls(csr)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Form:
        return cls.checked(Csr(*(np.array(data[name]) for name in Csr._fields)))

    def to_dict(self) -> dict[str, Any]:
        return {name: part.tolist() for name, part in self.csr._asdict().items()}

    def _dense(self) -> Matrix:
        return self.csr.dense()

    @cached_property
    def column_table(self) -> Padded:
        return _sparse.column_table(self.csr)

    @cached_property
    def inverse_table(self) -> Padded:
        return self._inverse_table()

    def _inverse_table(self) -> Padded:
        return _sparse_inverse.inverse_table(self.csr)

    def inverse_column_sums(self) -> Matrix:
        return self.times_inverse(np.ones(self.size))

    def times_inverse(self, row: Matrix) -> Matrix:
        columns, values = self.inverse_table
        sums = np.bincount(columns.ravel(), (row[:, None] * values).ravel(), self.size)
        return np.asarray(sums, dtype=np.float64)

    def entropy(self, frequencies: Matrix) -> float:
        return float(frequencies[self.csr.owners()] @ surprise(self.csr.data))

    def draw(self, labels: NDArray[np.integer], rng: np.random.Generator) -> Integers:
        return self.csr.draw(labels, rng)

    def __repr__(self) -> str:
        return (
            f"<TransitionMatrix of {self.size} classes, sparse with {len(self.csr.data)} entries>"
        )

    def _parts(self) -> tuple[Any, ...]:
        return self.csr


def rate_and_size(noise_rate: Any, num_classes: Any) -> tuple[float, int]:
    advice = "try the share of wrong labels"
    rate = checks.number("noise_rate", noise_rate, 0, 1, advice, closed=False)
    return rate, checks.whole("num_classes", num_classes, 2, "try the number of classes")
