"""What a method must be for what an adapter was asked to do; adapters call it for every backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from sigua import checks
from sigua._method import Method
from sigua.conditions import Agreement, NonNegative
from sigua.transition import TransitionMatrix

_Found = TypeVar("_Found")
_OWN_FLOOR = "a floor of your own, custom(NoiseFloor(...), ...)"


def require_method(value: object) -> Method:
    """Return a method that names its parts, or raise ValueError on anything else."""
    if isinstance(value, Method) and type(value) is not Method:
        return value
    if callable(value):
        name = getattr(value, "__name__", "a function")
        raise ValueError(f"method: must be a method of sigua, got {name} itself; try {name}(...)")
    raise ValueError(
        f"method: must be a method of sigua, got a {type(value).__name__}; try sigua.sigua_sl(...)"
    )


def find_correction(method: Method, known: Mapping[str, _Found]) -> _Found:
    """Return what a backend has for the method's correction.

    Args:
        method: whose correction it is.
        known: by name, all that the backend has.

    Raises:
        ValueError: it has none of that name.
    """
    checks.choice("correction", method.correction, known)
    return known[method.correction]


def find_form(T: TransitionMatrix, known: Mapping[str, _Found]) -> _Found:
    """Return what a backend has for the form in which T is kept, as `find_correction` does."""
    checks.choice("T", T.form, known)
    return known[T.form]


def require_classes(method: Method, k: int, predictions: str = "logits") -> None:
    """Raise ValueError unless T, or the noise, is of as many classes as the predictions."""
    T = method.T
    known = getattr(method, "num_classes", None) if T is None else T.num_classes
    if known is None or known == k:
        return
    if T is None:
        raise ValueError(
            f"num_classes: must be the number of classes, which the floor depends on, got {known} "
            f"and {predictions} of {k}; try num_classes={k}"
        )
    raise ValueError(
        f"T: must have a row per class, got {known} rows and {predictions} of {k} classes; "
        "try a T of as many classes as the model has"
    )


def require_ranking(method: Method) -> None:
    """Raise ValueError if the rule judges a corrected loss, for which none can stand in."""
    if isinstance(method.condition, Agreement):
        raise ValueError(
            "rank_by: must be left out, for Agreement judges margins, got another loss; "
            "try without it"
        )
    if isinstance(method.condition, NonNegative):
        raise ValueError(
            "rank_by: must be left out, for NonNegative judges the corrected loss itself, "
            "got another loss; try without it"
        )
    if method.needs_cross_entropy and method.T is not None:
        raise ValueError(
            f"rank_by: must be left out, for the floor of {type(method).__name__} is that of the "
            f"corrected loss itself, got another loss; try without it, or {_OWN_FLOOR}"
        )


def require_cross_entropy(method: Method, name: str, plain: bool, got: str, use: str) -> None:
    """Raise ValueError if the rule needs cross-entropy and what judges is not plain.

    Args:
        method: whose rule it is.
        name: of the argument that judges.
        plain: whether that is plain cross-entropy.
        got: what it is.
        use: what to try instead.
    """
    if method.needs_cross_entropy and not plain:
        raise ValueError(
            f"{name}: must be plain cross-entropy, unsmoothed, whose floor "
            f"{type(method).__name__} knows, got {got}; try {use}, or {_OWN_FLOOR}"
        )


def require_whole(method: Method, scope: str) -> None:
    """Raise ValueError if the rule judges the mini-batch as a whole, and no part of it.

    A perfect model's mean loss is above the floor over all classes, and not over those who were
    given one label, or are in one image.
    """
    if isinstance(method.condition, Agreement):
        raise ValueError(
            f"{scope}: must be left out, for Agreement judges each example alone, got True; "
            "try without it"
        )
    if method.needs_cross_entropy:
        raise ValueError(
            f"{scope}: must be left out, for the floor of {type(method).__name__} is that of a "
            f"mini-batch of all classes, got True; try without it, or {_OWN_FLOOR}"
        )
