"""The label transition matrix: T[i, j] = p(observed class j | true class i)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sigua import checks
from sigua.transition import _sparse, _sparse_inverse
from sigua.transition._kept import Kept
from sigua.transition._sparse import Csr, Matrix, Padded
from sigua.transition._stochastic import ROUNDING, from_dense, from_sparse, is_sparse, refuse_above

MAX_DENSE = 10_000
"""The most classes for which a sparse or symmetric T becomes a k x k array, of 0.8 GB."""

SPARSE_ABOVE = 1000
"""Pair noise and mappings of more classes than this are kept sparse."""


class TransitionMatrix(Kept):
    """An immutable, invertible, row-stochastic matrix, checked when it is made.

    `TransitionMatrix.symmetric` is kept as two numbers, and a sparse matrix, or the `pair` noise of
    more than 1000 classes, as its entries: neither becomes a k x k array unless `rows` or `inverse`
    is asked for, which is for up to 10,000 classes. Every other matrix is kept in float64.

    Backward correction by a sparse T needs a sparse T^-1, and has it where classes fall into groups
    or lie in a row, or noise is weak; not where each is mistaken for a few at random. Forward
    correction needs columns that are not long. What does not fit is refused when it is asked for.

    Args:
        rows: shape (k, k), k >= 2, float; row i is the distribution of the observed label for true
            class i. Entries down to -1e-8 are taken for rounding and clipped; rows whose sums are
            within 1e-6 of 1 are divided by their sum. The caller's array is not changed. A sparse
            matrix or array of SciPy, in any format, or another's `csr`, is kept sparse.

    Raises:
        ValueError: not square, an entry negative or not finite, a row that does not sum to 1, or a
            condition number above 1e4, singular matrices included. It is taken in the 2-norm, and
            for a sparse matrix in the infinity norm: how much T^-1 may multiply the largest loss.
            There, noise above one half in groups of more than 2000 classes is refused, too.
        ImportError: SciPy is needed, for a sparse T with noise above one half, and not installed.

    >>> T = TransitionMatrix([[0.9, 0.1], [0.2, 0.8]])
    >>> T.num_classes, T.inverse.round(3).tolist()
    (2, [[1.143, -0.143], [-0.286, 1.286]])
    """

    num_classes: int
    flip_rate: float | None
    """The noise rate of symmetric noise; None for any other matrix."""

    csr: Csr | None = None
    """(data, indices, indptr) of a T that is kept sparse, in SciPy's order; None for any other."""

    _pair_rate: float | None = None

    def __init__(self, rows: Any) -> None:
        if is_sparse(rows):
            csr = from_sparse(rows)
            refuse_above(_sparse_inverse.condition(csr), "rows")
            self._keep(num_classes=csr.size, flip_rate=None, csr=csr)
        else:
            rows = from_dense(rows)
            refuse_above(float(np.linalg.cond(rows)), "rows")
            self._keep(num_classes=len(rows), flip_rate=None, _rows=rows)

    @classmethod
    def symmetric(cls, noise_rate: float, num_classes: int) -> TransitionMatrix:
        """Return symmetric noise: a wrong label is any of the *other* classes, equally likely.

        Raises:
            ValueError: `noise_rate` outside [0, 1), or so close to (k - 1) / k that the labels say
                nothing.

        >>> TransitionMatrix.symmetric(0.5, 3).rows.tolist()
        [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
        """
        rate, k = _rate_and_size(noise_rate, num_classes)
        # The eigenvalues are 1 and 1 - eps - eps / (k - 1), which is 0 at eps = (k - 1) / k.
        spread = abs(1 - rate - rate / (k - 1))
        refuse_above(1 / spread if spread else float("inf"), "noise_rate")
        self = cls.__new__(cls)
        self._keep(num_classes=k, flip_rate=rate)
        return self

    @classmethod
    def pair(cls, noise_rate: float, num_classes: int) -> TransitionMatrix:
        """Return pair noise: a wrong label is always the next class, and the last one's is class 0.

        Raises:
            ValueError: `noise_rate` outside [0, 1), or 0.5 with an even number of classes.

        >>> TransitionMatrix.pair(0.25, 3).rows.tolist()
        [[0.75, 0.25, 0.0], [0.0, 0.75, 0.25], [0.25, 0.0, 0.75]]
        """
        rate, k = _rate_and_size(noise_rate, num_classes)
        # T is normal, with eigenvalues 1 - eps + eps w for the k-th roots w of 1.
        least = abs(1 - rate + rate * np.exp(2j * np.pi * (k // 2) / k))
        refuse_above(1 / least if least else float("inf"), "noise_rate")
        self = cls.__new__(cls)
        csr = _sparse.pair_csr(rate, k)
        kept = {"csr": csr} if k > SPARSE_ABOVE else {"_rows": csr.dense()}
        self._keep(num_classes=k, flip_rate=None, _pair_rate=rate, **kept)
        return self

    @classmethod
    def from_cleanlab(cls, noise_matrix: ArrayLike) -> TransitionMatrix:
        """Return T from cleanlab's noise matrix, P(given | true), whose *columns* sum to 1.

        >>> TransitionMatrix.from_cleanlab([[0.9, 0.2], [0.1, 0.8]]).rows.tolist()
        [[0.9, 0.1], [0.2, 0.8]]
        """
        if is_sparse(noise_matrix):
            return cls(noise_matrix.transpose())
        matrix = checks.floats("noise_matrix", noise_matrix)
        sums = matrix.sum(axis=0) if matrix.ndim == 2 else np.ones(1)
        off = np.abs(sums - 1)
        if (off > ROUNDING).any():
            i = int(off.argmax())
            advice = "if its rows do, give TransitionMatrix(noise_matrix)"
            came = f"column {i} sums to {sums[i]:.6g}"
            raise checks.refuse("noise_matrix", "each column must sum to 1", came, advice)
        return cls(matrix.T)

    @cached_property
    def _rows(self) -> Matrix:
        k = self.num_classes
        if k > MAX_DENSE:
            rule = f"rows and inverse are arrays for at most {MAX_DENSE} classes"
            raise checks.refuse("T", rule, f"it has {k}", "use csr, or entries and inverse_pair")
        if self.csr is not None:
            rows = self.csr.dense()
        else:
            on, off = self.entries
            rows = np.full((k, k), off)
            np.fill_diagonal(rows, on)
        rows.setflags(write=False)
        return rows

    @property
    def entries(self) -> tuple[float, float]:
        """T's entry on and off the diagonal, for symmetric noise only.

        Raises:
            ValueError: any other noise.
        """
        if self.flip_rate is None:
            came = f"{self!r} came"
            raise checks.refuse("T", "must be symmetric noise for this", came, "use rows, inverse")
        return 1 - self.flip_rate, self.flip_rate / (self.num_classes - 1)

    @property
    def rows(self) -> Matrix:
        """T itself, float64, shape (k, k), read-only.

        Raises:
            ValueError: a sparse or symmetric T of more than 10,000 classes.
        """
        return self._rows

    @cached_property
    def inverse(self) -> Matrix:
        """T^-1, float64, shape (k, k), read-only; computed once. Its rows sum to 1.

        Raises:
            ValueError: a sparse or symmetric T of more than 10,000 classes.
        """
        inverse = np.linalg.inv(self.rows).astype(np.float64, copy=False)
        inverse.setflags(write=False)
        return inverse

    @cached_property
    def column_table(self) -> Padded:
        """T', padded, for forward correction by a sparse T; computed once.

        Raises:
            ValueError: not kept sparse, or one class is observed for very many others.
        """
        return _sparse.column_table(self._sparse())

    @cached_property
    def inverse_table(self) -> Padded:
        """T^-1, padded, for backward correction by a sparse T; computed once.

        Small entries are left out, such that each row is exact to 1e-8 in the sum of its errors.

        Raises:
            ValueError: not kept sparse, or T^-1 has too many entries.
            ImportError: SciPy is not installed. For `pair` it is not needed.
        """
        csr = self._sparse()
        if self._pair_rate is not None:
            return _sparse.pair_inverse(self._pair_rate, self.num_classes)
        return _sparse_inverse.inverse_table(csr)

    @property
    def inverse_pair(self) -> tuple[float, float]:
        """(a, b) with T^-1 = a I + b 11', for symmetric noise only.

        >>> a, b = TransitionMatrix.symmetric(0.5, 10).inverse_pair
        >>> round(a + b, 3), round(b, 3)
        (2.125, -0.125)
        """
        on, off = self.entries
        return 1 / (on - off), -off / (on - off)

    @property
    def inverse_column_sums(self) -> Matrix:
        """1'T^-1, float64, shape (k,): what each class's loss weighs in `over="classes"`.

        Raises:
            ValueError: as for `inverse_table`, of a sparse T.
        """
        if self.flip_rate is not None:
            return np.ones(self.num_classes)
        if self.csr is not None:
            columns, values = self.inverse_table
            sums = np.bincount(columns.ravel(), values.ravel(), self.num_classes)
            return np.asarray(sums, dtype=np.float64)
        return np.asarray(self.inverse.sum(axis=0), dtype=np.float64)

    def __repr__(self) -> str:
        for rate, kind in ((self.flip_rate, "symmetric"), (self._pair_rate, "pair")):
            if rate is not None:
                return f"TransitionMatrix.{kind}({rate}, {self.num_classes})"
        if self.csr is not None:
            size, count = self.num_classes, len(self.csr.data)
            return f"<TransitionMatrix of {size} classes, sparse with {count} entries>"
        return f"TransitionMatrix({self._rows.tolist()})"

    def _parts(self) -> tuple[Any, ...]:
        if self.flip_rate is not None:
            return self.num_classes, self.flip_rate
        return (self._rows,) if self.csr is None else self.csr

    def _sparse(self) -> Csr:
        if self.csr is None:
            raise checks.refuse("T", "must be kept sparse", f"{self!r} came", "use rows, inverse")
        return self.csr

    def to_dict(self) -> dict[str, Any]:
        """Return lists and numbers from which `from_dict` makes the same matrix."""
        if self.flip_rate is not None:
            return {"noise_rate": self.flip_rate, "num_classes": self.num_classes}
        if self._pair_rate is not None:
            return {"pair_rate": self._pair_rate, "num_classes": self.num_classes}
        if self.csr is None:
            return {"rows": self._rows.tolist()}
        return {name: part.tolist() for name, part in self.csr._asdict().items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TransitionMatrix:
        """Return the matrix that `to_dict` described."""
        if "rows" in data:
            return cls(data["rows"])
        if "indptr" in data:
            return cls(Csr(*(np.array(data[name]) for name in Csr._fields)))
        if "pair_rate" in data:
            return cls.pair(data["pair_rate"], data["num_classes"])
        return cls.symmetric(**data)


def _rate_and_size(noise_rate: Any, num_classes: Any) -> tuple[float, int]:
    rate = checks.number(
        "noise_rate", noise_rate, 0, 1, "give the share of wrong labels", closed=False
    )
    return rate, checks.whole("num_classes", num_classes, 2, "give the number of classes")


def require_matrix(name: str, value: object) -> TransitionMatrix:
    """Return a TransitionMatrix, or raise ValueError on anything else."""
    if not isinstance(value, TransitionMatrix):
        came = f"a {type(value).__name__} came"
        advice = "wrap it: TransitionMatrix(rows), .symmetric(eps, k) or .pair(eps, k)"
        raise checks.refuse(name, "must be a TransitionMatrix", came, advice)
    return value
