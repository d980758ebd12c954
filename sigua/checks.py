"""One sentence for bad input: *argument: rule, but what came; what to try*. Adapters use it too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
    real = isinstance(value, Real) and not isinstance(value, bool) and value != float("inf")
    inside = real and low <= float(value) <= high  # False for NaN
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
    """Turn NumPy's numbers in a frozen dataclass into Python's, so that it prints as written."""
    for field in fields(dataclass):
        value = getattr(dataclass, field.name)
        if isinstance(value, np.generic):
            object.__setattr__(dataclass, field.name, value.item())


def schedule(name: str, value: Any, low: float, high: float, advice: str) -> Any:
    """Return a callable as it is and anything else as a checked number."""
    return value if callable(value) else number(name, value, low, high, advice)


def choice(name: str, value: Any, options: Iterable[str]) -> None:
    """Raise ValueError unless `value` is one of `options`."""
    options = list(options)
    if value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise refuse(name, f"must be one of {listed}", f"{value!r} came", "choose one of them")


def labels(name: str, value: Any, num_classes: int) -> NDArray[Any]:
    """Return integer labels of shape (n,) in [0, num_classes) as an array, not copied."""
    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        came = f"shape {array.shape} of {array.dtype} came"
        advice = "use y.ravel() on a column, y.argmax(1) on one-hot rows, y.astype(int) on floats"
        raise refuse(name, "must be integers of shape (n,)", came, advice)
    outside = (array < 0) | (array >= num_classes)
    if outside.any():
        first = int(outside.argmax())
        came = f"{name}[{first}] is {array[first]}"
        raise refuse(name, f"must lie in [0, {num_classes})", came, "number the classes from 0")
    return array
