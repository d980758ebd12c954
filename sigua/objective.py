"""Algorithm 1: descend on the good, climb on the bad, ignore the rest."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = Any
"""A NumPy array, or a tensor of any framework."""


class Split(NamedTuple):
    """The good and the bad examples of a mini-batch: masks of one shape; the rest are neither."""

    good: Array
    bad: Array


def signed_weights(split: Split, gamma: float, *, separate: bool = False) -> Array:
    """Return good - gamma * bad as float64, an entry per example (the factor in Eq. 3).

    Args:
        split: masks of shape (n,); where both are True, good wins.
        gamma: how fast to climb on the bad, in [0, 1].
        separate: whether to average good and bad separately, as the authors' released code does:
            each good example weighs n / (number of good), each bad one gamma * n / (number of bad).

    >>> signed_weights(Split(np.array([True, False, False]), np.array([True, True, False])), 0.5)
    array([ 1. , -0.5,  0. ])
    """
    good = np.asarray(split.good)
    bad = np.asarray(split.bad) & ~good
    if not separate:
        return 1.0 * good - float(gamma) * bad
    n = good.size
    return good * (n / max(good.sum(), 1)) - gamma * bad * (n / max(bad.sum(), 1))


def objective(losses: Array, weights: Array, denominator: float | None = None) -> float:
    """Return sum(losses * weights) / denominator, the number SIGUA minimises (Eq. 3).

    A loss of +inf contributes 0, because it has no usable gradient. NaN makes the objective NaN,
    because hiding it would hide that a run has diverged. An empty mini-batch has objective 0.

    Args:
        losses: float, shape (n,), in nats.
        weights: float, shape (n,), from `signed_weights`.
        denominator: n by default.

    >>> objective(np.array([1.0, 2.0, 9.0]), np.array([1.0, -0.5, 0.0]))
    0.0
    """
    losses = np.asarray(losses, dtype=np.float64)
    denominator = losses.size if denominator is None else denominator
    total = np.sum(np.where(losses == np.inf, 0.0, losses) * weights)
    return float(total / denominator) if denominator else float(total)
