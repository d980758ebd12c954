"""Look at the noise before choosing a method: how much there is, of what kind, and how certain."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from numpy.typing import ArrayLike

from sigua import _answers
from sigua._answers import AMBIGUOUS, Answer, Labels
from sigua._estimators import Evidence
from sigua._report import Diagnosis, confidence
from sigua.counting import Interval, count_transition, share_of
from sigua.estimate import usable_transition

__all__ = ["Diagnosis", "diagnose"]


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
    evidence = Evidence(probabilities, labels, classes)
    places, true = evidence.checked_labels(true_labels, checked)
    shown = evidence.names or list(range(evidence.shape[1]))
    given, guess = evidence.labels[places], evidence.predicted[places]
    wrong, random = given != true, _answers.are_at_random(evidence, given, guess)
    doubts = _answers.about_the_model(evidence, shown)
    if not random:
        predicts = f"{100 * (guess == given).mean():.0f} %"
        doubts += [f"it predicts {predicts} of the checked labels: they must be drawn at random"]
    for doubt in doubts:
        warnings.warn(doubt, stacklevel=2)
    heard = len(places) if random else 0  # those that were picked have no say
    expected = float(evidence.sureness.mean())
    overconfident = confidence(evidence.agreement, expected) == "overconfident"
    return Diagnosis(
        num_examples=len(evidence),
        classes=tuple(shown),
        num_checked=len(places),
        at_random=random,
        above_chance=evidence.above_chance,
        counted=share_of(wrong),
        surest=evidence.surest.rate,
        agreement=evidence.agreement,
        expected_agreement=expected,
        accuracy=share_of(guess == true),
        reproduced=share_of((guess == given)[wrong]),
        corrected=share_of((guess == true)[wrong]),
        doubts=tuple(doubts),
        **_conclude(evidence, overconfident, given[:heard], true[:heard], guess[:heard]),
    )


def _conclude(
    evidence: Evidence, overconfident: bool, given: Labels, true: Labels, guess: Labels
) -> dict[str, Any]:
    """Return the noise rate, by the model alone, too, T, and the answers, by their names.

    The model has no say in the rate where errors may follow from the input; if too few were wrong
    to tell, it has.
    """
    k, surest = evidence.shape[1], evidence.surest
    unknown = _answers.nothing_known(len(evidence), evidence.above_chance)
    T = None if unknown else usable_transition(evidence, "surest")
    follows = _answers.do_follow(evidence.agreement, given, true, guess)
    direction = _answers.is_mistaken(evidence, given, true)
    separated = not overconfident and direction.verdict == "no"
    by_model = _by_model(evidence, separated)
    noise_rate, found = by_model, share_of(given != true)
    if found is not None:
        believed = _in_common(surest.rate, found) is not None
        prior, T = T if believed else None, None
        with suppress(ValueError):  # no inverse: labels say almost nothing about some classes
            T = count_transition(given, true, k, prior=prior)
        fair = follows.verdict == "no" or follows.share is None
        noise_rate = (_in_common(by_model, found) if believed and fair else None) or found
    at_least = noise_rate.low
    if noise_rate != found and not overconfident:
        at_least = max(at_least, surest.low)
    overlap = _answers.do_overlap(noise_rate, evidence.agreement, at_least)
    if direction and overlap.verdict != "no" and not _answers.are_foretold(given, true, k):
        direction = Answer("cannot tell", direction.share)
    return {
        "noise_rate": noise_rate,
        "by_model": by_model,
        "T": T,
        "wrong": _answers.are_wrong(noise_rate),
        "follows_input": follows,
        "overlap": overlap,
        "one_for_another": direction,
    }


def _by_model(evidence: Evidence, separated: bool) -> Interval:
    """Return the noise rate, if the right label is the likeliest one given the input.

    Then no model predicts more labels, out of fold, than are right. Where classes are well
    separated, the most confident predictions are hardly ambiguous; as if they were as ambiguous as
    the others, what these lack in agreement is taken off the lower end.
    """
    surest, rejected = evidence.surest, 1 - evidence.agreement.value
    value = min(surest.rate.value, rejected)
    more = rejected - value
    low = max(surest.lowest - more, 0) if separated and more <= AMBIGUOUS else 0
    return Interval(value, min(low, value), 1 - evidence.agreement.low)


def _in_common(one: Interval, other: Interval) -> Interval | None:
    """Return what two intervals say together, or None if they contradict each other.

    The value is their mean, by certainty: a value counts as the inverse square of its width.
    """
    low, high = max(one.low, other.low), min(one.high, other.high)
    if low > high:
        return None
    a, b = (max(each.high - each.low, 1e-9) ** -2 for each in (one, other))
    value = (a * one.value + b * other.value) / (a + b)
    return Interval(min(max(value, low), high), low, high)
