"""The noise floor: how small a mean loss can be before it must have been memorised.

Let p(x) be the true posterior of the classes and T the noise. The observed label of x has the
distribution T'p(x), and whoever predicts it perfectly has the loss H(T'p(x)) there, H the entropy.
T'p(x) is a mixture of the rows of T, and entropy is concave, so that

    H(T'p(x)) = H(sum_c p_c(x) T[c, :]) >= sum_c p_c(x) H(T[c, :]),

and, with the mean taken over x, where that of p_c(x) is the prior of class c,

    E H(T'p(x)) >= sum_c prior_c H(T[c, :]) = the floor.

A perfect model is thus never below the floor but by the chance of a mini-batch, and fresh labels
cannot be predicted better by any model; the labels it was trained on can, by memory alone. The two
sides are equal where classes do not overlap. Where they do, the right side is too low by the
information between the true and the observed label given x, and memorising may begin above it.

All this holds for noise that depends on the class alone. Human noise depends on the example, too,
and is more predictable than T: the floor is then too high.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks
from sigua.transition import TransitionMatrix
from sigua.transition._form import Form
from sigua.transition._forms import Symmetric

Floats = NDArray[np.float64]


def noise_floor(
    noise: float | TransitionMatrix,
    num_classes: int | None = None,
    *,
    prior: ArrayLike | None = None,
    observed: ArrayLike | None = None,
) -> float:
    """Return sum_c prior_c H(T[c, :]), in nats: what a model of the labels cannot go below.

    Args:
        noise: the rate of symmetric noise, in [0, 1), or any transition matrix.
        num_classes: k; with a rate only.
        prior: shape (k,), the frequencies of the true classes or any multiples of them, such as
            counts; uniform if None.
        observed: shape (k,), the same of the observed labels, such as
            `np.bincount(labels, minlength=k)`, from which T tells the prior; one of the two.

    Raises:
        ValueError: an argument out of range, missing, or given twice.

    >>> round(noise_floor(0.5, 10), 4)  # log 2 + log(9) / 2
    1.7918
    >>> round(noise_floor(TransitionMatrix([[1, 0], [0.5, 0.5]]), prior=[1, 3]), 4)
    0.5199
    """
    if prior is not None and observed is not None:
        raise checks.refuse("prior", "is told by observed", "both came", "leave one of them out")
    form = _form(noise, num_classes)
    name, given = ("prior", prior) if observed is None else ("observed", observed)
    k = form.size
    uniform = np.broadcast_to(1 / k, k)  # one number, however many classes
    frequencies = uniform if given is None else _distribution(name, given, k)
    if observed is not None and form.flip_rate is None:  # else rows have one entropy
        # T' prior = observed; what chance drove below zero is clipped
        solved = form.times_inverse(frequencies).clip(min=0)
        frequencies = solved / solved.sum()
    return form.entropy(frequencies)


def _form(noise: float | TransitionMatrix, num_classes: int | None) -> Form:
    """Return what knows the entropy of a rate, at which T may not be invertible, or of T."""
    if not isinstance(noise, TransitionMatrix):
        advice = "give the share of wrong labels, or a TransitionMatrix"
        rate = checks.number("noise", noise, 0, 1, advice, closed=False)
        k = checks.whole("num_classes", num_classes, 2, "give the number of classes")
        return Symmetric(rate, k)
    if num_classes is not None:
        raise checks.refuse("num_classes", "is T's own", f"{num_classes!r} came", "leave it out")
    return noise._kept


def _distribution(name: str, value: ArrayLike, k: int) -> Floats:
    array = checks.floats(name, value)
    if array.shape != (k,):
        came = f"shape {array.shape} came"
        raise checks.refuse(name, f"must have shape ({k},)", came, "give an entry per class")
    if not ((array >= 0) & (array < np.inf)).all() or not array.any():
        came = f"{array.tolist()} came"
        raise checks.refuse(name, "must be frequencies from 0 up", came, "give counts or shares")
    array = array / array.max()  # else the sum of large ones is infinite
    return np.asarray(array / array.sum())
