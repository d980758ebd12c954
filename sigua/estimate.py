"""Estimates of the noise rate and T, from what a model makes of the noisy labels.

The probabilities are of the *noisy* labels: those of a model that was trained on them by plain
cross-entropy. They should be out-of-fold (`sklearn.model_selection.cross_val_predict`), or from
early in the training, because a model that has memorised its labels finds none of them wrong.
All rates are fractions in [0, 1]; a percentage is refused.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sigua import checks
from sigua._blocks import Probabilities
from sigua._estimators import ESTIMATORS, Evidence
from sigua._mixture import share_of_larger
from sigua._names import column_names, columns_of, probabilities_and_labels, same_order
from sigua.intervals import Floats, Interval
from sigua.transition import TransitionMatrix
from sigua.transition.matrix import matrix_from

_NEEDS = {
    "surest": ("labels",),
    "anchor": (),
    "confident": ("labels",),
    "dual-t": ("labels",),
    "gold": ("true_labels",),
}
APART = 0.05
"""Two estimates that differ by more than this, confident and surest, give a warning."""


def estimate_transition(
    probabilities: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    method: str = "surest",
    quantile: float = 1.0,
    true_labels: ArrayLike | None = None,
    classes: ArrayLike | None = None,
) -> TransitionMatrix:
    """Return an estimate of T, with as many classes as `probabilities` has columns.

    If you have checked labels of some examples, drawn at random, count instead: `count_transition`.
    Errors that follow from the input, such as those of a keyword rule, cannot be seen in the noisy
    labels alone: a model predicts them like any other label.

    The methods, and what each reads besides the probabilities:

    - "surest" (`labels`): count the labels of the examples that are most surely predicted as i,
      which are hardly ambiguous, and smooth: k more labels of each class, distributed as the noise
      is on average. The interval of the noise rate decides how many examples are the surest.
    - "anchor" (nothing): row i of T is the probabilities of the example that is most surely i. With
      `quantile` below 1 it is another one that is nearly as sure, in case the surest is an outlier
      (Patrini et al. 2017, who use 0.97 with many classes).
    - "confident" (`labels`): count the examples labelled j that are confidently i: at least as
      surely as the examples labelled i are on average (Northcutt et al. 2021). Where classes
      overlap, it counts ambiguous examples as noise.
    - "dual-t" (`labels`): T is a product of two matrices, from the true to the predicted class by
      anchors, and from the predicted to the observed class by counting (Yao et al. 2020). It is for
      a model that is sure at its anchors: where the probabilities are right, it gives T @ T.
    - "gold" (`true_labels`): row i is the mean over the checked examples that are i (gold loss
      correction, Hendrycks et al. 2018). Give the rows of the checked examples only. It trusts the
      model, and counts ambiguous examples as noise: with noisy labels, too, count instead.

    A class about which nothing is known is assumed free of noise (1 on the diagonal), or, with
    "surest", as noisy as the average, and a warning names it. It is a class without labels or
    without any probability ("anchor", "dual-t"), that no example is confidently ("confident"), that
    is never predicted ("surest", "dual-t", where its second matrix has the 1), or of which no
    example was checked ("gold").

    Args:
        probabilities: p(observed class | x), shape (n, k), any floats. Each row must sum to 1
            within 0.02, which is divided out. They are read in blocks, a few times, and never
            copied as a whole: a `numpy.memmap` may be larger than the memory. What is held besides
            is at most 80 bytes an example, however many classes there are.
        labels: the noisy labels, integers in [0, k), shape (n,); not for "gold".
        method: one of those above.
        quantile: the quantile of a class's probabilities, over all n examples, at which its anchor
            is, in [0, 1]; for "anchor" and "dual-t".
        true_labels: integers in [0, k), shape (n,); for "gold" only.
        classes: the names of the columns of `probabilities`, in their order, such as scikit-learn's
            `clf.classes_`; labels are then such names. By default the columns of a data frame have
            its own names.

    Raises:
        ValueError: an argument of another shape or range, an argument that is missing or unused, or
            an estimate without a usable inverse (see `TransitionMatrix`).

    Warns:
        UserWarning: nothing is known about a class; or, with "surest", confident counting finds a
            very different rate: then classes overlap, or hard examples are wrong more often. Only
            checked labels tell which.

    >>> p = [[0.8, 0.2], [0.7, 0.3], [0.4, 0.6], [0.3, 0.7]]
    >>> estimate_transition(p, method="anchor").rows.tolist()
    [[0.8, 0.2], [0.3, 0.7]]
    """
    evidence = _read(probabilities, labels, method, quantile, true_labels, classes)
    return _estimate(evidence, method)


def estimate_noise_rate(
    probabilities: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    method: str = "surest",
    quantile: float = 1.0,
    true_labels: ArrayLike | None = None,
    losses: ArrayLike | None = None,
    classes: ArrayLike | None = None,
) -> float:
    """Return an estimate of the share of wrong labels, a fraction in [0, 1].

    With a method of `estimate_transition` it is 1 - sum_i p(i) T[i, i], for the class frequencies
    p that T turns into the observed ones: those of `labels`, else the mean of `probabilities`. With
    "surest" it is the share of labels that disagree with the model among the most surely predicted
    examples. If you have both labels of some examples, count instead: `count_noise_rate`.
    `diagnose` gives an interval.

    With "mixture" it is the weight of the component with the larger mean, of two normal components
    fitted to 1 - p(label) (after Arazo et al. 2019 and Li et al. 2020). It needs nothing but
    losses. It sees wrong labels only where the model finds them less likely than right ones, so
    hardly any with strong pair noise; and it always finds two components, even in clean labels.

    Args:
        probabilities: as for `estimate_transition`.
        labels: the noisy labels; also needed by "mixture", unless `losses` is given.
        method: one of `estimate_transition`, or "mixture".
        quantile: as for `estimate_transition`.
        true_labels: as for `estimate_transition`.
        losses: for "mixture", cross-entropies at the noisy labels in nats, shape (n,), instead of
            `probabilities` and `labels`.
        classes: as for `estimate_transition`.

    Raises:
        ValueError: as for `estimate_transition`.

    Warns:
        UserWarning: as for `estimate_transition`.

    >>> estimate_noise_rate(losses=[0.1, 0.2, 0.1, 2.5], method="mixture")
    0.25
    """
    if method == "mixture":
        _refuse_superfluous(method, true_labels=true_labels)
        return share_of_larger(-np.expm1(-_given_losses(probabilities, labels, losses, classes)))
    checks.choice("method", method, [*_NEEDS, "mixture"])
    _refuse_superfluous(method, losses=losses)
    evidence = _read(probabilities, labels, method, quantile, true_labels, classes)
    if method == "surest":
        rate = evidence.surest[1]
        _warn_if_apart(evidence, rate, stacklevel=3)
        return rate.value
    T = _estimate(evidence, method)
    return float(np.clip(1 - evidence.true_frequencies(T) @ T.rows.diagonal(), 0, 1))


def label_losses(
    probabilities: ArrayLike, labels: ArrayLike, *, classes: ArrayLike | None = None
) -> Floats:
    """Return -log p(label | x) in nats, float64, shape (n,); +inf where p is 0.

    Args:
        probabilities: shape (n, k), each row summing to 1 within 0.02, which is divided out. They
            are read in blocks, once, so they may be a `numpy.memmap`; what is held besides is the
            result.
        labels: integers in [0, k), shape (n,).
        classes: the names of the columns, as for `estimate_transition`; labels are then names.

    Raises:
        ValueError: probabilities or labels of another shape or range, or of different lengths.

    >>> label_losses([[0.25, 0.75], [1.0, 0.0]], [1, 0]).round(3).tolist()
    [0.288, 0.0]
    """
    p, y = probabilities_and_labels(probabilities, labels, classes)
    losses = np.empty(len(p))
    with np.errstate(divide="ignore"):
        for part, rows in p.blocks():
            losses[part] = -np.log(rows[np.arange(len(rows)), y[part]])
    return np.maximum(losses, 0.0, out=losses)  # no -0.0


def _read(
    probabilities: Any, labels: Any, method: str, quantile: float, true_labels: Any, classes: Any
) -> Evidence:
    checks.choice("method", method, _NEEDS)
    p = Probabilities("probabilities", probabilities)
    quantile = checks.number("quantile", quantile, 0, 1, "try a fraction, such as 0.97")
    given = {"labels": labels, "true_labels": true_labels}
    for name in _NEEDS[method]:
        if given[name] is None:
            raise ValueError(
                f"{name}: must be given for method={method!r}, got None; "
                f"try {name}=, or another method"
            )
    useless = {"labels": labels} if method == "gold" else {"true_labels": true_labels}
    _refuse_superfluous(method, **useless)
    if quantile != 1 and method not in ("anchor", "dual-t"):
        _refuse_superfluous(method, quantile=quantile)
    names = column_names(probabilities, classes, p.shape[1])
    for name, value in given.items():
        if value is not None:
            columns = columns_of(name, value, names)
            given[name] = checks.labels(name, columns, p.shape[1])
            given[name] = np.asarray(given[name], dtype=np.int64)
            checks.same_length(name, given[name], "probabilities", p)
            same_order(name, value, probabilities)
    return Evidence(p, given["labels"], given["true_labels"], quantile)


def _refuse_superfluous(method: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name}: must be left out for {method!r}, which does not use it, "
                f"got {type(value).__name__}; try without it"
            )


def _given_losses(probabilities: Any, labels: Any, losses: Any, classes: Any) -> Floats:
    if losses is None:
        if probabilities is None or labels is None:
            raise ValueError(
                "losses: must be given for method='mixture', got None; "
                "try losses=, or probabilities and labels"
            )
        return label_losses(probabilities, labels, classes=classes)
    given = {"probabilities": probabilities, "labels": labels, "classes": classes}
    _refuse_superfluous("mixture with losses", **given)
    array = checks.losses("losses", losses)
    if array.ndim != 1:
        raise ValueError(
            f"losses: must have shape (n,), got shape {array.shape}; try their mean over the epochs"
        )
    return array


def surest_transition(evidence: Evidence) -> TransitionMatrix | None:
    """Return T by the surest examples, without warnings; None if it has no usable inverse."""
    rows, _ = ESTIMATORS["surest"](evidence)
    try:
        return TransitionMatrix(rows)
    except ValueError:
        return None


def confident_rate(evidence: Evidence) -> float:
    """Return the noise rate by confident counting, without warnings; NaN if T has no inverse."""
    rows, _ = ESTIMATORS["confident"](evidence)
    try:
        T = TransitionMatrix(rows)
    except ValueError:
        return float("nan")
    return float(np.clip(1 - evidence.true_frequencies(T) @ T.rows.diagonal(), 0, 1))


def are_apart(rate: Interval, other: float) -> bool:
    """Return whether another estimate lies outside an interval, and far from its value."""
    return not rate.low <= other <= rate.high and abs(other - rate.value) > APART


def _warn_if_apart(evidence: Evidence, rate: Interval, stacklevel: int) -> None:
    other = confident_rate(evidence)
    if are_apart(rate, other):
        warnings.warn(
            f"two ways to estimate the noise rate disagree: {rate.value:.2f} among the surest "
            f"examples, {other:.2f} by confident counting; classes overlap, or hard examples are "
            "wrong more often; check 100 labels drawn at random, and pass them to sigua.diagnose",
            stacklevel=stacklevel,
        )


def _estimate(evidence: Evidence, method: str) -> TransitionMatrix:
    """Estimate T, and warn about the classes of which nothing is known."""
    rows, unknown = ESTIMATORS[method](evidence)
    if unknown.any():
        taken = "as noisy as the average" if method == "surest" else "free of noise"
        warnings.warn(
            f"nothing is known about class {', '.join(map(str, np.flatnonzero(unknown)))}: "
            f"{method!r} assumes that it is {taken}",
            stacklevel=3,
        )
    if method == "surest":
        _warn_if_apart(evidence, evidence.surest[1], stacklevel=4)
    advice = "another method or quantile, or merging classes that look alike"
    return matrix_from(rows, "probabilities", "estimated", advice)
