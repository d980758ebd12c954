"""Estimates of the noise rate and T, from what a model makes of the noisy labels.

The probabilities are of the *noisy* labels: those of a model that was trained on them by plain
cross-entropy. They should be out-of-fold (`sklearn.model_selection.cross_val_predict`), or from
early in the training, because a model that has memorised its labels finds none of them wrong. What
does not fit raises ValueError.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sigua import checks
from sigua._estimators import ESTIMATORS, Evidence
from sigua.counting import Floats
from sigua.transition import TransitionMatrix
from sigua.transition.matrix import matrix_from

APART = 0.05
"""Two estimates that differ by more than this, "confident" and "surest", give a warning."""


def estimate_transition(
    probabilities: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    method: str = "surest",
    classes: ArrayLike | None = None,
) -> TransitionMatrix:
    """Return an estimate of T, with as many classes as `probabilities` has columns.

    If you have checked labels of some examples, drawn at random, count instead: `count_transition`.
    Errors that follow from the input, such as those of a keyword rule, cannot be seen in the noisy
    labels alone: a model predicts them like any other label.

    The methods, of which only "anchor" does without labels:

    - "surest": count the labels of the most confident predictions of i, which are hardly ambiguous,
      and smooth: k more labels of each class, distributed as the noise is on average. The interval
      of the noise rate decides how many predictions are the most confident.
    - "confident": count the examples labelled j that are confidently i: at least as surely as the
      examples labelled i are on average (Northcutt et al. 2021). Where classes overlap, it counts
      ambiguous examples as noise.
    - "anchor": row i of T is the probabilities of the example that is most surely i (Patrini et al.
      2017). It trusts a single example of each class.

    A class about which nothing is known is assumed free of noise (1 on the diagonal), or, with
    "surest", as noisy as the average, and a warning names it: one without labels or probability
    ("anchor"), that no example is confidently ("confident"), or that is never predicted ("surest").

    Args:
        probabilities: p(observed class | x), shape (n, k), any floats. Each row must sum to 1
            within 0.02, which is divided out. They are read in blocks and never copied as a whole:
            a `numpy.memmap` may be larger than the memory. At most 80 bytes an example are held.
        labels: the noisy labels, integers in [0, k), shape (n,).
        method: one of those above.
        classes: the names of the columns of `probabilities`, such as scikit-learn's
            `clf.classes_`, or those of a data frame by default; labels are then such names. Rows
            and columns of T are in the order of the columns.

    Raises:
        ValueError: also for an estimate without a usable inverse (see `TransitionMatrix`).

    Warns:
        UserWarning: nothing is known about a class; or, with "surest", confident counting finds a
            very different rate: then classes overlap, or hard examples are wrong more often. Only
            checked labels tell which.

    >>> p = [[0.8, 0.2], [0.7, 0.3], [0.4, 0.6], [0.3, 0.7]]
    >>> estimate_transition(p, method="anchor").rows.tolist()
    [[0.8, 0.2], [0.3, 0.7]]
    """
    return _estimate(_read(probabilities, labels, method, classes), method)


def estimate_noise_rate(
    probabilities: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    method: str = "surest",
    classes: ArrayLike | None = None,
) -> float:
    """Return an estimate of the share of wrong labels, a fraction in [0, 1].

    With "surest" it is the share of labels that disagree with the model among its most confident
    predictions. With another method of `estimate_transition` it is 1 - sum_i p(i) T[i, i],
    for the class frequencies p that T turns into the observed ones: those of `labels`, else the
    mean of `probabilities`. If you have both labels of some examples, count instead:
    `count_noise_rate`. `diagnose` gives an interval.

    Arguments, errors and warnings are those of `estimate_transition`.

    >>> p = [[0.9, 0.1]] * 50 + [[0.1, 0.9]] * 50
    >>> estimate_noise_rate(p, [0] * 40 + [1] * 60)
    0.1
    """
    evidence = _read(probabilities, labels, method, classes)
    if method == "surest":
        _warn_if_apart(evidence, stacklevel=3)
        return evidence.surest.rate.value
    return _rate(evidence, _estimate(evidence, method))


def label_losses(
    probabilities: ArrayLike, labels: ArrayLike, *, classes: ArrayLike | None = None
) -> Floats:
    """Return -log p(label | x) in nats, float64, shape (n,); +inf where p is 0.

    Args:
        probabilities: shape (n, k), each row summing to 1 within 0.02, which is divided out. They
            are read in blocks, so they may be a `numpy.memmap`.
        labels: integers in [0, k), shape (n,).
        classes: the names of the columns, as for `estimate_transition`; labels are then names.

    >>> label_losses([[0.25, 0.75], [1.0, 0.0]], [1, 0]).round(3).tolist()
    [0.288, 0.0]
    """
    with np.errstate(divide="ignore"):
        losses = -np.log(Evidence(probabilities, labels, classes).own)
    return np.maximum(losses, 0.0, out=losses)  # no -0.0


def _read(probabilities: Any, labels: Any, method: str, classes: Any) -> Evidence:
    checks.choice("method", method, ESTIMATORS)
    if labels is None and method != "anchor":
        raise ValueError(
            f"labels: must be given for method={method!r}, got None; try labels=, or 'anchor'"
        )
    return Evidence(probabilities, labels, classes, labelled=labels is not None)


def usable_transition(evidence: Evidence, method: str) -> TransitionMatrix | None:
    """Return T by a method, without warnings; None if it has no usable inverse."""
    with suppress(ValueError):
        return TransitionMatrix(ESTIMATORS[method](evidence)[0])
    return None


def _rate(evidence: Evidence, T: TransitionMatrix) -> float:
    return float(np.clip(1 - evidence.true_frequencies(T) @ T.rows.diagonal(), 0, 1))


def _warn_if_apart(evidence: Evidence, stacklevel: int) -> None:
    rate, T = evidence.surest.rate, usable_transition(evidence, "confident")
    other = rate.value if T is None else _rate(evidence, T)
    if not rate.low <= other <= rate.high and abs(other - rate.value) > APART:
        warnings.warn(
            f"two ways to estimate the noise rate disagree: {rate.value:.2f} among the most "
            f"confident predictions, {other:.2f} by confident counting; classes overlap, or hard "
            "examples are wrong more often; check 100 labels drawn at random, and pass them to "
            "sigua.diagnose",
            stacklevel=stacklevel,
        )


def _estimate(evidence: Evidence, method: str) -> TransitionMatrix:
    """Estimate T, and warn about the classes of which nothing is known."""
    rows, unknown = ESTIMATORS[method](evidence)
    if unknown.any():
        names = evidence.names or range(len(rows))
        classes = [names[i] for i in np.flatnonzero(unknown)]
        taken = "as noisy as the average" if method == "surest" else "free of noise"
        warnings.warn(
            f"nothing is known about class {', '.join(map(str, classes))}: "
            f"{method!r} assumes that it is {taken}",
            stacklevel=3,
        )
    if method == "surest":
        _warn_if_apart(evidence, stacklevel=4)
    advice = "another method, or merging classes that look alike"
    return matrix_from(rows, "probabilities", "estimated", advice)
