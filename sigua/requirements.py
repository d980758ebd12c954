"""What a method must be for what an adapter was asked to do; adapters call it for every backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from sigua import checks
from sigua._method import Method
from sigua.conditions import Agreement

_Found = TypeVar("_Found")


def require_method(value: object) -> Method:
    """Return a method that names its parts, or raise ValueError on anything else."""
    if isinstance(value, Method) and type(value) is not Method:
        return value
    name = getattr(value, "__name__", None)
    if callable(value) and name:
        raise ValueError(f"method: must be a method of sigua, got {name} itself; try {name}(...)")
    raise ValueError(
        f"method: must be a method of sigua, got a {type(value).__name__}; try sigua.sigua_sl(...)"
    )


def find_correction(method: Method, known: Mapping[str, _Found]) -> _Found:
    """Return what a backend has for the method's correction, of all that it has by name."""
    checks.choice("correction", method.correction, known)
    return known[method.correction]


def require_classes(method: Method, k: int, predictions: str = "logits") -> None:
    """Raise ValueError unless T is of as many classes as the predictions."""
    if method.T is not None and method.T.num_classes != k:
        raise ValueError(
            f"T: must have a row per class, got {method.T.num_classes} rows and {predictions} of "
            f"{k} classes; try a T of as many classes as the model has"
        )


def require_whole(method: Method, scope: str) -> None:
    """Raise ValueError if the rule judges each example alone, and knows no groups."""
    if isinstance(method.condition, Agreement):
        raise ValueError(
            f"{scope}: must be left out, for Agreement judges each example alone, got groups; "
            "try without it"
        )
