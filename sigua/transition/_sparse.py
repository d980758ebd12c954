"""Sparse k x k matrices as NumPy arrays, and the table that a step gathers from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_ENTRIES = 50_000_000
"""The most entries of a table: 0.8 GB here, 0.6 GB on a device in float32."""


class Csr(NamedTuple):
    """Compressed sparse rows, as in SciPy: `scipy.sparse.csr_array(csr, shape=(k, k))` is the same.

    Row i holds `data[a:b]` at the columns `indices[a:b]`, ascending, a, b = `indptr[i:i + 2]`.
    """

    data: Matrix
    indices: Integers
    indptr: Integers

    @classmethod
    def of(cls, i: Integers, j: Integers, values: Matrix, size: int) -> Csr:
        """Return the matrix with these entries in any order; those at one place are added up."""
        if len(i) and not (min(i.min(), j.min()) >= 0 and max(i.max(), j.max()) < size):
            raise ValueError(f"an entry outside [0, {size})")
        place, where = np.unique(i.astype(np.int64) * size + j, return_inverse=True)
        indptr = np.searchsorted(place, np.arange(size + 1, dtype=np.int64) * size)
        data = np.zeros(len(place))
        np.add.at(data, where, values)
        return cls(data, place % size, indptr.astype(np.int64))

    @classmethod
    def of_pairs(cls, sources: Integers, targets: Integers, rate: float, size: int) -> Csr:
        """Return T by which each source is mistaken for its target; other classes are clean."""
        each, rates = np.arange(size), np.full(len(sources), rate)
        i, j = np.concatenate([each, sources, sources]), np.concatenate([each, sources, targets])
        csr = cls.of(i, j, np.concatenate([np.ones(size), -rates, rates]), size)
        return csr.keep(csr.data > 0)

    @property
    def size(self) -> int:
        """The number of rows, k."""
        return len(self.indptr) - 1

    def owners(self) -> Integers:
        """Return the row of each entry."""
        return np.repeat(np.arange(self.size), np.diff(self.indptr))

    def keep(self, kept: NDArray[np.bool_]) -> Csr:
        """Return the matrix without the entries that are not `kept`."""
        indptr = np.concatenate([[0], np.cumsum(kept)])[self.indptr]
        return Csr(self.data[kept], self.indices[kept], indptr)

    def dense(self) -> Matrix:
        rows = np.zeros((self.size, self.size))
        rows[self.owners(), self.indices] = self.data
        return rows

    def draw(self, rows: NDArray[np.integer], rng: np.random.Generator) -> Integers:
        """Return for each of `rows` a column, drawn with that row's probabilities."""
        first, last = self.indptr[rows], self.indptr[rows + 1] - 1
        edges = np.cumsum(self.data)
        low = edges[first] - self.data[first]
        aim = low + rng.random(len(rows)) * (edges[last] - low)
        found = np.searchsorted(edges, aim, side="right")
        return np.asarray(self.indices[np.clip(found, first, last)])


def column_table(csr: Csr) -> tuple[Integers, Matrix]:
    """Return T' as (k, m) columns and entries, where m is the most that a row of T' has.

    Shorter rows are filled up with entries of 0, at the column of the row's own class.
    """
    k, owners = csr.size, csr.owners()
    observed = Csr.of(csr.indices, owners, csr.data, k)
    lengths = np.diff(observed.indptr)
    m = max(int(lengths.max()), 1)
    if k * m > MAX_ENTRIES:
        raise ValueError(
            f"T: must have at most {MAX_ENTRIES} entries in its longest column times k to be kept "
            f"sparse, got class {lengths.argmax()}, which is observed for {m} of {k}; "
            "try splitting or dropping that class, or symmetric noise"
        )
    owners = observed.owners()
    places = np.arange(len(owners)) - observed.indptr[owners]
    columns, entries = np.repeat(np.arange(k)[:, None], m, axis=1), np.zeros((k, m))
    columns[owners, places], entries[owners, places] = observed.indices, observed.data
    return columns, entries
