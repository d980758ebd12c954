"""The label transition matrix: T[i, j] = p(observed class j | true class i)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sigua import checks
from sigua.transition import _stochastic
from sigua.transition._sparse import Csr, Integers, Matrix, column_table
from sigua.transition._stochastic import is_sparse, refuse_above

SPARSE_ABOVE = 1000
"""Pair noise and mappings of more classes than this are kept sparse."""
MOST_PRINTED = 1_000
"""The most entries that are printed, as of NumPy's arrays."""
MAX_DENSE = 10_000
"""The most classes for which a sparse or symmetric T becomes a k x k array, of 0.8 GB."""


class TransitionMatrix:
    """An immutable, invertible, row-stochastic matrix, checked when it is made.

    `symmetric` noise is kept as two numbers, and a sparse matrix, or the `pair` noise of more than
    1000 classes, as its entries. Neither becomes a k x k array unless `rows` or `inverse` is asked
    for, as backward correction by a sparse T does, which is for up to 10,000 classes.

    Args:
        rows: shape (k, k), k >= 2, float; row i is the distribution of the observed label for true
            class i. Entries down to -1e-8 are taken for rounding and clipped; rows whose sums are
            within 1e-6 of 1 are divided by their sum. The caller's array is not changed. A sparse
            matrix or array of SciPy, in any format, or another's `csr`, is kept sparse.

    Raises:
        ValueError: not square, an entry negative or not finite, a row that does not sum to 1, or a
            condition number above 1e4, singular matrices included: in the 2-norm, and for a sparse
            matrix in the infinity norm. With more than 10,000 classes that needs a diagonal above
            one half.

    Attributes:
        form: how it is kept: "symmetric", "dense" or "sparse".
        num_classes: k.
        flip_rate: the noise rate of symmetric noise; None for any other matrix.
        csr: (data, indices, indptr) of a T that is kept sparse, in SciPy's order; None for others.

    >>> T = TransitionMatrix([[0.9, 0.1], [0.2, 0.8]])
    >>> T.num_classes, T.inverse.round(3).tolist()
    (2, [[1.143, -0.143], [-0.286, 1.286]])
    """

    form: str
    num_classes: int
    flip_rate: float | None = None
    csr: Csr | None = None
    pair_rate: float | None = None

    def __init__(self, rows: Any) -> None:
        if is_sparse(rows):
            csr = _stochastic.from_sparse(rows)
            refuse_above(_stochastic.sparse_condition(csr, MAX_DENSE), "rows")
            self._keep(form="sparse", num_classes=csr.size, csr=csr)
        else:
            dense = _stochastic.from_dense(rows)
            refuse_above(_stochastic.dense_condition(dense), "rows")
            self._keep(form="dense", num_classes=len(dense), rows=dense)

    @classmethod
    def _of(cls, **parts: Any) -> TransitionMatrix:
        self = cls.__new__(cls)
        self._keep(**parts)
        return self

    def _keep(self, **parts: Any) -> None:
        """Set attributes; arrays, and those of tuples, become read-only."""
        for part in parts.values():
            for array in part if isinstance(part, tuple) else (part,):
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)
        vars(self).update(parts)

    @classmethod
    def symmetric(cls, noise_rate: float, num_classes: int) -> TransitionMatrix:
        """Return symmetric noise: a wrong label is any of the *other* classes, equally likely.

        Raises:
            ValueError: `noise_rate` outside [0, 1), or so close to (k - 1) / k that the labels say
                nothing.

        >>> TransitionMatrix.symmetric(0.5, 3).rows.tolist()
        [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
        """
        rate, k = rate_and_size(noise_rate, num_classes)
        # The eigenvalues are 1 and 1 - eps - eps / (k - 1), which is 0 at eps = (k - 1) / k.
        _refuse_small(abs(1 - rate - rate / (k - 1)))
        return cls._of(form="symmetric", num_classes=k, flip_rate=rate)

    @classmethod
    def pair(cls, noise_rate: float, num_classes: int) -> TransitionMatrix:
        """Return pair noise: a wrong label is always the next class, and the last one's is class 0.

        Raises:
            ValueError: `noise_rate` outside [0, 1), or 0.5 with an even number of classes.

        >>> TransitionMatrix.pair(0.25, 3).rows.tolist()
        [[0.75, 0.25, 0.0], [0.0, 0.75, 0.25], [0.25, 0.0, 0.75]]
        """
        rate, k = rate_and_size(noise_rate, num_classes)
        # T is normal, with eigenvalues 1 - eps + eps w for the k-th roots w of 1.
        _refuse_small(abs(1 - rate + rate * np.exp(2j * np.pi * (k // 2) / k)))
        each = np.arange(k)
        csr = Csr.of_pairs(each, (each + 1) % k, rate, k)
        if k > SPARSE_ABOVE:
            return cls._of(form="sparse", num_classes=k, csr=csr, pair_rate=rate)
        return cls._of(form="dense", num_classes=k, rows=csr.dense(), pair_rate=rate)

    @classmethod
    def from_cleanlab(cls, noise_matrix: ArrayLike) -> TransitionMatrix:
        """Return T from cleanlab's noise matrix, P(given | true), whose *columns* sum to 1.

        Raises:
            ValueError: a column that does not sum to 1, or as for `TransitionMatrix`.

        >>> TransitionMatrix.from_cleanlab([[0.9, 0.2], [0.1, 0.8]]).rows.tolist()
        [[0.9, 0.1], [0.2, 0.8]]
        """
        if is_sparse(noise_matrix):
            return cls(noise_matrix.transpose())
        matrix = checks.floats("noise_matrix", noise_matrix)
        sums = matrix.sum(axis=0) if matrix.ndim == 2 else np.ones(1)
        off = np.abs(sums - 1)
        if (off > _stochastic.ROUNDING).any():
            i = int(off.argmax())
            raise ValueError(
                f"noise_matrix: must have columns that sum to 1, got {sums[i]:.6g} in column {i}; "
                "try TransitionMatrix(noise_matrix) if its rows do"
            )
        return cls(matrix.T)

    @cached_property
    def rows(self) -> Matrix:
        """T itself, float64, shape (k, k), read-only; ValueError for more than 10,000 classes."""
        k = self.num_classes
        if k > MAX_DENSE:
            raise ValueError(
                f"T: must have at most {MAX_DENSE} classes for rows and inverse, got {k}; "
                "try csr, or entries and inverse_pair"
            )
        if self.csr is not None:
            return _read_only(self.csr.dense())
        assert self.flip_rate is not None
        return _read_only(symmetric_rows(self.flip_rate, k))

    @cached_property
    def inverse(self) -> Matrix:
        """T^-1, as `rows`; computed once. Its rows sum to 1."""
        return _read_only(np.linalg.inv(self.rows).astype(np.float64, copy=False))

    @property
    def inverse_column_sums(self) -> Matrix:
        """1'T^-1, float64, shape (k,): what each class's loss weighs in `over="classes"`."""
        if self.flip_rate is not None:
            return np.ones(self.num_classes)
        return np.asarray(self.inverse.sum(axis=0), dtype=np.float64)

    @property
    def entries(self) -> tuple[float, float]:
        """T's entry on and off the diagonal; ValueError for noise that is not symmetric."""
        if self.flip_rate is None:
            raise ValueError(f"T: must be symmetric noise, got {self!r}; try rows and inverse")
        return 1 - self.flip_rate, self.flip_rate / (self.num_classes - 1)

    @property
    def inverse_pair(self) -> tuple[float, float]:
        """(a, b) with T^-1 = a I + b 11', as `entries`.

        >>> a, b = TransitionMatrix.symmetric(0.5, 10).inverse_pair
        >>> round(a + b, 3), round(b, 3)
        (2.125, -0.125)
        """
        on, off = self.entries
        return 1 / (on - off), -off / (on - off)

    @cached_property
    def column_table(self) -> tuple[Integers, Matrix]:
        """T' for forward correction by a sparse T: its columns and entries, (k, m); computed once.

        ValueError if T is not kept sparse, or one class is observed for very many others.
        """
        if self.csr is None:
            raise ValueError(f"T: must be kept sparse, got {self!r}; try rows and inverse")
        return column_table(self.csr)

    def to_dict(self) -> dict[str, Any]:
        """Return lists and numbers from which `from_dict` makes the same matrix."""
        for name, rate in (("noise_rate", self.flip_rate), ("pair_rate", self.pair_rate)):
            if rate is not None:
                return {name: rate, "num_classes": self.num_classes}
        if self.csr is not None:
            return {name: part.tolist() for name, part in self.csr._asdict().items()}
        return {"rows": self.rows.tolist()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TransitionMatrix:
        """Return the matrix that `to_dict` described; ValueError for any other dict."""
        rule = "data: must be what to_dict returned"
        if not isinstance(data, dict):
            raise ValueError(f"{rule}, got a {type(data).__name__}; try T.to_dict()")
        make = next((make for key, make in _MAKERS.items() if key in data), cls.symmetric)
        try:
            return make(**data)
        except TypeError as error:  # a part is missing, unknown or of another type
            got = ", ".join(map(str, data)) or "an empty dict"
            raise ValueError(f"{rule}, got {got} ({error}); try T.to_dict()") from None

    def __repr__(self) -> str:
        if self.flip_rate is not None:
            return f"TransitionMatrix.symmetric({self.flip_rate}, {self.num_classes})"
        if self.pair_rate is not None:
            return f"TransitionMatrix.pair({self.pair_rate}, {self.num_classes})"
        if self.csr is not None:
            found = f"{self.num_classes} classes, sparse with {len(self.csr.data)} entries"
            return f"<TransitionMatrix of {found}>"
        if self.num_classes**2 > MOST_PRINTED:
            return f"<TransitionMatrix of {self.num_classes} classes, dense>"
        return f"TransitionMatrix({self.rows.tolist()})"

    def _parts(self) -> tuple[Any, ...]:
        """Return what it is: two are equal if these are."""
        if self.flip_rate is not None:
            return self.num_classes, self.flip_rate
        return self.csr or (self.rows,)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TransitionMatrix):
            return NotImplemented
        mine, others = self._parts(), other._parts()
        return len(mine) == len(others) and all(map(np.array_equal, mine, others))

    def __hash__(self) -> int:
        parts = self._parts()
        return hash(tuple(p.tobytes() if isinstance(p, np.ndarray) else p for p in parts))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a TransitionMatrix is immutable; make another")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._keep(**state)  # a copy or a pickle has made arrays writeable


_MAKERS: dict[str, Callable[..., TransitionMatrix]] = {  # by an entry that no other form has
    "rows": TransitionMatrix,
    "indptr": lambda data, indices, indptr: TransitionMatrix(Csr(data, indices, indptr)),
    "pair_rate": lambda pair_rate, num_classes: TransitionMatrix.pair(pair_rate, num_classes),
}


def rate_and_size(noise_rate: Any, num_classes: Any) -> tuple[float, int]:
    advice = "try the share of wrong labels"
    rate = checks.number("noise_rate", noise_rate, 0, 1, advice, closed=False)
    return rate, checks.whole("num_classes", num_classes, 2, "try the number of classes")


def symmetric_rows(rate: float, k: int) -> Matrix:
    """Return symmetric noise, (k, k), whether or not it has an inverse."""
    return np.where(np.eye(k, dtype=bool), 1 - rate, rate / (k - 1))


def _refuse_small(least: float) -> None:
    """Refuse noise by the smallest absolute value of an eigenvalue; the largest is 1."""
    refuse_above(1 / least if least else float("inf"), "noise_rate")


def _read_only(array: Matrix) -> Matrix:
    array.setflags(write=False)
    return array


def matrix_from(rows: Matrix, name: str, how: str, advice: str) -> TransitionMatrix:
    """Return T of rows that were "estimated" or "counted", or blame the argument behind them."""
    try:
        return TransitionMatrix(rows)
    except ValueError as error:
        reason = str(error).removeprefix("rows: ").partition(";")[0]
        raise ValueError(f"{name}: the {how} rows {reason}; try {advice}") from None


def require_matrix(name: str, value: object) -> TransitionMatrix:
    """Return a TransitionMatrix; refuse anything else."""
    if not isinstance(value, TransitionMatrix):
        raise ValueError(
            f"{name}: must be a TransitionMatrix, got a {type(value).__name__}; "
            "try TransitionMatrix(rows), .symmetric(eps, k) or .pair(eps, k)"
        )
    return value
