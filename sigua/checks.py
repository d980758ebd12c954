"""Checks of arguments. Each error is one sentence: *argument: must be ..., got ...; try ...*.

`advice` is the end of that sentence, such as "try 0.5". Adapters use these checks, too. What is not
as said here raises ValueError.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from numbers import Integral, Rational, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = sys.float_info.max

ROUNDING = 1e-6
"""By how much a difference of float32 probabilities may leave [-1, 1]."""
SUM_TOLERANCE = 0.02
"""By how much probabilities may fail to sum to 1: bfloat16 rounds that much."""


def number(
    name: str, value: Any, low: float, high: float, advice: str, *, closed: bool = True
) -> float:
    """Return a real number in [low, high], or [low, high) when not `closed`, as a float."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    given = float(value) if isinstance(value, np.floating) else value  # LARGEST is inf in float32
    inside = real and bool(low <= given <= min(high, LARGEST))  # False for NaN
    if not inside or (value == high and not closed):
        bracket = "]" if closed and high != float("inf") else ")"
        if isinstance(getattr(value, "value", None), float):  # a `sigua.Interval`
            advice = "try its .value"
        raise ValueError(
            f"{name}: must be a number in [{low:g}, {high:g}{bracket}, got {value!r}; {advice}"
        )
    return float(value)


def whole(name: str, value: Any, low: int, advice: str) -> int:
    """Return an integer of at least `low` as an int; 10.0 is refused."""
    if not _is_integer(value) or value < low:
        raise ValueError(
            f"{name}: must be a whole number of at least {low}, got {value!r}; {advice}"
        )
    return int(value)


def plain_numbers(dataclass: Any) -> None:
    """Turn numbers in a frozen dataclass into Python's own, so that it prints and stores them."""
    for field in fields(dataclass):
        value = getattr(dataclass, field.name)
        if isinstance(value, np.generic):
            object.__setattr__(dataclass, field.name, value.item())
        elif isinstance(value, Rational) and not isinstance(value, int):
            with suppress(OverflowError):  # one that is too large is refused later, as it is
                object.__setattr__(dataclass, field.name, float(value))


def schedule(name: str, value: Any, low: float, high: float, advice: str) -> Any:
    """Return a number in [low, high], or a function of the epoch, with such values at its knots."""
    if not callable(value):
        return number(name, value, low, high, advice)
    rule = f"{name}: must be a number or a function of the epoch"
    if isinstance(value, type):
        raise ValueError(f"{rule}, got the class {value.__name__}; try {value.__name__}(...)")
    if not takes(value, 0.0):
        raise ValueError(f"{rule}, got one that does not take it; try lambda epoch: 0.1")
    for epoch, at_knot in getattr(value, "points", ()):
        number(f"{name} at epoch {epoch:g}", at_knot, low, high, advice)
    return value


def takes(function: Any, *arguments: Any) -> bool:
    """Return whether a function can be called with these; True where Python cannot tell."""
    with suppress(ValueError):  # some functions in C do not say what they take
        try:
            inspect.signature(function).bind(*arguments)
        except TypeError:
            return False
    return True


