"""The noise floor: a mean loss below it means that labels have been memorised.

Let p(x) be the true posterior of the classes and T the noise. The observed label of x has the
distribution T'p(x). A model that predicts this perfectly has the loss H(T'p(x)) there, where H is
the entropy. T'p(x) is a mixture of the rows of T, and entropy is concave, so

    H(T'p(x)) = H(sum_c p_c(x) T[c, :]) >= sum_c p_c(x) H(T[c, :]),

and, with the mean over x, in which p_c(x) becomes the prior of class c,

    E H(T'p(x)) >= sum_c prior_c H(T[c, :]) = the floor.

So a perfect model is below the floor only by the chance of a mini-batch, and no model predicts
fresh labels better. Only labels that it was trained on can be predicted better, from memory. The
two sides are equal where classes do not overlap. Where they do, the right side is too low, by the
information between the true and the observed label given x, and memorising may begin above it.

All this holds for noise that depends on the class alone. Human noise depends on the example, too,
and is more predictable than T says: the floor is then too high.
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
    """Return sum_c prior_c H(T[c, :]), in nats: the least loss that a model of the labels can have.

    Args:
        noise: the rate of symmetric noise, in [0, 1), or any transition matrix.
        num_classes: k; with a rate only.
        prior: shape (k,), the frequencies of the true classes or any multiple of them, such as
            counts; uniform if None.
        observed: shape (k,), the same for the observed labels, such as
            `np.bincount(labels, minlength=k)`, from which the prior is computed; instead of it.

    Raises:
        ValueError: an argument out of range, missing, or given twice.

    >>> round(noise_floor(0.5, 10), 4)  # log 2 + log(9) / 2
    1.7918
    >>> round(noise_floor(TransitionMatrix([[1, 0], [0.5, 0.5]]), prior=[1, 3]), 4)
    0.5199
    """
    if prior is not None and observed is not None:
        raise ValueError("prior: must be None with observed, got both; try one of the two")
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
        advice = "try the share of wrong labels, or a TransitionMatrix"
        rate = checks.number("noise", noise, 0, 1, advice, closed=False)
        k = checks.whole("num_classes", num_classes, 2, "try the number of classes")
        return Symmetric(rate, k)
    if num_classes is not None:
        raise ValueError(
            f"num_classes: must be None with a TransitionMatrix, got {num_classes!r}; "
            "try leaving it out"
        )
    return noise._kept


def _distribution(name: str, value: ArrayLike, k: int) -> Floats:
    array = checks.floats(name, value)
    if array.shape != (k,):
        raise ValueError(
            f"{name}: must have shape ({k},), got shape {array.shape}; try an entry per class"
        )
    if not ((array >= 0) & (array < np.inf)).all() or not array.any():
        raise ValueError(
            f"{name}: must be frequencies from 0 up, not all of them 0, got {array.tolist()}; "
            "try counts or shares"
        )
    array = array / array.max()  # or else the sum of large entries would be infinite
    return np.asarray(array / array.sum())
