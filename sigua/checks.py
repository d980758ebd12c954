"""One sentence for bad input: *argument: rule, but what came; what to try*. Adapters use it too."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from numbers import Integral, Rational, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = sys.float_info.max

SUM_TOLERANCE = 0.02
"""By how much probabilities may fail to sum to 1: bfloat16 rounds that much."""


def refuse(name: str, rule: str, came: str, advice: str) -> ValueError:
    """Return (not raise) the error, so that the caller's own line is the last of the traceback."""
    return ValueError(f"{name}: {rule}, but {came}; {advice}")


def number(
    name: str, value: Any, low: float, high: float, advice: str, *, closed: bool = True
) -> float:
    """Return `value` as a float in [low, high], or [low, high) when not `closed`.

    Raises:
        ValueError: `value` is not a real number, is NaN, or lies outside.
    """
    real = isinstance(value, Real) and not isinstance(value, bool)
    inside = real and bool(low <= value <= min(high, LARGEST))  # False for NaN
    if not inside or (value == high and not closed):
        bracket = "]" if closed and high != float("inf") else ")"
        rule = f"must be a number in [{low:g}, {high:g}{bracket}"
        raise refuse(name, rule, f"{value!r} came", advice)
    return float(value)


def whole(name: str, value: Any, low: int, advice: str) -> int:
    """Return `value` as an int of at least `low`; 10.0 is not one.

    Raises:
        ValueError: `value` is not an integer, or below `low`.
    """
    if not _is_integer(value) or value < low:
        rule = f"must be a whole number of at least {low}"
        raise refuse(name, rule, f"{value!r} came", advice)
    return int(value)


def plain_numbers(dataclass: Any) -> None:
    """Turn other numbers in a frozen dataclass into Python's, so that it prints and stores them."""
    for field in fields(dataclass):
        value = getattr(dataclass, field.name)
        if isinstance(value, np.generic):
            object.__setattr__(dataclass, field.name, value.item())
        elif isinstance(value, Rational) and not isinstance(value, int):
            with suppress(OverflowError):  # one that is too large is refused as it came
                object.__setattr__(dataclass, field.name, float(value))


def schedule(name: str, value: Any, low: float, high: float, advice: str) -> Any:
    """Return a callable as it is, its knots checked if it has some, or else a checked number."""
    if not callable(value):
        return number(name, value, low, high, advice)
    for epoch, at_knot in getattr(value, "points", ()):
        number(f"{name} at epoch {epoch:g}", at_knot, low, high, advice)
    return value


