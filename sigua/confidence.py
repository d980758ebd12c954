"""Class confidence: the mean probability that a model gives class j where the label is j.

A class that is hard, or often mislabelled, is predicted with less confidence than others, even
where its labels are right. Agreement divides by this confidence (`sigua.Agreement`), as confident
learning sets a threshold per class (Northcutt et al., JAIR 2021).

The average runs over about 100 examples of each class; the latest count most. It is kept as one
array of shape (2, k): the discounted sum of p(j | x) over examples labelled j, and their discounted
number. The code uses operators only, so it works on arrays and tensors of every framework.
"""

from __future__ import annotations

from sigua.objective import Array

MEMORY = 100
"""After this many further examples of its class, an example counts 1 / e. An average over a whole
epoch follows the model too late: whole classes are then kept in one epoch and dropped in the
next."""

TINY = 1e-6
"""Added to the sum and to the number, so that a class without examples has confidence 1."""


def rates(state: Array) -> Array:
    """Return c, shape (k,), in (0, 1], from the state of shape (2, k).

    >>> import numpy as np
    >>> rates(np.array([[1.0, 0.0], [4.0, 0.0]])).round(3)
    array([0.25, 1.  ])
    """
    return (state[0] + TINY) / (state[1] + TINY)


def moved(state: Array, batch: Array) -> Array:
    """Return the state after a mini-batch, whose own sums and numbers have shape (2, k), too.

    >>> import numpy as np
    >>> moved(np.array([[1.0], [4.0]]), np.array([[0.5], [1.0]])).round(3)
    array([[1.49],
           [4.96]])
    """
    return (1 - 1 / MEMORY) ** batch[1] * state + batch
