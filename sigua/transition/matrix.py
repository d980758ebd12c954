"""The label transition matrix: T[i, j] = p(observed class j | true class i)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sigua import checks
from sigua.transition._form import Form
from sigua.transition._forms import Dense, Sparse, Symmetric
from sigua.transition._kept import Kept
from sigua.transition._pair import Pair
from sigua.transition._sparse import Csr, Matrix, Padded
from sigua.transition._stochastic import ROUNDING, is_sparse

FORMS: tuple[type[Form], ...] = (Dense, Sparse, Pair, Symmetric)


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

    _kept: Form

    def __init__(self, rows: Any) -> None:
        self._keep(_kept=(Sparse if is_sparse(rows) else Dense).checked(rows))

    @classmethod
    def _of(cls, form: Form) -> TransitionMatrix:
        self = cls.__new__(cls)
        self._keep(_kept=form)
        return self

    @property
    def form(self) -> str:
        """How it is kept: "symmetric", "dense" or "sparse"."""
        return self._kept.name

    @property
    def num_classes(self) -> int:
        """The number of classes, k."""
        return self._kept.size

    @property
    def flip_rate(self) -> float | None:
        """The noise rate of symmetric noise; None for any other matrix."""
        return self._kept.flip_rate

    @property
    def csr(self) -> Csr | None:
        """(data, indices, indptr) of a T that is kept sparse, in SciPy's order; None for others."""
        return self._kept.csr

    @classmethod
    def symmetric(cls, noise_rate: float, num_classes: int) -> TransitionMatrix:
        """Return symmetric noise: a wrong label is any of the *other* classes, equally likely.

        Raises:
            ValueError: `noise_rate` outside [0, 1), or so close to (k - 1) / k that the labels say
                nothing.

        >>> TransitionMatrix.symmetric(0.5, 3).rows.tolist()
        [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
        """
        return cls._of(Symmetric.checked(noise_rate, num_classes))

    @classmethod
    def pair(cls, noise_rate: float, num_classes: int) -> TransitionMatrix:
        """Return pair noise: a wrong label is always the next class, and the last one's is class 0.

        Raises:
            ValueError: `noise_rate` outside [0, 1), or 0.5 with an even number of classes.

        >>> TransitionMatrix.pair(0.25, 3).rows.tolist()
        [[0.75, 0.25, 0.0], [0.0, 0.75, 0.25], [0.25, 0.0, 0.75]]
        """
        return cls._of(Pair.checked_pair(noise_rate, num_classes))

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
        if (off > ROUNDING).any():
            i = int(off.argmax())
            raise ValueError(
                f"noise_matrix: must have columns that sum to 1, got {sums[i]:.6g} in column {i}; "
                "try TransitionMatrix(noise_matrix) if its rows do"
            )
        return cls(matrix.T)

    @property
    def entries(self) -> tuple[float, float]:
        """T's entry on and off the diagonal, for symmetric noise only.

        Raises:
            ValueError: any other noise.
        """
        return self._kept.entries

    @property
    def rows(self) -> Matrix:
        """T itself, float64, shape (k, k), read-only.

        Raises:
            ValueError: a sparse or symmetric T of more than 10,000 classes.
        """
        return self._kept.rows

    @property
    def inverse(self) -> Matrix:
        """T^-1, float64, shape (k, k), read-only; computed once. Its rows sum to 1.

        Raises:
            ValueError: a sparse or symmetric T of more than 10,000 classes.
        """
        return self._kept.inverse

    @property
    def column_table(self) -> Padded:
        """T', padded, for forward correction by a sparse T; computed once.

        Raises:
            ValueError: not kept sparse, or one class is observed for very many others.
        """
        return self._kept.column_table

    @property
    def inverse_table(self) -> Padded:
        """T^-1, padded, for backward correction by a sparse T; computed once.

        Small entries are left out, such that each row is exact to 1e-8 in the sum of its errors.

        Raises:
            ValueError: not kept sparse, or T^-1 has too many entries.
            ImportError: SciPy is not installed. For `pair` it is not needed.
        """
        return self._kept.inverse_table

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
        return self._kept.inverse_column_sums()

    def __repr__(self) -> str:
        return repr(self._kept)

    def _parts(self) -> tuple[Any, ...]:
        return self._kept._parts()

    def to_dict(self) -> dict[str, Any]:
        """Return lists and numbers from which `from_dict` makes the same matrix."""
        return self._kept.to_dict()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TransitionMatrix:
        """Return the matrix that `to_dict` described.

        Raises:
            ValueError: not such a dict, or numbers in it that make no T.
        """
        rule = "data: must be what to_dict returned"
        if not isinstance(data, dict):
            raise ValueError(f"{rule}, got a {type(data).__name__}; try T.to_dict()")
        form = next((form for form in FORMS if form.key in data), Symmetric)
        try:
            return cls._of(form.from_dict(data))
        except (KeyError, TypeError) as error:  # a part is missing, unknown or of another type
            got = ", ".join(map(str, data)) or "an empty dict"
            raise ValueError(f"{rule}, got {got} ({error}); try T.to_dict()") from None


def matrix_from(rows: Matrix, name: str, how: str, advice: str) -> TransitionMatrix:
    """Return T of rows that were found, or raise ValueError on the argument they come from.

    Args:
        rows: (k, k).
        name: of the argument.
        how: what was done to find them, such as "estimated".
        advice: what to try.
    """
    try:
        return TransitionMatrix(rows)
    except ValueError as error:
        reason = str(error).removeprefix("rows: ").partition(";")[0]
        raise ValueError(f"{name}: the {how} rows {reason}; try {advice}") from None


def require_matrix(name: str, value: object) -> TransitionMatrix:
    """Return a TransitionMatrix, or raise ValueError on anything else."""
    if not isinstance(value, TransitionMatrix):
        raise ValueError(
            f"{name}: must be a TransitionMatrix, got a {type(value).__name__}; "
            "try TransitionMatrix(rows), .symmetric(eps, k) or .pair(eps, k)"
        )
    return value
