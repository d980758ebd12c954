"""Look at the noise before choosing a method: how much there is, of what kind, and how certain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua._advice import CHECK, Advice, advise
from sigua._checked import checked_labels
from sigua._doubts import about_the_model, at_random
from sigua._estimators import Evidence
from sigua._names import probabilities_and_labels
from sigua.counting import count_transition
from sigua.estimate import are_apart, confident_rate, surest_transition
from sigua.intervals import Interval, counted
from sigua.transition import TransitionMatrix

Follows = Literal["yes", "partly", "no"]
Labels = NDArray[np.int64]
Confusion = tuple[Any, Any, float]
"""True class, observed class, and the entry of T for the two."""

AMBIGUOUS = 0.1
"""Classes are said to overlap if noise leaves more than this share of disagreement unexplained."""
MOST = 0.5
"""Errors are said to be directed if more than this share go to one class for each true class."""
FEW = 10
"""With fewer wrong labels among the checked ones, nobody can tell what the errors follow from."""


@dataclass(frozen=True)
class Diagnosis:
    """The result of `diagnose`; print it for the report. Shares are fractions in [0, 1]."""

    num_examples: int
    classes: tuple[Any, ...]
    """Names, or numbers, in the order of the columns and so of the rows and columns of T."""
    num_checked: int
    at_random: bool
    """Whether the model predicts as many of the checked labels, as given, as of all. If not, they
    were picked, and what they say holds for them alone."""
    above_chance: Interval
    """How much more probable labels are to the model than if they were drawn by their frequencies.
    If the interval reaches 0, the model may know nothing about them."""
    noise_rate: Interval
    """The share of wrong labels: what `by_model` and `counted` have in common, of the two that are
    known; `counted` alone if `surest` contradicts it, or errors follow from the input."""
    by_model: Interval
    """`surest`, extended to `confident` where the two disagree."""
    counted: Interval | None
    """The share of wrong labels among the checked; None if none was checked."""
    surest: Interval
    """The share of labels that the model rejects, among the most surely predicted examples."""
    confident: float
    """The noise rate by confident counting, which counts ambiguous examples as noise; NaN if its T
    has no inverse."""
    agreement: Interval
    """The share of the given labels that the model predicts, out of fold."""
    expected_agreement: float
    """The share that the model expects to predict: the mean of its largest probabilities."""
    T: TransitionMatrix | None
    """By the surest examples, or counted on the checked labels with that as the prior, unless the
    two noise rates contradict each other. None if it has no usable inverse."""
    confusions: tuple[Confusion, ...]
    """The largest entries of T off the diagonal, at most three, all above 0.05."""
    one_for_another: bool
    """Whether each class is mostly mistaken for one other class: by the surest examples, or surely
    so by what was counted."""
    accuracy: Interval | None
    """The share of checked examples whose true label the model predicts; None if there are none."""
    reproduced: Interval | None
    """The share of checked wrong labels that the model predicts as given; None if none is wrong."""
    corrected: Interval | None
    """The share of checked wrong labels for which it predicts the true label."""
    follows_input: Follows | None
    """Whether errors can be predicted from the input; None if too few wrong ones were checked."""
    doubts: tuple[str, ...]
    """What speaks against the input itself; usually nothing."""

    @property
    def num_classes(self) -> int:
        """The number of classes, k."""
        return len(self.classes)

    @property
    def ambiguity(self) -> float:
        """The share of labels that disagree with the model beyond the noise, by overlap."""
        return max(0.0, 1 - self.agreement.value - self.noise_rate.value)

    @property
    def overlap(self) -> bool:
        """Whether classes overlap, or the model is too weak to tell them apart."""
        beyond = self.agreement.high + self.noise_rate.high < 1
        return self.ambiguity > AMBIGUOUS and (beyond if self._counts else self.disagree)

    @property
    def disagree(self) -> bool:
        """Whether the surest examples and confident counting disagree about the noise rate."""
        return are_apart(self.surest, self.confident)

    @property
    def _counts(self) -> bool:
        """Whether checked labels have a say."""
        return self.num_checked > 0 and self.at_random

    @property
    def advice(self) -> Advice:
        """The method to take, and why."""
        return advise(self)

    def __str__(self) -> str:
        checked = f", {self.num_checked} of them checked" if self.num_checked else ""
        by_model = f"{self.surest} among the surest, {100 * self.confident:.0f} % confidently"
        expected = f"{100 * self.expected_agreement:.0f} %"
        lines = [
            f"{self.num_examples} labels of {self.num_classes} classes{checked}; out of fold:",
            f"  wrong labels          {self.noise_rate}, {self._source()}",
            f"  by the model          {by_model}",
        ]
        if self.counted is not None:
            lines.append(f"  of the checked        {self.counted}")
        lines += [f"  the model predicts    {self.agreement} of the labels, and expects {expected}"]
        if self.accuracy is not None:
            lines.append(f"                        {self.accuracy} of the true ones")
        lines += [
            f"errors follow from input?    {self._on_input()}",
            f"classes overlap?             {self._on_overlap()}",
            f"one class taken for another? {self._on_direction()}",
            f"take  {self.advice.take}",
            f"why   {self.advice.why}",
        ]
        return "\n".join(lines + [f"but   {doubt}" for doubt in self.doubts])

    def _source(self) -> str:
        if not self._counts:
            return "if none follows from the input"
        return "counted" if self.noise_rate == self.counted else "counted and by the model"

    def _on_input(self) -> str:
        if not self._counts:
            return f"unknown: {CHECK}"
        if self.reproduced is None:
            return "none was wrong"
        found = f"it predicts {self.reproduced} of them, the truth for {self.corrected}"
        return f"{self.follows_input or 'cannot tell'}: {found}"

    def _on_overlap(self) -> str:
        verdict = "yes" if self.overlap else "hardly"
        return f"{verdict}: {100 * self.ambiguity:.0f} % disagree with the model beyond the noise"

    def _on_direction(self) -> str:
        pairs = ", ".join(f"{i} for {j} ({100 * rate:.0f} %)" for i, j, rate in self.confusions)
        verdict = "yes" if self.one_for_another else "no"
        return f"{verdict}: mostly {pairs}" if pairs else f"{verdict}, no class by more than 5 %"


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
    n, k = p.shape
    places, true = checked_labels(probabilities, labels, true_labels, checked, names, p.shape)
    evidence = Evidence(p, y, names)
    predicted, sureness, _ = evidence.read
    agreement, (_, rate) = counted(int((predicted == y).sum()), n), evidence.surest
    expected, confident = float(sureness.mean()), confident_rate(evidence)
    apart = are_apart(rate, confident)
    by_model = Interval(rate.value, rate.low, max(rate.high, confident)) if apart else rate
    noise_rate, T = by_model, surest_transition(evidence)
    directed = T is not None and _share_directed(T.rows - np.diag(T.rows.diagonal())) > MOST
    of_checked: dict[str, Any] = dict.fromkeys(
        ("counted", "accuracy", "reproduced", "corrected", "follows_input")
    )
    shown = names or list(range(k))
    doubts = about_the_model(evidence, y, agreement, expected, shown)
    random = at_random(predicted == y, places, agreement)
    if len(places):
        of_checked = _look_at(y[places], true, predicted[places], agreement)
    if len(places) and random:
        share = of_checked["counted"]
        prior = T if _in_common(rate, share) else None
        T = _counted_transition(y[places], true, k, prior)
        directed = (prior is not None and directed) or _is_directed(y[places], true, k)
        believed = prior is not None and of_checked["follows_input"] in (None, "no")
        noise_rate = (_in_common(by_model, share) if believed else None) or share
    elif len(places):
        of_checked["follows_input"] = None
        drawn = 100 * (predicted == y)[places].mean()
        doubts.append(
            f"it predicts {drawn:.0f} % of the checked labels: they must be drawn at random"
        )
    return Diagnosis(
        num_examples=n,
        classes=tuple(shown),
        num_checked=len(places),
        at_random=random,
        above_chance=evidence.above_chance,
        noise_rate=noise_rate,
        by_model=by_model,
        surest=rate,
        confident=confident,
        agreement=agreement,
        expected_agreement=expected,
        T=T,
        confusions=_confusions(T, shown),
        one_for_another=directed and k > 2 and noise_rate.value > 0.02,
        doubts=tuple(doubts),
        **of_checked,
    )


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


def _look_at(given: Labels, true: Labels, guess: Labels, agreement: Interval) -> dict[str, Any]:
    """Return what checked labels say: as given, as they should be, and as predicted."""
    wrong = given != true
    rate = counted(int(wrong.sum()), len(true))
    reproduced = corrected = None
    if wrong.any():
        reproduced = counted(int((guess == given)[wrong].sum()), int(wrong.sum()))
        corrected = counted(int((guess == true)[wrong].sum()), int(wrong.sum()))
    return {
        "counted": rate,
        "accuracy": counted(int((guess == true).sum()), len(true)),
        "reproduced": reproduced,
        "corrected": corrected,
        "follows_input": _follows_input(rate, agreement, reproduced, corrected, int(wrong.sum())),
    }


def _follows_input(
    noise_rate: Interval,
    agreement: Interval,
    reproduced: Interval | None,
    corrected: Interval | None,
    wrong: int,
) -> Follows | None:
    """Return whether the model predicts more labels than are right, or wrong labels as given.

    Both beyond chance: the intervals do not overlap, or a sign test over the wrong labels that are
    predicted as given or as they should be says so. Where noise does not follow from the input, the
    model learns what is right, and the test says "no".
    """
    if agreement.low > 1 - noise_rate.low:
        return "yes"
    if reproduced is None or corrected is None or wrong < FEW:
        return None
    as_given, right = (round(share.value * wrong) for share in (reproduced, corrected))
    sign = counted(as_given, as_given + right) if as_given + right else Interval(0.5, 0, 1)
    return "yes" if sign.low > 0.5 else "no" if sign.high < 0.5 else "partly"


def _counted_transition(
    given: Labels, true: Labels, k: int, prior: TransitionMatrix | None
) -> TransitionMatrix | None:
    try:
        return count_transition(given, true, k, prior=prior)
    except ValueError:  # T has no inverse: the labels say almost nothing about some classes
        return None


def _confusions(T: TransitionMatrix | None, names: list[Any]) -> tuple[Confusion, ...]:
    if T is None:
        return ()
    off = T.rows - np.diag(T.rows.diagonal())
    largest = np.argsort(-off, axis=None, kind="stable")[:3]
    pairs = (divmod(int(place), T.num_classes) for place in largest)
    return tuple((names[i], names[j], float(off[i, j])) for i, j in pairs if off[i, j] > 0.05)


def _share_directed(errors: NDArray[np.float64]) -> float:
    """Return the share of errors, (k, k), that go to the likeliest class of their row."""
    total = float(errors.sum())
    return float(errors.max(axis=1).sum()) / total if total else 0.0


def _is_directed(given: Labels, true: Labels, k: int) -> bool:
    """Return whether an error is surely foretold by another one of its class, `MOST` of the time.

    One error of each class does the foretelling, and is not counted.
    """
    wrong = given != true
    errors = np.bincount(true[wrong] * k + given[wrong], minlength=k * k).reshape(k, k)
    likeliest, classes = errors.max(axis=1), len(np.unique(true[wrong]))
    others = int(errors.sum()) - classes
    return others > 0 and counted(int(likeliest.sum()) - classes, others).low > MOST
