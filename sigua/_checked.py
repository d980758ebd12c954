"""Which examples were checked by hand, and what their labels should be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigua import checks
from sigua._names import columns_of


def checked_labels(
    probabilities: Any, labels: Any, true_labels: Any, checked: Any, names: Any, shape: Any
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the checked examples and their true labels, (m,) each.

    The arguments are those of `sigua.diagnose`, the names of the columns, and (n, k).
    """
    if true_labels is None:
        if checked is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        raise ValueError("true_labels: must be given with checked, got None; try passing them, too")
    n, k = shape
    columns = columns_of("true_labels", true_labels, names)
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
    framed = hasattr(probabilities, "iloc")
    of, rows = ("probabilities", probabilities) if framed else ("labels", labels)
    checks.same_order("checked", checked, rows, of)  # a mask; there are fewer indices than rows
    if hasattr(rows, "iloc"):
        of = of if checked is None else f"{of}.iloc[checked]"
        checks.same_order("true_labels", true_labels, rows.iloc[places], of)
    return places, true
