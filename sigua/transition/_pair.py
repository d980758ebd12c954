"""Pair noise, which is kept dense or sparse, and prints and is stored by its rate."""

from __future__ import annotations

from typing import Any

import numpy as np

from sigua.transition import _sparse
from sigua.transition._form import Form
from sigua.transition._forms import Dense, Sparse, rate_and_size
from sigua.transition._sparse import Padded
from sigua.transition._stochastic import refuse_above

SPARSE_ABOVE = 1000
"""Pair noise and mappings of more classes than this are kept sparse."""


class Pair(Form):
    """What is mixed into the form that it is kept in."""

    key = "pair_rate"
    pair_rate: float

    @staticmethod
    def checked_pair(noise_rate: Any, num_classes: Any) -> Form:
        rate, k = rate_and_size(noise_rate, num_classes)
        # T is normal, with eigenvalues 1 - eps + eps w for the k-th roots w of 1.
        least = abs(1 - rate + rate * np.exp(2j * np.pi * (k // 2) / k))
        refuse_above(1 / least if least else float("inf"), "noise_rate")
        return SparsePair(rate, k) if k > SPARSE_ABOVE else DensePair(rate, k)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Form:
        return cls.checked_pair(data["pair_rate"], data["num_classes"])

    def to_dict(self) -> dict[str, Any]:
        return {"pair_rate": self.pair_rate, "num_classes": self.size}

    def __repr__(self) -> str:
        return f"TransitionMatrix.pair({self.pair_rate}, {self.size})"


class DensePair(Pair, Dense):
    def __init__(self, rate: float, size: int) -> None:
        super().__init__(_sparse.pair_csr(rate, size).dense())
        self._keep(pair_rate=rate)


class SparsePair(Pair, Sparse):
    def __init__(self, rate: float, size: int) -> None:
        super().__init__(_sparse.pair_csr(rate, size))
        self._keep(pair_rate=rate)

    def _inverse_table(self) -> Padded:  # without SciPy
        return _sparse.pair_inverse(self.pair_rate, self.size)