def generator(seed: Any) -> np.random.Generator:
    """Return `numpy.random.default_rng(seed)`."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise ValueError(
            f"seed: must be an integer of at least 0 or a numpy.random.Generator, got {seed!r}; "
            "try 0"
        ) from None


def flag(name: str, value: Any) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}: must be True or False, got {value!r}; try True")


def choice(name: str, value: Any, options: Iterable[str]) -> None:
    """Refuse anything but one of `options`."""
    options = list(options)
    if isinstance(value, np.ndarray) or value not in options:  # an array equals none as a whole
        listed = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name}: must be one of {listed}, got {value!r}; try one of these")


def shape(name: str, value: NDArray[Any], wanted: tuple[int | str, ...], advice: str) -> None:
    """Refuse an array of another shape than `wanted`, in which a letter stands for any length."""
    pairs = zip(wanted, value.shape, strict=False)
    if value.ndim != len(wanted) or any(w != n for w, n in pairs if isinstance(w, int)):
        listed = ", ".join(map(str, wanted)) + "," * (len(wanted) == 1)
        raise ValueError(f"{name}: must have shape ({listed}), got shape {value.shape}; {advice}")


def same_length(name: str, value: Any, other_name: str, other: Any) -> None:
    """Refuse two that have different numbers of entries."""
    if len(value) != len(other):
        raise ValueError(
            f"{name}: must have an entry for each of {other_name}, "
            f"got {len(value)} for {len(other)}; try the same examples in both"
        )


def array(name: str, value: Any) -> NDArray[Any]:
    """Return an array, not copied if it is one: nothing masked, no tensor with a gradient."""
    if np.ma.is_masked(value):
        masked = int(np.ma.getmaskarray(value).sum())
        raise ValueError(
            f"{name}: must have no masked entries, got {masked} of them; "
            "try leaving those examples out, or filling them in"
        )
    if getattr(value, "requires_grad", False):
        raise ValueError(
            f"{name}: must be constant, got a tensor that requires gradients; try {name}.detach()"
        )
    if hasattr(value, "tocsr"):  # a sparse matrix, of which NumPy would make one object
        kind = type(value).__name__
        raise ValueError(f"{name}: must be an array, got a sparse {kind}; try {name}.toarray()")
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # which NumPy does not know
        value = value.float()
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        got = "lists of different lengths" if "inhomogeneous" in str(error) else str(error)
        raise ValueError(
            f"{name}: must be an array, got {got}; try lists of one length, or a NumPy array"
        ) from None


def floats(name: str, value: Any) -> NDArray[np.float64]:
    """Return real numbers as an array of float64, not copied if they are one."""
    found = array(name, value)
    try:
        if found.dtype.kind == "c":
            raise TypeError("complex numbers")
        return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: must be an array of numbers, got {found.dtype} ({error}); try real numbers"
        ) from None


def labels(name: str, value: Any, num_classes: float) -> NDArray[Any]:
    """Return integers in [0, num_classes), shape (n,), as an array, not copied."""
    found = array(name, value)
    if found.shape == (0,) and found.dtype.kind == "f":
        found = found.astype(int)  # an empty list is float64
    if found.dtype.kind == "O" and all(map(_is_integer, found.ravel())):
        with suppress(OverflowError):
            found = found.astype(np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: must be integers of shape (n,), got shape {found.shape} of {found.dtype}; "
            f"try {_to_integers(name, found)}"
        )
    outside = (found < 0) | (found >= num_classes)
    if outside.any():
        first = int(outside.argmax())
        raise ValueError(
            f"{name}: must lie in [0, {num_classes}), got {name}[{first}] = {found[first]}; "
            "try numbering the classes from 0"
        )
    return found


def _to_integers(name: str, found: NDArray[Any]) -> str:
    """Return how to make labels of what was given."""
    if found.dtype.kind == "b" and found.ndim == 1:
        return f"{name}.astype(int)"
    if found.dtype.kind in "OSU":
        return (
            f"[list(clf.classes_).index(label) for label in {name}], "
            "or classes=clf.classes_ where probabilities are given, too"
        )
    return (
        f"{name}.ravel() on a column, {name}.argmax(1) on one-hot rows, "
        f"{name}.astype(int) on floats"
    )


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def classes(name: str, value: Any) -> NDArray[Any]:
    """Return classes, numbers or words, as an array of one kind: none missing, no mixture."""
    found = array(name, value)
    if found.dtype.kind == "O":
        kinds = {_kind(entry) for entry in found.flat}
        found = np.array(found.tolist()) if len(kinds) == 1 and None not in kinds else found
    nan = found.dtype.kind == "f" and bool(np.isnan(found).any())
    if found.dtype.kind not in "biufUSM" or nan:
        got = "NaN" if nan else f"{found.dtype}"
        raise ValueError(f"{name}: must be numbers or words, got {got}; try one kind, none missing")
    return found


def _kind(entry: Any) -> Any:
    """Return what an object is, whatever its type: a word or a kind of number, else None."""
    kinds: tuple[type, ...] = (str, bool, np.bool_, Integral, Real)
    return next((kind for kind in kinds if isinstance(entry, kind)), None)


def same_order(name: str, labels: Any, other: Any, of: str) -> None:
    """Raise ValueError if labels and another frame or series have one index in two orders."""
    rows: Any = getattr(other, "index", None)
    own: Any = getattr(labels, "index", None)
    if not (hasattr(rows, "equals") and hasattr(own, "equals")) or rows.equals(own):
        return
    if len(rows) == len(own) and Counter(rows) == Counter(own):
        raise ValueError(
            f"{name}: must be in the order of the rows of {of}, got the same index in another "
            f"order; try {name}.loc[{of}.index]"
        )


def places(name: str, value: Any, n: int) -> NDArray[np.int64]:
    """Return the indices of some of n examples, (m,), given as such or as a mask."""
    found = array(name, value)
    if found.dtype == bool:
        if found.shape != (n,):
            shape = found.shape
            raise ValueError(f"{name}: a mask must have shape ({n},), got {shape}; try indices")
        found = np.flatnonzero(found)
    if found.shape != (0,) and (found.ndim != 1 or found.dtype.kind not in "iu"):
        got = f"shape {found.shape} of {found.dtype}"
        raise ValueError(f"{name}: must be indices or a bool mask, got {got}; try np.flatnonzero")
    if len(found) and not 0 <= found.min() <= found.max() < n:
        raise ValueError(
            f"{name}: must be indices in [0, {n}), got {found.min()} to {found.max()}; "
            "try positions instead of names of rows"
        )
    if len(np.unique(found)) != len(found):
        advice = f"{name}.astype(bool)" if len(found) == n else "np.unique"
        raise ValueError(f"{name}: must name each example once, got one twice; try {advice}")
    return found.astype(np.int64)


def rows_of_classes(name: str, value: Any) -> NDArray[Any]:
    """Return numbers of shape (n, k), n >= 1 and k >= 2, as an array, not copied if it is one."""
    found = array(name, value)
    if found.ndim != 2 or found.shape[0] < 1 or found.shape[1] < 2:
        raise ValueError(
            f"{name}: must have shape (n, k), a row per example and a column per class, "
            f"got shape {found.shape}; try the output of predict_proba"
        )
    return found


def epochs(name: str, value: Any) -> Iterator[NDArray[np.float64]]:
    """Yield the losses or margins of one epoch after another, float64, (n,).

    Args:
        name: "losses", at least 0 or +inf, or "margins", in [-1, 1] but for rounding.
        value: shape (n,), or (epochs, n), whose entries may be NaN.
    """
    found = array(name, value)
    if found.ndim not in (1, 2) or found.size == 0:
        raise ValueError(
            f"{name}: must have shape (n,), or (epochs, n), got shape {found.shape}; "
            "try an entry per example"
        )
    low, high, advice = _RANGES[name]
    for t, given in enumerate(np.atleast_2d(found)):
        epoch = floats(name, given)
        wrong = ~((epoch >= low) & (epoch <= high))
        if found.ndim == 2:
            wrong &= ~np.isnan(epoch)
        if wrong.any():
            first = int(wrong.argmax())
            place = f"{t}, {first}" if found.ndim == 2 else first
            raise ValueError(
                f"{name}: must lie in [{low:g}, {high:g}], got {name}[{place}] = {epoch[first]:g}; "
                f"{advice}, one for every example"
            )
        yield epoch


_RANGES = {
    "losses": (0, float("inf"), "try cross-entropies"),
    "margins": (-1 - ROUNDING, 1 + ROUNDING, "try differences of probabilities, not of logits"),
}
