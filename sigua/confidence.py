"""What agreement remembers of the mini-batches so far: the class confidence, and counts.

The class confidence is the mean probability that a model gives class j where the label is j. A
class that is hard, or often mislabelled, is predicted with less confidence than others, even where
its labels are right. Agreement divides by this confidence (`sigua.Agreement`), as confident
learning sets a threshold per class (Northcutt et al., JAIR 2021).

The counts say how often label y was given where the model predicts class o. They are kept for a
rule with a `power` only.

Both are discounted sums, in one array, the state, with a column per class:

| row | what the sum is over | of |
|---|---|---|
| 0 | examples labelled j | p(j given x) |
| 1 | examples labelled j | 1 |
| 2 | examples predicted as j | 1 |
| 3 | examples predicted as j | 1 where the label is j, too |
| 4 + y | examples predicted as j | 1 where the label is y |

Without counts the state has the first two rows. It is 0 before the first mini-batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigua import _ops as numpy_names
from sigua.objective import Array

MEMORY = 100
"""After this many further examples of its class, an example counts 1 / e. An average over a whole
epoch follows the model too late: whole classes are then kept in one epoch and dropped in the
next."""

COUNTED = 5_000
"""The same for counts, in examples predicted as the class: a rare error has to be seen."""

MOST_CLASSES = 4_096
"""With more, counts would take above 64 MiB."""

TINY = 1e-6
"""Added to the sum and to the number, so that a class without examples has confidence 1."""

VECTORS = 4
"""How many rows of a state with counts are not counts."""


def zeros(k: int, counts: bool = False) -> NDArray[np.float32]:
    """Return the state before the first mini-batch, of k classes, with counts or without.

    Raises:
        ValueError: counts of too many classes.

    >>> zeros(3).shape, zeros(3, counts=True).shape
    ((2, 3), (7, 3))
    """
    if counts and k > MOST_CLASSES:
        raise ValueError(
            f"power: must be 0 with more than {MOST_CLASSES} classes, of whose pairs it keeps "
            f"counts, got {k} classes; try sigua_ag(power=0), or sigua.candidates(num_classes={k})"
        )
    return np.zeros((VECTORS + k if counts else 2, k), np.float32)


def rates(state: Array) -> Array:
    """Return c, shape (k,), in (0, 1], from the state.

    >>> rates(np.array([[1.0, 0.0], [4.0, 0.0]])).round(3)
    array([0.25, 1.  ])
    """
    return (state[0] + TINY) / (state[1] + TINY)


def bounds(state: Array, power: float, ops: Any = numpy_names) -> Array:
    """Return min(1, (C_oy / C_yy)^power), at row y and column o, (k, k); see `Agreement`.

    C is the share of label y among the examples predicted as o, with one more example of each
    class whose label is what the model predicts.

    Args:
        state: with counts.
        power: above 0.
        ops: the framework's names (`sigua.step`).
    """
    predicted, right = state[2] + 1.0, state[3] + 1.0
    share = state[VECTORS:] / predicted[None]
    return ops.minimum((share * (predicted / right)[:, None]) ** power, 1.0)


def moved(state: Array, batch: Array, ops: Any = numpy_names) -> Array:
    """Return the state after a mini-batch, whose own sums have the state's shape.

    >>> moved(np.array([[1.0], [4.0]]), np.array([[0.5], [1.0]])).round(3)
    array([[1.49],
           [4.96]])
    """
    kept = (1 - 1 / MEMORY) ** batch[1:2] * state[:2] + batch[:2]
    if state.shape[0] == 2:
        return kept
    counts = (1 - 1 / COUNTED) ** batch[2:3] * state[2:] + batch[2:]
    return ops.concat([kept, counts])
