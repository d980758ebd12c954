"""The label transition matrix: T[i, j] = p(observed class j | true class i)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks

Matrix = NDArray[np.float64]

MAX_CONDITION = 1e4
"""Above this condition number T^-1 amplifies float32 rounding to some 0.1 % of a loss or more."""

CLIP = 1e-8  # entries this far below 0 are rounding, not a mistake
ROUNDING = 1e-6  # rows this close to 1 are float32's, and are divided by their sum


class TransitionMatrix:
    """An immutable, invertible, row-stochastic matrix, checked when it is made.

    `TransitionMatrix.symmetric` is kept as two numbers and never becomes a k x k array unless
    `rows` or `inverse` is asked for; every other matrix is kept in float64.

    Args:
        rows: shape (k, k), k >= 2, float; row i is the distribution of the observed label for true
            class i. Entries down to -1e-8 are taken for rounding and clipped; rows whose sums are
            within 1e-6 of 1 are divided by their sum. The caller's array is not changed.

    Raises:
        ValueError: not square, an entry negative or not finite, a row that does not sum to 1, or a
            condition number (2-norm) above 1e4, singular matrices included.

    >>> T = TransitionMatrix([[0.9, 0.1], [0.2, 0.8]])
    >>> T.num_classes, T.inverse.round(3).tolist()
    (2, [[1.143, -0.143], [-0.286, 1.286]])
    """

    num_classes: int
    _made_by: str
    flip_rate: float | None
    """The noise rate of symmetric noise; None for any other matrix."""

    def __init__(self, rows: ArrayLike) -> None:
        rows = _stochastic(rows)
        _refuse_singular(rows, "rows")
        rows.setflags(write=False)
        text = f"TransitionMatrix({rows.tolist()})"
        vars(self).update(num_classes=len(rows), flip_rate=None, _rows=rows, _made_by=text)

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
        _refuse_above(1 / spread if spread else float("inf"), "noise_rate")
        self = cls.__new__(cls)
        text = f"TransitionMatrix.symmetric({rate}, {k})"
        vars(self).update(num_classes=k, flip_rate=rate, _made_by=text)
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
        identity = np.eye(k)
        rows = (1 - rate) * identity + rate * np.roll(identity, 1, axis=1)
        _refuse_singular(rows, "noise_rate")
        self = cls(rows)
        vars(self).update(_made_by=f"TransitionMatrix.pair({rate}, {k})")
        return self

    @classmethod
    def from_cleanlab(cls, noise_matrix: ArrayLike) -> TransitionMatrix:
        """Return T from cleanlab's noise matrix, P(given | true), whose *columns* sum to 1.

        >>> TransitionMatrix.from_cleanlab([[0.9, 0.2], [0.1, 0.8]]).rows.tolist()
        [[0.9, 0.1], [0.2, 0.8]]
        """
        return cls(np.asarray(noise_matrix, dtype=np.float64).T)

    @cached_property
    def _rows(self) -> Matrix:
        on, off = self.entries
        rows = np.full((self.num_classes, self.num_classes), off)
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
        """T itself, float64, shape (k, k), read-only."""
        return self._rows

    @cached_property
    def inverse(self) -> Matrix:
        """T^-1, float64, shape (k, k), read-only; computed once. Its rows sum to 1."""
        inverse = np.linalg.inv(self.rows).astype(np.float64, copy=False)
        inverse.setflags(write=False)
        return inverse

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
        """1'T^-1, float64, shape (k,): what each class's loss weighs in `over="classes"`."""
        if self.flip_rate is not None:
            return np.ones(self.num_classes)
        return np.asarray(self.inverse.sum(axis=0), dtype=np.float64)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a TransitionMatrix is immutable; make another")

    def __repr__(self) -> str:
        return self._made_by

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for value in state.values():
            if isinstance(value, np.ndarray):  # a copy or a pickle has made it writeable
                value.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TransitionMatrix):
            return NotImplemented
        if self.flip_rate is not None or other.flip_rate is not None:
            return self._key() == other._key()
        return np.array_equal(self._rows, other._rows)

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        dense = None if self.flip_rate is not None else self._rows.tobytes()
        return self.num_classes, self.flip_rate, dense

    def to_dict(self) -> dict[str, Any]:
        """Return lists and numbers from which `from_dict` makes the same matrix."""
        if self.flip_rate is not None:
            return {"noise_rate": self.flip_rate, "num_classes": self.num_classes}
        return {"rows": self._rows.tolist()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TransitionMatrix:
        """Return the matrix that `to_dict` described."""
        return cls(data["rows"]) if "rows" in data else cls.symmetric(**data)


def _rate_and_size(noise_rate: Any, num_classes: Any) -> tuple[float, int]:
    rate = checks.number(
        "noise_rate", noise_rate, 0, 1, "give the share of wrong labels", closed=False
    )
    return rate, checks.whole("num_classes", num_classes, 2, "give the number of classes")


def _stochastic(rows: ArrayLike) -> Matrix:
    """Return a checked copy of `rows` in float64."""
    try:
        array = np.array(np.asarray(rows), dtype=np.float64)
    except (TypeError, ValueError) as error:
        advice = "give a row of numbers per true class"
        raise checks.refuse("rows", "must be a square matrix", str(error), advice) from None
    if array.ndim != 2 or array.shape[0] != array.shape[1] or len(array) < 2:
        came = f"shape {array.shape} came"
        raise checks.refuse("rows", "must be a square matrix", came, "give a row per true class")
    wrong = ~(array >= -CLIP)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        came = f"rows[{i}, {j}] is {array[i, j]:g}"
        raise checks.refuse("rows", "must be probabilities", came, "give p(observed j | true i)")
    array = np.maximum(array, 0.0)
    sums = array.sum(axis=1)
    off = np.abs(sums - 1) > ROUNDING
    if not off.any():
        exact = np.abs(sums - 1) <= 1e-12
        return np.where(exact[:, None], array, array / sums[:, None])
    i = int(off.argmax())
    advice = "divide each row by its sum if these are counts"
    if np.allclose(array.sum(axis=0), 1, atol=ROUNDING):
        advice = "its columns do, so it looks transposed: give rows.T, or use from_cleanlab"
    raise checks.refuse("rows", "each must sum to 1", f"row {i} sums to {sums[i]:.6g}", advice)


def require_matrix(name: str, value: object) -> TransitionMatrix:
    """Return a TransitionMatrix, or raise ValueError on anything else."""
    if not isinstance(value, TransitionMatrix):
        came = f"a {type(value).__name__} came"
        advice = "wrap it: TransitionMatrix(rows), .symmetric(eps, k) or .pair(eps, k)"
        raise checks.refuse(name, "must be a TransitionMatrix", came, advice)
    return value


def _refuse_singular(rows: Matrix, name: str) -> None:
    _refuse_above(float(np.linalg.cond(rows)), name)


def _refuse_above(condition: float, name: str) -> None:
    if not condition <= MAX_CONDITION:
        came = f"the condition number is {condition:.3g}"
        rule = f"T must be invertible with a condition number of at most {MAX_CONDITION:g}"
        raise checks.refuse(name, rule, came, "lower the noise, or merge classes that look alike")
