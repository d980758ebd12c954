"""The noise floor: a mean loss below it means that labels have been memorised.

Let p(x) be the true posterior of the classes and T the noise. The observed label of x has the
distribution T'p(x). A model that predicts this perfectly has the loss H(T'p(x)) there, where H is
the entropy. T'p(x) is a mixture of the rows of T, and entropy is concave, so

    H(T'p(x)) = H(sum_c p_c(x) T[c, :]) >= sum_c p_c(x) H(T[c, :]),

and, with the mean over x, in which p_c(x) becomes the prior of class c,

    E H(T'p(x)) >= sum_c prior_c H(T[c, :]) = the floor.

So no model predicts fresh labels better, but for the chance of a mini-batch: only those that it was
trained on, from memory. The two sides are equal where classes do not overlap. Where they do, the
right side is too low, by the information between the true and the observed label given x.

All this holds for noise that depends on the class alone. Human noise depends on the example, too,
and is more predictable than T says: the floor is then too high.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from sigua import checks
from sigua.counting import Floats
from sigua.transition import TransitionMatrix


def noise_floor(
    noise: float | TransitionMatrix,
    num_classes: int | None = None,
    *,
    prior: ArrayLike | None = None,
    observed: ArrayLike | None = None,
) -> float:
    """Return sum_c prior_c H(T[c, :]), in nats: the least loss that a model of the labels can have.

    Args:
        noise: the rate of symmetric noise, in [0, 1), or any transition matrix.
        num_classes: k; with a rate only.
        prior: shape (k,), the frequencies of the true classes or any multiple of them, such as
            counts; uniform if None.
        observed: shape (k,), the same for the observed labels, such as
            `np.bincount(labels, minlength=k)`, from which the prior is computed; instead of it.
            What is out of range, missing or given twice raises ValueError.

    >>> round(noise_floor(0.5, 10), 4)  # log 2 + log(9) / 2
    1.7918
    >>> round(noise_floor(TransitionMatrix([[1, 0], [0.5, 0.5]]), prior=[1, 3]), 4)
    0.5199
    """
    if prior is not None and observed is not None:
        raise ValueError("prior: must be None with observed, got both; try one of the two")
    T = noise if isinstance(noise, TransitionMatrix) else None
    if T is not None and num_classes is not None:
        raise ValueError(
            f"num_classes: must be None with a TransitionMatrix, got {num_classes!r}; "
            "try leaving it out"
        )
    advice = "try the share of wrong labels, or a TransitionMatrix"
    rate = checks.number("noise", noise, 0, 1, advice, closed=False) if T is None else T.flip_rate
    size = num_classes if T is None else T.num_classes
    k = checks.whole("num_classes", size, 2, "try the number of classes")
    name, given = ("prior", prior) if observed is None else ("observed", observed)
    frequencies = None if given is None else _distribution(name, given, k)
    if rate is not None:  # all rows have one entropy, whatever the frequencies, inverse or not
        return float(_surprise(np.array([1 - rate, rate])).sum() + rate * math.log(k - 1))
    assert T is not None
    if frequencies is None:
        frequencies = np.full(k, 1 / k)
    elif observed is not None:
        # T' prior = observed; what chance drove below zero is clipped
        solved = np.linalg.solve(T.rows.T, frequencies).clip(min=0)
        frequencies = solved / solved.sum()
    if T.csr is not None:
        return float(frequencies[T.csr.owners()] @ _surprise(T.csr.data))
    return float(frequencies @ _surprise(T.rows).sum(axis=1))


def _surprise(p: Floats) -> Floats:
    """Return -p log p; 0 for 0. Its sum over a distribution is the entropy."""
    return -p * np.log(p, where=p > 0, out=np.zeros_like(p))


def _distribution(name: str, value: ArrayLike, k: int) -> Floats:
    array = checks.floats(name, value)
    checks.shape(name, array, (k,), "try an entry per class")
    if not ((array >= 0) & (array < np.inf)).all() or not array.any():
        raise ValueError(
            f"{name}: must be frequencies from 0 up, not all of them 0, got {array.tolist()}; "
            "try counts or shares"
        )
    array = array / array.max()  # or else the sum of large entries would be infinite
    return np.asarray(array / array.sum())
