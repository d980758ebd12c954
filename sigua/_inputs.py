"""Probabilities, read a block of rows at a time, and labels by the names of the columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigua import checks
from sigua.counting import Floats

Integers = NDArray[np.int64]

ENTRIES = 1 << 18
"""Of a block: 2 MB in float64. So an array of float32, or a `numpy.memmap` that is larger than the
memory, is never copied as a whole."""


class Examples:
    """Rows of probabilities, (n, k), which are checked whenever they are read, and their labels.

    Args:
        probabilities: n >= 1 rows of k >= 2 numbers, each summing to 1 within
            `checks.SUM_TOLERANCE`.
        labels: (n,), by the names of the columns if they have some.
        classes: these names; or else they are those of a data frame.
        labelled: whether there must be labels.

    Attributes:
        labels: each label's column, int64, (n,); None if not labelled.
        names: of the columns; None if they have numbers only.
    """

    def __init__(
        self, probabilities: Any, labels: Any, classes: Any, *, labelled: bool = True
    ) -> None:
        self._given = checks.rows_of_classes("probabilities", probabilities)
        framed = hasattr(probabilities, "iloc")
        self._rows = ("probabilities", probabilities) if framed else ("labels", labels)
        self.shape: tuple[int, int] = self._given.shape
        self.names = column_names(probabilities, classes, self.shape[1])
        self.labels: Any = None
        if labelled:
            y = checks.labels("labels", columns_of("labels", labels, self.names), self.shape[1])
            checks.same_length("labels", y, "probabilities", self)
            checks.same_order("labels", labels, probabilities, "probabilities")
            self.labels = np.asarray(y, dtype=np.int64)

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield which rows a block has, and these rows: new, float64, each summing to 1.

        What is counted, or added up row by row, does not depend on the size of the blocks.
        """
        size = max(ENTRIES // self.shape[1], 1)
        most = 1 + checks.SUM_TOLERANCE
        for start in range(0, len(self), size):
            part = slice(start, min(start + size, len(self)))
            rows = np.ascontiguousarray(checks.floats("probabilities", self._given[part]))
            sums = rows.sum(axis=1)  # in the order of the columns, however the rows lie in memory
            wrong = ~(np.abs(sums - 1) <= checks.SUM_TOLERANCE)
            if wrong.any() or rows.min() < 0 or rows.max() > most:
                wrong |= ~((rows >= 0) & (rows <= most)).all(axis=1)
                at = int(wrong.argmax())
                raise ValueError(
                    "probabilities: must be rows of probabilities that sum to 1, got "
                    f"probabilities[{start + at}] with sum {sums[at]:.6g} and entries from "
                    f"{rows[at].min():g} to {rows[at].max():g}; "
                    "try softmax on logits, or dividing percentages by 100"
                )
            yield part, rows / sums[:, None]

    def checked_labels(self, true_labels: Any, checked: Any) -> tuple[Integers, Integers]:
        """Return the indices of the examples that were checked, and their true labels, (m,) each.

        The arguments are those of `sigua.diagnose`.
        """
        if true_labels is None:
            if checked is None:
                return np.empty(0, np.int64), np.empty(0, np.int64)
            raise ValueError(
                "true_labels: must be given with checked, got None; try passing them, too"
            )
        n, k = self.shape
        columns = columns_of("true_labels", true_labels, self.names)
        true = checks.labels("true_labels", columns, k).astype(np.int64)
        places = np.arange(n) if checked is None else checks.places("checked", checked, n)
        if len(true) != len(places):
            advice = "an entry for each" if len(true) != n else "true_labels[checked]"
            if checked is None:
                advice = "checked=, the indices of those that were"
            raise ValueError(
                f"true_labels: must have an entry for each of the {len(places)} checked, "
                f"got {len(true)}; try {advice}"
            )
        of, rows = self._rows
        checks.same_order("checked", checked, rows, of)  # a mask; there are fewer indices than rows
        if hasattr(rows, "iloc"):
            of = of if checked is None else f"{of}.iloc[checked]"
            checks.same_order("true_labels", true_labels, rows.iloc[places], of)
        return places, true


def column_names(probabilities: Any, classes: Any, num_classes: int) -> list[Any] | None:
    """Return the names of the columns: `classes`, or those of a data frame.

    None if the columns have numbers only.
    """
    counted = list(range(num_classes))
    columns = list(getattr(probabilities, "columns", counted))
    if classes is None:
        return None if columns == counted else columns
    names = checks.array("classes", classes)
    if names.shape != (num_classes,) or len(set(names.tolist())) != num_classes:
        raise ValueError(
            f"classes: must be {num_classes} different names, one for each column, "
            f"got {names.tolist()!r}; try clf.classes_"
        )
    if columns not in (counted, names.tolist()):
        raise ValueError(
            f"classes: must be the columns of probabilities, {columns!r}, in their order, got "
            f"{names.tolist()!r}; try probabilities[list(classes)]"
        )
    return list(names.tolist())


def columns_of(name: str, labels: Any, names: list[Any] | None) -> Any:
    """Return the column of each label; without names, the labels as they are."""
    if names is None:
        return labels
    found = checks.array(name, labels)
    if found.ndim != 1:
        return found  # the caller refuses it, with advice for its shape
    columns = {names[i]: i for i in range(len(names))}
    index = np.array([columns.get(label, -1) for label in found.tolist()], dtype=np.int64)
    if (index < 0).any():
        first = int((index < 0).argmax())
        raise ValueError(
            f"{name}: must be among the classes {names!r}, got {name}[{first}] = "
            f"{found.tolist()[first]!r}; try classes=clf.classes_, or probabilities.to_numpy() "
            "for labels that are numbers of columns"
        )
    return index
