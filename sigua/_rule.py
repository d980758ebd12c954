"""The protocols of a mini-batch and of a rule, and what holds for every rule."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from sigua.objective import Array, Split


class Batch(Protocol):
    """What a rule may ask about the mini-batch, which lies wherever the adapter keeps it.

    Attributes:
        losses: float, (n,), without gradient: what the method optimises, for backward correction
            the corrected loss at the given label. +inf for an example that takes no part.
        size: how many examples take part; an integer or a 0-d integer tensor.
        trusted: bool, (n,), or a `Split` of two masks, from the user; None if not given.
    """

    losses: Array
    size: Any
    trusted: Array | Split | None

    def smallest(self, count: Any) -> Array:
        """Return the count-th smallest loss; -inf for 0, the largest for more than `size`."""

    def mean(self) -> Array:
        """Return the mean of the losses, without those that are +inf."""

    def class_sums(self) -> Array:
        """Return 1'T^-1 l for each example, shape (n,); backward correction only."""

    def margins(self, by_class: bool = True, power: float = 0.0) -> Array:
        """Return u at the label less the largest other u, (n,), in [-1, 1]; see `Agreement`.

        With a power, another u is taken times its bound, by the counts of the run.
        """


class Condition(Protocol):
    """A rule of your own: two methods, and nothing to register.

    An attribute `reads` may name what the rule reads from a batch besides the losses: a tuple of
    "trusted", "class_sums" (the two by default), "margins" and, for margins by class, "confidence",
    for margins with a power "counts", too.
    An attribute `horizon` may give the epoch from which `at` stays the same; without it, a rule
    whose `at` returns numbers is assumed to change in every epoch.

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import sigua
    >>> @dataclass(frozen=True)
    ... class Between:
    ...     low: float
    ...     high: float
    ...     def at(self, epoch):
    ...         return self.low, self.high
    ...     def split(self, batch, low, high):
    ...         return sigua.Split(batch.losses <= low, batch.losses > high)
    >>> method = sigua.custom(Between(0.5, 2.0), gamma=0.1)
    >>> sigua.reference.split(method, np.array([0.1, 1.0, 3.0]), epoch=0).bad
    array([False, False,  True])
    """

    def at(self, epoch: float) -> tuple[float, ...]:
        """Return the epoch's numbers, as many in each. Integers stay exact on every framework."""

    def split(self, batch: Batch, *numbers: Any, **_: Any) -> Split:
        """Return the masks, from the epoch's numbers as scalars or 0-d tensors; operators only."""


def no_class_sums() -> ValueError:
    """Return the error for a rule that asks for class sums where there are none."""
    return ValueError(
        "class_sums: must come from backward correction, got a method without it; "
        'try sigua.custom(..., correction="backward", T=T)'
    )


def reads(condition: object, name: str) -> bool:
    """Return whether a rule may read `name` from a batch: "trusted", "class_sums", ..."""
    return name in getattr(condition, "reads", ("trusted", "class_sums"))


def no_margins() -> ValueError:
    """Return the error for a rule that reads margins without naming them in `reads`."""
    return ValueError(
        "reads: must name 'margins', 'confidence' for margins by class, and 'counts' for a power, "
        'got a condition without; try adding reads = ("margins", "confidence", "counts") to it'
    )


def is_built_in(condition: object) -> bool:
    """Return whether a rule is one of ours, and not a user's, which may do anything."""
    return type(condition).__module__ == "sigua.conditions"


def choose(condition: Condition, batch: Batch, numbers: tuple[Any, ...]) -> Split:
    """Apply a rule, and what holds for every rule: good wins; NaN and +inf are neither."""
    comparable, ours = batch.losses < float("inf"), is_built_in(condition)
    masks = condition.split(batch, *numbers)
    if not ours:
        if not isinstance(masks, tuple) or len(masks) != 2:
            raise ValueError(
                f"condition: split must return good and bad, got {type(masks).__name__}; "
                "try returning sigua.Split(good, bad)"
            )
        for name, mask in zip(Split._fields, masks, strict=True):
            _require_mask(name, mask, comparable)
    good, bad = masks
    if not ours or batch.trusted is not None:  # others of ours are disjoint
        bad = bad & ~good
    return Split(good & comparable, bad & comparable)


def _require_mask(name: str, mask: Any, like: Array) -> None:
    """Refuse a mask that is not boolean, in the framework of `like`, and of its shape.

    No value is read. A length that is unknown in a graph is None, and fits.
    """
    if isinstance(mask, (bool, np.bool_)):
        return
    kind = type(mask).__name__
    if getattr(mask, "dtype", None) != like.dtype:
        got = f"a {kind} of {mask.dtype}" if hasattr(mask, "dtype") else f"a {kind}"
        raise ValueError(
            f"condition: must return boolean masks, like batch.losses < 1, got {name} as {got}; "
            "try operators on what the batch gives"
        )
    shape, n = mask.shape, like.shape[0]
    if len(shape) > 1 or (len(shape) == 1 and n is not None and shape[0] not in (1, n, None)):
        raise ValueError(
            f"condition: must return masks of shape ({n},), got {name} of shape {tuple(shape)}; "
            "try an entry for each of batch.losses"
        )
