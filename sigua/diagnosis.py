"""Look at the noise before choosing a method: how much there is, of what kind, and how certain."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua._checked import checked_labels
from sigua._doubts import about_the_model, at_random
from sigua._estimators import Evidence
from sigua._names import probabilities_and_labels
from sigua._report import Confusion, Diagnosis, Follows
from sigua.counting import count_transition
from sigua.estimate import are_apart, confident_rate, surest_transition
from sigua.intervals import Interval, counted
from sigua.transition import TransitionMatrix

__all__ = ["Diagnosis", "diagnose"]

Labels = NDArray[np.int64]

MOST = 0.5
"""Errors are said to be directed if more than this share go to one class for each true class."""
FEW = 10
"""With fewer wrong labels among the checked ones, nobody can tell what the errors follow from."""


def diagnose(
    probabilities: ArrayLike,
    labels: ArrayLike,
    true_labels: ArrayLike | None = None,
    checked: ArrayLike | None = None,
    *,
    classes: ArrayLike | None = None,
) -> Diagnosis:
    """Return what can be known about the noise, and which method to use; print the result.

    Without checked labels, all of it rests on an assumption that cannot be tested: that errors do
    not follow from the input. A hundred checked labels, drawn at random, test it.

    Args:
        probabilities: p(observed class | x), shape (n, k), out of fold: from models that were not
            trained on the example's own label (`sklearn.model_selection.cross_val_predict`).
        labels: as given, integers in [0, k), shape (n,).
        true_labels: as they should be, integers in [0, k), an entry for each example that was
            checked; n of them if `checked` is not given.
        checked: which examples were checked, drawn at random: their indices, in the order of
            `true_labels`, or a mask, bool, shape (n,).
        classes: the names of the columns, as for `estimate_transition`; labels are then names.

    Raises:
        ValueError: another shape, dtype or range, or `checked` without `true_labels`.

    >>> p = [[0.9, 0.1]] * 60 + [[0.1, 0.9]] * 60
    >>> diagnosis = diagnose(p, [0] * 50 + [1] * 70, true_labels=[0] * 60 + [1] * 60)
    >>> print(diagnosis.counted)
    8 % (4 to 15)
    """
    p, y, names = probabilities_and_labels(probabilities, labels, classes)
    places, true = checked_labels(probabilities, labels, true_labels, checked, names, p.shape)
    evidence, shown = Evidence(p, y, names), names or list(range(p.shape[1]))
    predicted, sureness, _ = evidence.read
    agreement = counted(int((predicted == y).sum()), len(y))
    expected, confident = float(sureness.mean()), confident_rate(evidence)
    doubts = about_the_model(evidence, agreement, expected, shown)
    random = at_random(predicted == y, places, agreement)
    by_model, seen = _by_model(evidence, confident), _Seen()
    noise = by_model
    if len(places):
        seen = _look_at(y[places], true, predicted[places], agreement)
        if random:
            given = y[places], true, len(shown)
            noise = _together(by_model, evidence.surest[1], seen, *given)
        else:
            seen = seen._replace(follows_input=None)
            share = f"{100 * (predicted == y)[places].mean():.0f} %"
            doubts += [f"it predicts {share} of the checked labels: they must be drawn at random"]
    return Diagnosis(
        num_examples=len(y),
        classes=tuple(shown),
        num_checked=len(places),
        at_random=random,
        above_chance=evidence.above_chance,
        noise_rate=noise.rate,
        by_model=by_model.rate,
        surest=evidence.surest[1],
        confident=confident,
        agreement=agreement,
        expected_agreement=expected,
        T=noise.T,
        confusions=_confusions(noise.T, shown),
        one_for_another=noise.directed and len(shown) > 2 and noise.rate.value > 0.02,
        doubts=tuple(doubts),
        **seen._asdict(),
    )


class _Noise(NamedTuple):
    """What is known of the noise."""

    rate: Interval
    T: TransitionMatrix | None
    directed: bool
    """Whether errors go mostly to one class for each true class."""


class _Seen(NamedTuple):
    """What checked labels say; see `Diagnosis`."""

    counted: Interval | None = None
    accuracy: Interval | None = None
    reproduced: Interval | None = None
    corrected: Interval | None = None
    follows_input: Follows | None = None


def _by_model(evidence: Evidence, confident: float) -> _Noise:
    """Return what the model says of the noise, if errors do not follow from the input."""
    rate, T = evidence.surest[1], surest_transition(evidence)
    if are_apart(rate, confident):
        rate = Interval(rate.value, rate.low, max(rate.high, confident))
    errors = np.zeros((1, 1)) if T is None else T.rows - np.diag(T.rows.diagonal())
    return _Noise(rate, T, bool(errors.max(axis=1).sum() > MOST * errors.sum()))


def _together(
    model: _Noise, surest: Interval, seen: _Seen, given: Labels, true: Labels, k: int
) -> _Noise:
    """Return what the model and the checked labels say together, or else what was counted."""
    assert seen.counted is not None
    believed = _in_common(surest, seen.counted) is not None
    T = _counted_transition(given, true, k, model.T if believed else None)
    directed = (believed and model.directed) or _is_directed(given, true, k)
    rate = None
    if believed and seen.follows_input in (None, "no"):
        rate = _in_common(model.rate, seen.counted)
    return _Noise(rate or seen.counted, T, directed)


def _in_common(one: Interval, other: Interval) -> Interval | None:
    """Return what two intervals say together, or None if they contradict each other.

    The value is their mean, by certainty: a value counts as the inverse square of its width.
    """
    low, high = max(one.low, other.low), min(one.high, other.high)
    if low > high:
        return None
    a, b = ((each.high - each.low) ** -2 for each in (one, other))
    value = (a * one.value + b * other.value) / (a + b)
    return Interval(min(max(value, low), high), low, high)


def _look_at(given: Labels, true: Labels, guess: Labels, agreement: Interval) -> _Seen:
    """Return what checked labels say: as given, as they should be, and as predicted."""
    wrong = given != true
    rate = counted(int(wrong.sum()), len(true))
    accuracy = counted(int((guess == true).sum()), len(true))
    if not wrong.any():
        return _Seen(rate, accuracy)
    n, as_given, right = (
        int(x.sum()) for x in (wrong, (guess == given)[wrong], (guess == true)[wrong])
    )
    follows = _follows_input(rate, agreement, as_given, right, n)
    return _Seen(rate, accuracy, counted(as_given, n), counted(right, n), follows)


def _follows_input(
    noise_rate: Interval, agreement: Interval, as_given: int, right: int, wrong: int
) -> Follows | None:
    """Return whether the model predicts more labels than are right, or wrong labels as given.

    Both beyond chance: the intervals do not overlap, or a sign test over the wrong labels that are
    predicted as given or as they should be says so. Where noise does not follow from the input, the
    model learns what is right, and the test says "no".
    """
    if agreement.low > 1 - noise_rate.low:
        return "yes"
    if wrong < FEW:
        return None
    sign = counted(as_given, as_given + right) if as_given + right else Interval(0.5, 0, 1)
    return "yes" if sign.low > 0.5 else "no" if sign.high < 0.5 else "partly"


def _counted_transition(
    given: Labels, true: Labels, k: int, prior: TransitionMatrix | None
) -> TransitionMatrix | None:
    with suppress(ValueError):  # T has no inverse: the labels say almost nothing about some classes
        return count_transition(given, true, k, prior=prior)
    return None


def _confusions(T: TransitionMatrix | None, names: list[Any]) -> tuple[Confusion, ...]:
    if T is None:
        return ()
    off = T.rows - np.diag(T.rows.diagonal())
    largest = np.argsort(-off, axis=None, kind="stable")[:3]
    pairs = (divmod(int(place), T.num_classes) for place in largest)
    return tuple((names[i], names[j], float(off[i, j])) for i, j in pairs if off[i, j] > 0.05)


def _is_directed(given: Labels, true: Labels, k: int) -> bool:
    """Return whether an error is surely foretold by another one of its class, `MOST` of the time.

    One error of each class does the foretelling, and is not counted.
    """
    wrong = given != true
    errors = np.bincount(true[wrong] * k + given[wrong], minlength=k * k).reshape(k, k)
    likeliest, classes = errors.max(axis=1), len(np.unique(true[wrong]))
    others = int(errors.sum()) - classes
    return others > 0 and counted(int(likeliest.sum()) - classes, others).low > MOST
