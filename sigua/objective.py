"""Algorithm 1: descend on the good, climb on the bad, ignore the rest.

What is out of range, or of different shapes, raises ValueError.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sigua import checks

Array = Any
"""A NumPy array, or a tensor of any framework."""

ALIKE = "try the same examples in both"


class Split(NamedTuple):
    """The good and the bad examples of a mini-batch: masks of one shape; the rest are neither."""

    good: Array
    bad: Array


def signed_weights(split: Split, gamma: float, *, separate: bool = False) -> Array:
    """Return good - gamma * bad as float64, an entry per example (the factor in Eq. 3).

    Args:
        split: masks, bool, (n,); where both are True, good wins.
        gamma: how fast to climb on the bad, in [0, 1].
        separate: whether to average good and bad separately, as the authors' released code does:
            each good example weighs n / (number of good), each bad one gamma * n / (number of bad).

    >>> signed_weights(Split(np.array([True, False, False]), np.array([True, True, False])), 0.5)
    array([ 1. , -0.5,  0. ])
    """
    gamma = checks.number("gamma", gamma, 0, 1, "try 0.01")
    good, bad = (checks.array("split", mask) for mask in split)
    checks.shape("split", bad, good.shape, ALIKE)
    if good.size and not (good.dtype == bad.dtype == bool):
        raise ValueError(
            f"split: must be two boolean masks, got {good.dtype} and {bad.dtype}; "
            "try mask.astype(bool)"
        )
    good, bad = good.astype(bool), bad.astype(bool)
    bad = bad & ~good
    if not separate:
        return 1.0 * good - gamma * bad
    n = good.size
    return good * (n / max(good.sum(), 1)) - gamma * bad * (n / max(bad.sum(), 1))


def objective(losses: Array, weights: Array, denominator: float | None = None) -> float:
    """Return sum(losses * weights) / denominator, the number SIGUA minimises (Eq. 3).

    A loss of +inf contributes 0, because it has no usable gradient. NaN makes the objective NaN,
    because hiding it would hide that a run has diverged. An empty mini-batch has objective 0.

    Args:
        losses: float, (n,), in nats.
        weights: float, (n,), from `signed_weights`.
        denominator: above 0; n by default.

    >>> objective(np.array([1.0, 2.0, 9.0]), np.array([1.0, -0.5, 0.0]))
    0.0
    """
    losses, weights = checks.floats("losses", losses), checks.floats("weights", weights)
    checks.shape("weights", weights, losses.shape, ALIKE)
    if denominator is None:
        denominator = max(losses.size, 1)
    elif not checks.number("denominator", denominator, 0, float("inf"), "try n"):
        raise ValueError(f"denominator: must be above 0, got {denominator!r}; try n")
    return float(np.sum(np.where(losses == np.inf, 0.0, losses) * weights) / denominator)
