"""Who is held out, and which method is kept by what it predicts of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import sigua
from sigua import checks
from sigua.batches import enough
from sigua.choice import FEWEST
from sigua_sklearn._training import Part

TELLING = 50
"""Fewer held-out labels than this tell nothing about the noise rate."""


def method_of(method: Any, warmup: float) -> sigua.Method | None:
    """Return the method that was asked for, by name or as a value; None for "auto"."""
    if isinstance(getattr(method, "condition", None), sigua.Known):
        raise ValueError(
            "method: must not need marks of who is good, as sigua.Known does, got a method that "
            "does; try fit(X[~issues], y[~issues]), without the labels that you know to be wrong"
        )
    if isinstance(method, sigua.Method):
        return method
    if not isinstance(method, str) or method not in ("auto", "standard", "sigua_ag"):
        known = isinstance(method, str) and hasattr(sigua, method)
        call = f"sigua.{method}(...)" if known else "method='auto'"
        raise ValueError(
            "method: must be 'auto', 'standard', 'sigua_ag' or a method of sigua, "
            f"got {method!r}; try {call}"
        )
    named = {"standard": sigua.standard(), "sigua_ag": sigua.sigua_ag(warmup)}
    return named.get(method)


def checked_mask(checked: ArrayLike | None, n: int) -> NDArray[np.bool_]:
    """Return who was checked, bool (n,), from such a mask or from indices."""
    mask = np.zeros(n, dtype=bool)
    if checked is not None:
        mask[checks.places("checked", checked, n)] = True
    return mask


def held_out(
    part: Part, fraction: float, num_classes: int, rng: np.random.RandomState
) -> NDArray[np.bool_]:
    """Return who chooses, bool (n,): half of the checked if there are enough, else a part of all.

    A part has about the same share of each class. Few checked examples are all trained on.
    """
    half = bool(part.checked.sum() >= enough(num_classes))
    among = np.flatnonzero(part.checked if half else ~part.checked)
    chosen = np.zeros(len(part.given), dtype=bool)
    chosen[_stratified(among, part.given, 0.5 if half else fraction, rng)] = True
    return chosen if chosen.sum() >= FEWEST else np.zeros_like(chosen)


def diagnosed(p: NDArray[np.float32], held_out: Part) -> sigua.Diagnosis | None:
    """Return what is known of the noise by predictions for labels held out; None if nothing is."""
    if held_out.checked.all() or len(held_out.given) < TELLING:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it may know nothing
        found = sigua.diagnose(p, held_out.given)
    return found if found.above_chance.low > 0 else None


def _stratified(
    rows: NDArray[np.intp], given: NDArray[np.int64], fraction: float, rng: np.random.RandomState
) -> NDArray[np.intp]:
    """Return a part of the rows: sorted by class, one in so many, from a random place on."""
    shuffled = rng.permutation(rows)
    by_class = shuffled[np.argsort(given[shuffled], kind="stable")]
    places = (np.arange(int(len(rows) * fraction)) + rng.uniform()) / fraction
    return by_class[places.astype(np.intp)]
