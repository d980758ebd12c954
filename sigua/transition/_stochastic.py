"""What a row-stochastic matrix must satisfy, dense or sparse, in the same sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks
from sigua.transition._sparse import Csr, Matrix

MAX_CONDITION = 1e4
"""Above this condition number T^-1 amplifies float32 rounding to some 0.1 % of a loss or more."""
CLIP = 1e-8  # entries this far below 0 are rounding, not a mistake
ROUNDING = 1e-6  # rows this close to 1 are float32's, and are divided by their sum


def is_sparse(rows: Any) -> TypeGuard[Any]:
    """Return whether `rows` is a sparse matrix or array of SciPy's, or our own `Csr`."""
    return isinstance(rows, Csr) or callable(getattr(rows, "tocoo", None))


def from_dense(rows: ArrayLike) -> Matrix:
    """Return a checked copy of `rows` in float64."""
    _refuse_names(rows)
    array = _numbers(checks.array("rows", rows))
    _refuse_shape(array.shape)
    array = _from_zero(array, lambda at: divmod(at, len(array)))
    return array / _divisors(array.sum(axis=1), array.sum(axis=0))[:, None]


def from_sparse(rows: Any) -> Csr:
    """Return a checked copy of sparse `rows` in float64, without zeros."""
    if isinstance(rows, Csr):
        rows = _csr_parts(rows)
        shape, i, j, values = (rows.size,) * 2, rows.owners(), rows.indices, rows.data
    else:
        rows = rows.tocoo()
        shape, i, j, values = tuple(rows.shape), rows.row, rows.col, rows.data
    _refuse_shape(shape)
    numbers = _numbers(np.asarray(values))
    try:
        csr = Csr.of(i, j, numbers, shape[0])
    except (TypeError, ValueError) as error:
        raise _not_square(error) from None
    csr = csr._replace(data=_from_zero(csr.data, lambda at: (csr.owners()[at], csr.indices[at])))
    csr = csr.keep(csr.data > 0)
    owners, k = csr.owners(), csr.size
    sums, column_sums = (np.bincount(each, csr.data, k) for each in (owners, csr.indices))
    return csr._replace(data=csr.data / _divisors(sums, column_sums)[owners])


def _csr_parts(csr: Csr) -> Csr:
    """Return compressed rows as arrays, or raise ValueError if they are none."""
    data, indices, indptr = (checks.array("rows", part) for part in csr)
    whole = all(part.ndim == 1 and part.dtype.kind in "iu" for part in (indices, indptr))
    if (
        not whole
        or len(indptr) < 2
        or data.shape != indices.shape
        or (indptr[0], indptr[-1]) != (0, len(data))
        or bool((np.diff(indptr) < 0).any())
    ):
        raise ValueError(
            "rows: must be a square matrix in compressed sparse rows, got data, indices and indptr "
            "that make none; try the csr or to_dict() of another T, or a matrix of SciPy"
        )
    return Csr(data, indices, indptr)


def dense_condition(rows: Matrix) -> float:
    """Return the condition number in the 2-norm, or a bound that is small enough, in O(k^2).

    Let c be the least entry of each column, with sum s, so that T = M + 1 c', where a row of M sums
    to 1 - s. As T^-1 = (I - 1 c') M^-1, its infinity norm is at most (1 + s) / d, if each diagonal
    entry of M is ahead of the rest of its row by d or more. The 2-norm of a matrix is at most
    sqrt(k) times that, and at most the root of the infinity norm times the largest column sum.
    """
    least = rows.min(axis=0)
    ahead = float((2 * (rows.diagonal() - least)).min() - 1 + least.sum())
    if ahead > 0:
        bound = float((len(rows) * rows.sum(axis=0).max()) ** 0.5 * (1 + least.sum()) / ahead)
        if bound <= MAX_CONDITION:
            return bound
    return float(np.linalg.cond(rows))


def sparse_condition(csr: Csr, most: int) -> float:
    """Return the condition number in the infinity norm, ||T^-1|| as ||T|| = 1, or a bound of it.

    With each diagonal entry d above 1/2 it is at most 1 / min(2 d - 1), because the other entries
    of a row sum to 1 - d. Else it takes the dense inverse, for which T must not be too large.
    """
    on = csr.indices == csr.owners()
    diagonal = np.bincount(csr.indices[on], csr.data[on], csr.size)
    dominance = float((2 * diagonal - 1).min())
    if dominance * MAX_CONDITION >= 1:
        return 1 / dominance
    if csr.size > most:
        raise ValueError(
            f"rows: must have a diagonal above one half if sparse, with more than {most} classes, "
            f"got {(dominance + 1) / 2:.3g} among {csr.size}; try less noise, or fewer classes"
        )
    try:
        return float(np.abs(np.linalg.inv(csr.dense())).sum(axis=1).max())
    except np.linalg.LinAlgError:
        return float("inf")


def refuse_above(condition: float, name: str) -> None:
    """Raise ValueError for a condition number above the limit, NaN included."""
    if not condition <= MAX_CONDITION:
        raise ValueError(
            f"{name}: must make T invertible, with a condition number of at most "
            f"{MAX_CONDITION:g}, got a condition number of {condition:.3g}; "
            "try less noise, or merging classes that look alike"
        )


def _numbers(array: NDArray[Any]) -> Matrix:
    if array.dtype.kind == "c":
        raise ValueError(f"rows: must be real, got {array.dtype}; try rows.real if that is all")
    try:
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise _not_square(error) from None


def _refuse_names(rows: Any) -> None:
    """Refuse a data frame, such as a cross table, whose rows and columns are not in one order."""
    framed = hasattr(rows, "columns") and hasattr(rows, "index")
    true, observed = (list(rows.index), list(rows.columns)) if framed else ([], [])
    if true not in (observed, list(range(len(true)))):
        raise ValueError(
            f"rows: must be the same classes as the columns, in one order, got {true!r} and "
            f"{observed!r}; try rows.reindex(index=classes, columns=classes, fill_value=0)"
        )


def _not_square(got: object) -> ValueError:
    return ValueError(f"rows: must be a square matrix, got {got}; try a row of numbers per class")


def _refuse_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2:
        raise _not_square(f"shape {shape}")


def _from_zero(entries: Matrix, place: Callable[[int], tuple[int, int]]) -> Matrix:
    """Return a copy without what rounding drove below zero; `place` says where an entry is."""
    wrong = ~(entries >= -CLIP)
    if wrong.any():
        at = int(wrong.argmax())
        i, j = place(at)
        raise ValueError(
            f"rows: must be probabilities, got {entries.flat[at]:g} at [{i}, {j}]; "
            "try p(observed j | true i)"
        )
    return np.maximum(entries, 0.0)


def _divisors(sums: NDArray[Any], column_sums: NDArray[Any]) -> Matrix:
    """Return by what to divide rows of these sums: 1 where they are exact."""
    off = np.abs(sums - 1)
    if (off > ROUNDING).any():
        i = int((off > ROUNDING).argmax())
        advice = "rows / rows.sum(axis=1, keepdims=True) if these are counts"
        if np.allclose(column_sums, 1, atol=ROUNDING):
            advice = "rows.T, or from_cleanlab, for the columns do sum to 1"
        raise ValueError(f"rows: must each sum to 1, got {sums[i]:.6g} in row {i}; try {advice}")
    return np.where(off <= 1e-12, 1.0, sums)
