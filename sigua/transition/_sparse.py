"""Sparse k x k matrices as NumPy arrays: how they are kept, and the tables that steps gather from.

SciPy makes them and inverts them (`_sparse_inverse`); nothing else needs it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_ENTRIES = 50_000_000
"""The most entries of a `Padded` table: 0.8 GB here, 0.6 GB on a device in float32."""

INVERSE_ERROR = 1e-8
"""By how much a row of a truncated T^-1 may be off in all; float32's eps is 12 times as much."""


class Csr(NamedTuple):
    """Compressed sparse rows, as in SciPy: `scipy.sparse.csr_array(csr, shape=(k, k))` is the same.

    Row i holds `data[a:b]` at the columns `indices[a:b]`, ascending, a, b = `indptr[i:i + 2]`.
    """

    data: Matrix
    indices: Integers
    indptr: Integers

    @classmethod
    def of(cls, i: Integers, j: Integers, values: Matrix, size: int) -> Csr:
        """Return the matrix with these entries in any order; those at one place are added up.

        Raises:
            ValueError: a place outside the matrix.
        """
        if len(i) and not (min(i.min(), j.min()) >= 0 and max(i.max(), j.max()) < size):
            raise ValueError(f"an entry outside [0, {size})")
        place, where = np.unique(i.astype(np.int64) * size + j, return_inverse=True)
        indptr = np.searchsorted(place, np.arange(size + 1, dtype=np.int64) * size)
        data = np.zeros(len(place))
        np.add.at(data, where, values)
        return cls(data, place % size, indptr.astype(np.int64))

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

    def times(self, x: Matrix) -> Matrix:
        """Return the product with a vector."""
        return np.asarray(np.bincount(self.owners(), self.data * x[self.indices], self.size))

    def transposed(self) -> Csr:
        return Csr.of(self.indices, self.owners(), self.data, self.size)

    def draw(self, rows: NDArray[np.integer], rng: np.random.Generator) -> Integers:
        """Return for each of `rows` a column, drawn with that row's probabilities."""
        first, last = self.indptr[rows], self.indptr[rows + 1] - 1
        edges = np.cumsum(self.data)
        low = edges[first] - self.data[first]
        aim = low + rng.random(len(rows)) * (edges[last] - low)
        found = np.searchsorted(edges, aim, side="right")
        return np.asarray(self.indices[np.clip(found, first, last)])


class Padded(NamedTuple):
    """A sparse matrix as two k x m arrays: row i holds `values[i]` at the columns `columns[i]`.

    An entry of 0 is none: rows shorter than m are filled up with it, at column i or any other.
    """

    columns: Integers
    values: Matrix

    @classmethod
    def empty(cls, k: int, m: int) -> Padded:
        return cls(np.repeat(np.arange(k)[:, None], m, axis=1), np.zeros((k, m)))


def padded(csr: Csr) -> Padded | None:
    """Return the matrix as a `Padded` table; None if that would hold too many entries."""
    lengths = np.diff(csr.indptr)
    k, m = csr.size, max(int(lengths.max()), 1)
    if k * m > MAX_ENTRIES:
        return None
    owners = csr.owners()
    places = np.arange(len(owners)) - csr.indptr[owners]
    table = Padded.empty(k, m)
    table.columns[owners, places] = csr.indices
    table.values[owners, places] = csr.data
    return table


def largest(columns: Integers, values: Matrix, budget: float) -> Padded:
    """Return so many of the largest entries of each row that those left out add up to `budget`."""
    order = np.argsort(-np.abs(values), axis=1)
    values = np.take_along_axis(values, order, axis=1)
    left_out = np.abs(values[:, ::-1]).cumsum(axis=1)[:, ::-1].max(axis=0)
    m = max(int((left_out > budget).sum()), 1)
    return Padded(np.take_along_axis(columns, order, axis=1)[:, :m], values[:, :m])


def column_table(csr: Csr) -> Padded:
    """Return T' padded: what each class may be observed for, and with which probability."""
    columns = csr.transposed()
    table = padded(columns)
    if table is None:
        lengths = np.diff(columns.indptr)
        raise ValueError(
            f"T: must have at most {MAX_ENTRIES} entries in its longest column times k to be kept "
            f"sparse, got class {lengths.argmax()}, which is observed for {lengths.max()} of "
            f"{csr.size}; try splitting or dropping that class, or symmetric noise"
        )
    return table


def fills_in(size: int) -> ValueError:
    """Return the error for a T^-1 that is not sparse enough for a table."""
    return ValueError(
        f"T: must have an inverse with rows of at most {MAX_ENTRIES // size} entries for backward "
        f"correction, got one of {size} classes that fills in; try forward_correction(T), or "
        "dropping the rarest confusions"
    )


def pair_csr(rate: float, size: int) -> Csr:
    """Return pair noise: class i is mistaken for i + 1."""
    each = np.arange(size)
    i, j = np.concatenate([each, each]), np.concatenate([each, (each + 1) % size])
    csr = Csr.of(i, j, np.repeat([1 - rate, rate], size), size)
    return csr.keep(csr.data > 0)


def pair_inverse(rate: float, size: int) -> Padded:
    """Return T^-1 of pair noise, a geometric series along the circle, to INVERSE_ERROR a row.

    With the shift P and r = rate / (1 - rate), T = (1 - rate)(I + r P), so that T^-1 is
    sum_j (-r)^j P^j / (1 - rate) / (1 - (-r)^k), j < k; for r > 1 the same from P^-1.
    """
    forwards = rate <= 0.5
    large, small = (1 - rate, rate) if forwards else (rate, 1 - rate)
    ratio = -small / large
    scale = 1 / (large * (1 - ratio**size))
    tail = abs(scale) / (1 + ratio) if ratio > -1 else float("inf")  # times |r|^m: what is left out
    m = size
    if ratio == 0:
        m = 1
    elif tail < float("inf"):
        m = min(size, int(np.ceil(np.log(INVERSE_ERROR / tail) / np.log(-ratio))))
    if size * m > MAX_ENTRIES:
        raise fills_in(size)
    steps = np.arange(m)
    offsets = steps if forwards else -1 - steps
    columns = (np.arange(size)[:, None] + offsets) % size
    return Padded(columns, np.tile(scale * ratio**steps, (size, 1)))
