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
    if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
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


def labels(name: str, value: Any, num_classes: int) -> NDArray[Any]:
    """Return integer labels of shape (n,) in [0, num_classes) as an array, not copied."""
    array = np.asarray(value)
    if array.shape == (0,) and array.dtype.kind == "f":
        array = array.astype(int)  # an empty list is float64
    if array.ndim != 1 or array.dtype.kind not in "iu":
        came = f"shape {array.shape} of {array.dtype} came"
        advice = (
            f"use {name}.ravel() on a column, {name}.argmax(1) on one-hot rows, "
            f"{name}.astype(int) on floats"
        )
        if array.dtype.kind in "OSU":
            advice = f"number them: np.unique({name}, return_inverse=True)[1]"
        raise refuse(name, "must be integers of shape (n,)", came, advice)
    outside = (array < 0) | (array >= num_classes)
    if outside.any():
        first = int(outside.argmax())
        came = f"{name}[{first}] is {array[first]}"
        raise refuse(name, f"must lie in [0, {num_classes})", came, "number the classes from 0")
    return array


def floats(name: str, value: Any) -> NDArray[np.float64]:
    """Return numbers as an array of float64, not copied if they are one.

    Raises:
        ValueError: a word among them, rows of different lengths, a tensor with gradient.
    """
    try:
        array = np.asarray(value)
        if array.dtype.kind == "c":
            raise TypeError(f"{array.dtype}")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:  # the last is PyTorch's
        advice = "look at its entries"
        raise refuse(name, "must be an array of numbers", str(error), advice) from None


def probabilities(name: str, value: Any) -> NDArray[np.float64]:
    """Return probabilities of shape (n, k), k >= 2, as a new float64 array with rows summing to 1.

    A sum may be off by 1e-3, which is float16's softmax, and is divided out.

    Raises:
        ValueError: another shape, no row, an entry outside [0, 1] or NaN, another sum.
    """
    array = floats(name, value)
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        rule = "must have shape (n, k), a row per example and a column per class"
        raise refuse(name, rule, f"shape {array.shape} came", "give predict_proba's output")
    sums = array.sum(axis=1)
    wrong = ~((array >= 0) & (array <= 1 + 1e-3)).all(axis=1) | ~(np.abs(sums - 1) <= 1e-3)
    if wrong.any():
        first = int(wrong.argmax())
        low, high = array[first].min(), array[first].max()
        came = f"{name}[{first}] sums to {sums[first]:.6g}, with entries from {low:g} to {high:g}"
        advice = "apply softmax to logits, divide percentages by 100"
        raise refuse(name, "each row must be probabilities that sum to 1", came, advice)
    return np.asarray(array / sums[:, None])


def losses(name: str, value: Any) -> NDArray[np.float64]:
    """Return losses of shape (n,) or (epochs, n) as a float64 array; +inf is a loss.

    Raises:
        ValueError: another shape, no example, a negative loss or NaN.
    """
    return _per_example(name, value, 0, float("inf"), "give cross-entropies")


def margins(name: str, value: Any) -> NDArray[np.float64]:
    """Return margins of shape (n,) or (epochs, n) as a float64 array.

    Raises:
        ValueError: another shape, no example, an entry outside [-1, 1] or NaN.
    """
    return _per_example(name, value, -1, 1, "give differences of probabilities, not of logits")


def _per_example(
    name: str, value: Any, low: float, high: float, advice: str
) -> NDArray[np.float64]:
    array = floats(name, value)
    if array.ndim not in (1, 2) or array.size == 0:
        rule = "must have shape (n,), or (epochs, n)"
        raise refuse(name, rule, f"shape {array.shape} came", "give an entry per example")
    wrong = ~((array >= low) & (array <= high))
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
