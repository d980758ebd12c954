"""Probabilities of many examples, read a block of rows at a time, wherever they are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigua import checks

Floats = NDArray[np.float64]

ENTRIES = 1 << 18
"""Of a block: 2 MB in float64. So an array of float32, or a `numpy.memmap` that is larger than the
memory, is never copied as a whole."""


class Probabilities:
    """Rows of probabilities, (n, k), which are checked whenever they are read.

    Args:
        name: of the argument.
        value: n >= 1 rows of k >= 2 numbers, each summing to 1 within `checks.SUM_TOLERANCE`.
    """

    def __init__(self, name: str, value: Any) -> None:
        self._name, self._given = name, checks.rows_of_classes(name, value)
        self.shape: tuple[int, int] = self._given.shape

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield which rows a block has, and these rows: new, float64, each summing to 1.

        What is counted, or added up row by row, does not depend on the size of the blocks.
        """
        size = max(ENTRIES // self.shape[1], 1)
        for start in range(0, len(self), size):
            part = slice(start, min(start + size, len(self)))
            yield part, self._checked(part)

    def _checked(self, part: slice) -> Floats:
        name, rows = self._name, checks.floats(self._name, self._given[part])
        rows = np.ascontiguousarray(rows)
        sums = rows.sum(axis=1)  # in the order of the columns, however the rows lie in memory
        wrong = ~(np.abs(sums - 1) <= checks.SUM_TOLERANCE)
        most = 1 + checks.SUM_TOLERANCE
        if wrong.any() or rows.min() < 0 or rows.max() > most:
            wrong |= ~((rows >= 0) & (rows <= most)).all(axis=1)
            at = int(wrong.argmax())
            raise ValueError(
                f"{name}: must be rows of probabilities that sum to 1, got {name}"
                f"[{part.start + at}] with sum {sums[at]:.6g} and entries from "
                f"{rows[at].min():g} to {rows[at].max():g}; "
                "try softmax on logits, or dividing percentages by 100"
            )
        return np.asarray(rows / sums[:, None])