def flag(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is True or False."""
    if not isinstance(value, bool):
        raise refuse(name, "must be True or False", f"{value!r} came", "try True")


def choice(name: str, value: Any, options: Iterable[str]) -> None:
    """Raise ValueError unless `value` is one of `options`."""
    options = list(options)
    if value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise refuse(name, f"must be one of {listed}", f"{value!r} came", "choose one of them")


def array(name: str, value: Any) -> NDArray[Any]:
    """Return `value` as an array, not copied if it is one.

    Raises:
        ValueError: lists of different lengths, masked entries, a tensor with gradient or not on
            the CPU.
    """
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
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # which NumPy does not know
        value = value.float()
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        came = "lists of different lengths" if "inhomogeneous" in str(error) else str(error)
        raise ValueError(
            f"{name}: must be an array, got {came}; try lists of one length, or a NumPy array"
        ) from None


def labels(name: str, value: Any, num_classes: int) -> NDArray[Any]:
    """Return integer labels of shape (n,) in [0, num_classes) as an array, not copied."""
    found = array(name, value)
    if found.shape == (0,) and found.dtype.kind == "f":
        found = found.astype(int)  # an empty list is float64
    if found.dtype.kind == "O" and all(map(_is_integer, found.ravel())):
        with suppress(OverflowError):
            found = found.astype(np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        came = f"shape {found.shape} of {found.dtype} came"
        advice = (
            f"use {name}.ravel() on a column, {name}.argmax(1) on one-hot rows, "
            f"{name}.astype(int) on floats"
        )
        if found.dtype.kind in "OSU":
            advice = (
                "number them as the model's outputs are, such as "
                f"[list(clf.classes_).index(label) for label in {name}], "
                "or give classes=clf.classes_ where probabilities are given, too"
            )
        raise refuse(name, "must be integers of shape (n,)", came, advice)
    outside = (found < 0) | (found >= num_classes)
    if outside.any():
        first = int(outside.argmax())
        came = f"{name}[{first}] is {found[first]}"
        raise refuse(name, f"must lie in [0, {num_classes})", came, "number the classes from 0")
    return found


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def floats(name: str, value: Any) -> NDArray[np.float64]:
    """Return numbers as an array of float64, not copied if they are one.

    Raises:
        ValueError: a word among them, rows of different lengths, a tensor with gradient.
    """
    found = array(name, value)
    try:
        if found.dtype.kind == "c":
            raise TypeError(f"{found.dtype}")
        return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        advice = "look at its entries"
        raise refuse(name, "must be an array of numbers", str(error), advice) from None


def probabilities(name: str, value: Any) -> NDArray[np.float64]:
    """Return probabilities of shape (n, k), k >= 2, as a new float64 array with rows summing to 1.

    A sum may be off by `SUM_TOLERANCE`, which is divided out.

    Raises:
        ValueError: another shape, no row, an entry outside [0, 1] or NaN, another sum.
    """
    array = floats(name, value)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        rule = "must have shape (n, k), a row per example and a column per class"
        raise refuse(name, rule, f"shape {array.shape} came", "give predict_proba's output")
    sums = array.sum(axis=1)
    wrong = ~((array >= 0) & (array <= 1 + SUM_TOLERANCE)).all(axis=1)
    wrong |= ~(np.abs(sums - 1) <= SUM_TOLERANCE)
    if wrong.any():
        first = int(wrong.argmax())
        low, high = array[first].min(), array[first].max()
        came = f"{name}[{first}] sums to {sums[first]:.6g}, with entries from {low:g} to {high:g}"
        advice = "apply softmax to logits, divide percentages by 100"
        raise refuse(name, "each row must be probabilities that sum to 1", came, advice)
    return np.asarray(array / sums[:, None])


def losses(name: str, value: Any, *, gaps: bool = False) -> NDArray[np.float64]:
    """Return losses of shape (n,) or (epochs, n) as a float64 array; +inf is a loss.

    Args:
        name: of the argument.
        value: the losses.
        gaps: whether entries of (epochs, n) may be NaN.

    Raises:
        ValueError: another shape, no example, a negative loss or NaN.
    """
    return _per_example(name, value, 0, float("inf"), "give cross-entropies", gaps)


def margins(name: str, value: Any, *, gaps: bool = False) -> NDArray[np.float64]:
    """Return margins of shape (n,) or (epochs, n) as a float64 array; `gaps` as for `losses`.

    Raises:
        ValueError: another shape, no example, an entry outside [-1, 1] or NaN.
    """
    return _per_example(
        name, value, -1, 1, "give differences of probabilities, not of logits", gaps
    )


def _per_example(
    name: str, value: Any, low: float, high: float, advice: str, gaps: bool
) -> NDArray[np.float64]:
    array = floats(name, value)
    if array.ndim not in (1, 2) or array.size == 0:
        rule = "must have shape (n,), or (epochs, n)"
        raise refuse(name, rule, f"shape {array.shape} came", "give an entry per example")
    wrong = ~((array >= low) & (array <= high))
    if gaps and array.ndim == 2:
        wrong &= ~np.isnan(array)
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        came = f"{name}[{', '.join(map(str, first))}] is {array[first]:g}"
        rule = f"must lie in [{low:g}, {high:g}]"
        raise refuse(name, rule, came, f"{advice}, one for every example")
    return array


def same_length(name: str, value: Any, other_name: str, other: Any) -> None:
    """Raise ValueError unless the two have as many entries."""
    if len(value) != len(other):
        came = f"{len(value)} came for {len(other)} of {other_name}"
        raise refuse(name, f"must have an entry for each of {other_name}", came, "pair them up")
