"""Who is held out, and which method is kept by what it predicts of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import sigua
from sigua import checks
from sigua_sklearn._training import Part, enough

FEWEST = 20
"""Fewer held-out labels decide nothing: plain training is kept."""


def method_of(method: Any, warmup: float) -> sigua.Method | None:
    """Return the method that was asked for, by name or as a value; None for "auto"."""
    if isinstance(method, sigua.Method):
        return method
    if not isinstance(method, str) or method not in ("auto", "standard", "sigua_ag"):
        call = f"sigua.{method}(...)" if isinstance(method, str) else "method='auto'"
        raise ValueError(
            "method: must be 'auto', 'standard', 'sigua_ag' or a method of sigua, "
            f"got {method!r}; try {call}"
        )
    named = {"standard": sigua.standard(), "sigua_ag": sigua.sigua_ag(warmup)}
    return named.get(method)


def checked_mask(checked: ArrayLike | None, n: int) -> NDArray[np.bool_]:
    """Return who was checked, bool (n,), from such a mask or from indices."""
    if checked is None:
        return np.zeros(n, dtype=bool)
    found = checks.array("checked", checked)
    mask = found.dtype == bool and found.shape == (n,)
    places = found.dtype.kind in "iu" and found.ndim == 1
    if mask:
        return found
    if not (places or found.shape == (0,)) or (
        found.size and not 0 <= found.min() <= found.max() < n
    ):
        got = f"shape {found.shape} of {found.dtype}"
        raise ValueError(
            f"checked: must be a bool mask with {n} entries or indices in [0, {n}), got {got}; "
            "try np.isin(np.arange(len(y)), rows)"
        )
    if len(np.unique(found)) < len(found):
        raise ValueError(
            "checked: must name each example once, got an index twice; "
            "try checked.astype(bool) for a mask of 0 and 1"
        )
    return np.isin(np.arange(n), found)


def held_out(
    part: Part, fraction: float, num_classes: int, rng: np.random.RandomState
) -> NDArray[np.bool_]:
    """Return who chooses, bool (n,): half of the checked if there are enough, else a part of all.

    A part has about the same share of each class. Few checked examples are all trained on.
    """
    half = enough(part.checked, num_classes)
    among = np.flatnonzero(part.checked if half else ~part.checked)
    chosen = np.zeros(len(part.given), dtype=bool)
    chosen[_stratified(among, part.given, 0.5 if half else fraction, rng)] = True
    return chosen if chosen.sum() >= FEWEST else np.zeros_like(chosen)


def _stratified(
    rows: NDArray[np.intp], given: NDArray[np.int64], fraction: float, rng: np.random.RandomState
) -> NDArray[np.intp]:
    """Return a part of the rows: sorted by class, one in so many, from a random place on."""
    shuffled = rng.permutation(rows)
    by_class = shuffled[np.argsort(given[shuffled], kind="stable")]
    places = (np.arange(int(len(rows) * fraction)) + rng.uniform()) / fraction
    return by_class[places.astype(np.intp)]
