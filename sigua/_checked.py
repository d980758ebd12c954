"""Which examples were checked by hand, and what their labels should be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigua import checks
from sigua._names import columns_of, same_order


def checked_labels(
    probabilities: Any, labels: Any, true_labels: Any, checked: Any, names: Any, shape: Any
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the checked examples and their true labels, (m,) each.

    The arguments are those of `sigua.diagnose`, the names of the columns, and (n, k).

    Raises:
        ValueError: labels or indices that do not fit, or in the order of other rows.
    """
    if true_labels is None:
        if checked is not None:
            raise ValueError(
                "true_labels: must be given with checked, got None; try passing them, too"
            )
        return np.empty(0, np.int64), np.empty(0, np.int64)
    n, k = shape
    columns = columns_of("true_labels", true_labels, names)
    true = checks.labels("true_labels", columns, k).astype(np.int64)
    places = np.arange(n) if checked is None else _places(checked, n)
    if len(true) != len(places):
        advice = "an entry for each" if len(true) != n else "true_labels[checked]"
        if checked is None:
            advice = "checked=, the indices of those that were"
        raise ValueError(
            f"true_labels: must have an entry for each of the {len(places)} checked, "
            f"got {len(true)}; try {advice}"
        )
    of, rows = "probabilities", probabilities
    if not hasattr(rows, "iloc"):
        of, rows = "labels", labels
    if hasattr(rows, "iloc"):
        of = of if checked is None else f"{of}.iloc[checked]"
        same_order("true_labels", true_labels, rows.iloc[places], of)
    return places, true


def _places(checked: Any, n: int) -> NDArray[np.int64]:
    """Return the indices of the checked examples, (m,), given as such or as a mask."""
    places = checks.array("checked", checked)
    if places.dtype == bool:
        if places.shape != (n,):
            shape = places.shape
            raise ValueError(f"checked: a mask must have shape ({n},), got {shape}; try indices")
        places = np.flatnonzero(places)
    if places.shape != (0,) and (places.ndim != 1 or places.dtype.kind not in "iu"):
        got = f"shape {places.shape} of {places.dtype}"
        raise ValueError(f"checked: must be indices or a bool mask, got {got}; try np.flatnonzero")
    if len(places) and not 0 <= places.min() <= places.max() < n:
        raise ValueError(
            f"checked: must be indices in [0, {n}), got {places.min()} to {places.max()}; "
            "try positions instead of names of rows"
        )
    if len(np.unique(places)) != len(places):
        advice = "checked.astype(bool)" if len(places) == n else "np.unique"
        raise ValueError(f"checked: must name each example once, got one twice; try {advice}")
    return places.astype(np.int64)
