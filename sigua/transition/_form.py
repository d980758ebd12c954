"""What every form of a transition matrix offers, by its rows alone."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sigua.transition._kept import Kept
from sigua.transition._sparse import Csr, Matrix, Padded

MAX_DENSE = 10_000
"""The most classes for which a sparse or symmetric T becomes a k x k array, of 0.8 GB."""


class Form(Kept):
    """What every form offers; the public part is described in `TransitionMatrix`.

    What is written here needs `rows` alone. A form overrides what it has a shorter way for.
    """

    name: ClassVar[str]
    """By which an adapter finds what it does with this form."""
    key: ClassVar[str]
    """Which entry of `to_dict` tells this form from the others."""
    size: int
    flip_rate: float | None = None
    csr: Csr | None = None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Form:
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    @cached_property
    def rows(self) -> Matrix:
        if self.size > MAX_DENSE:
            raise ValueError(
                f"T: must have at most {MAX_DENSE} classes for rows and inverse, got {self.size}; "
                "try csr, or entries and inverse_pair"
            )
        return _read_only(self._dense())

    def _dense(self) -> Matrix:
        raise NotImplementedError

    @cached_property
    def inverse(self) -> Matrix:
        return _read_only(np.linalg.inv(self.rows).astype(np.float64, copy=False))

    @property
    def entries(self) -> tuple[float, float]:
        raise ValueError(f"T: must be symmetric noise, got {self!r}; try rows and inverse")

    @property
    def column_table(self) -> Padded:
        raise self._not_sparse()

    @property
    def inverse_table(self) -> Padded:
        raise self._not_sparse()

    def _not_sparse(self) -> ValueError:
        return ValueError(f"T: must be kept sparse, got {self!r}; try rows and inverse")

    def inverse_column_sums(self) -> Matrix:
        """Return 1'T^-1, (k,)."""
        return np.asarray(self.inverse.sum(axis=0), dtype=np.float64)

    def times_inverse(self, row: Matrix) -> Matrix:
        """Return a row vector times T^-1."""
        return np.asarray(np.linalg.solve(self.rows.T, row), dtype=np.float64)

    def entropy(self, frequencies: Matrix) -> float:
        """Return the mean entropy of the rows, in nats, for frequencies of the true classes."""
        return float(frequencies @ surprise(self.rows).sum(axis=1))

    def draw(self, labels: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.integer]:
        """Return an observed label for each true one."""
        drawn = labels.copy()
        for label in np.unique(labels):
            of = np.flatnonzero(labels == label)
            drawn[of] = rng.choice(self.size, size=len(of), p=self.rows[label])
        return drawn


def _read_only(array: Matrix) -> Matrix:
    array.setflags(write=False)
    return array


def surprise(p: Matrix) -> Matrix:
    """Return -p log p; 0 for 0. Its sum over a distribution is the entropy."""
    return -p * np.log(p, where=p > 0, out=np.zeros_like(p))
