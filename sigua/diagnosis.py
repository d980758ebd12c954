"""Look at the noise before choosing a method: how much there is, of what kind, and how certain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua._advice import Advice, advise
from sigua._checked import checked_labels
from sigua._estimators import Evidence
from sigua._names import probabilities_and_labels
from sigua.counting import count_transition
from sigua.estimate import are_apart, confident_rate, surest_transition
from sigua.intervals import Interval, counted
from sigua.transition import TransitionMatrix

Follows = Literal["yes", "partly", "no"]
Confusion = tuple[int, int, float]
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
    num_classes: int
    num_checked: int
    above_chance: Interval
    """How much more probable the given labels are to the model than labels drawn at random by their
    frequencies. If the interval reaches 0, the model may know nothing about them."""
    noise_rate: Interval
    """The share of wrong labels: counted if some labels were checked, else `surest`, whose interval
    is extended to `confident` where the two disagree."""
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
    """Counted on the checked labels, with T by the surest examples as the prior, unless the two
    noise rates contradict each other. Without checked labels, T by the surest examples. None if it
    has no usable inverse."""
    confusions: tuple[Confusion, ...]
    """The largest entries of T off the diagonal, at most three, all above 0.05."""
    directed: float
    """The share of errors that go to the likeliest wrong class of their true class."""
    accuracy: Interval | None
    """The share of checked examples whose true label the model predicts; None if none was
    checked."""
    reproduced: Interval | None
    """The share of checked wrong labels that the model predicts as given, though it never saw them;
    None if none was wrong."""
    corrected: Interval | None
    """The share of checked wrong labels for which it predicts the true label."""
    follows_input: Follows | None
    """Whether errors can be predicted from the input: "yes", "partly", "no", or None if too few
    wrong labels were checked to say."""

    @property
    def ambiguity(self) -> float:
        """The share of labels that disagree with the model beyond the noise, by overlap."""
        return max(0.0, 1 - self.agreement.value - self.noise_rate.value)

    @property
    def overlap(self) -> bool:
        """Whether classes overlap, or the model is too weak to tell them apart."""
        return self.ambiguity > AMBIGUOUS and (self.disagree or self.num_checked > 0)

    @property
    def one_for_another(self) -> bool:
        """Whether each class is mostly mistaken for one other class."""
        return self.directed > MOST and self.num_classes > 2 and self.noise_rate.value > 0.02

    @property
    def disagree(self) -> bool:
        """Whether the surest examples and confident counting disagree about the noise rate."""
        return are_apart(self.surest, self.confident)

    @property
    def advice(self) -> Advice:
        """The method to take, and why."""
        return advise(self)

    def __str__(self) -> str:
        checked = f", {self.num_checked} of them checked" if self.num_checked else ""
        by_model = f"{self.surest} among the surest, {100 * self.confident:.0f} % confidently"
        found = "counted" if self.num_checked else "if none follows from the input"
        expected = f"{100 * self.expected_agreement:.0f} %"
        lines = [
            f"{self.num_examples} labels of {self.num_classes} classes{checked}; out of fold:",
            f"  wrong labels          {self.noise_rate}, {found}",
            f"  by the model          {by_model}",
            f"  the model predicts    {self.agreement} of the labels, and expects {expected}",
        ]
        if self.accuracy is not None:
            lines.append(f"                        {self.accuracy} of the true ones")
        lines += [
            f"errors follow from input?    {self._on_input()}",
            f"classes overlap?             {self._on_overlap()}",
            f"one class taken for another? {self._on_direction()}",
            f"take  {self.advice.take}",
            f"why   {self.advice.why}",
        ]
        return "\n".join(lines)

    def _on_input(self) -> str:
        if self.reproduced is None or self.corrected is None:
            return "none was wrong" if self.num_checked else "unknown: check 100 labels"
        return (
            f"{self.follows_input or 'cannot tell'}: it predicts "
            f"{self.reproduced} of them, the truth for {self.corrected}"
        )

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
            trained on the example's own label (`sklearn.model_selection.cross_val_predict`). They
            are read in blocks, as by `estimate_transition`.
        labels: as given, integers in [0, k), shape (n,).
        true_labels: as they should be, integers in [0, k), an entry for each example that was
            checked; n of them if `checked` is not given.
        checked: which examples were checked, drawn at random: their indices, in the order of
            `true_labels`, or a mask, bool, shape (n,).
        classes: the names of the columns, as for `estimate_transition`; labels are then names.

    Raises:
        ValueError: an argument of another shape, dtype or range, or `checked` without
            `true_labels`.

    >>> p = [[0.9, 0.1]] * 60 + [[0.1, 0.9]] * 60
    >>> y = [0] * 50 + [1] * 70
    >>> diagnosis = diagnose(p, y, true_labels=[0] * 60 + [1] * 60)
    >>> print(diagnosis.noise_rate)
    8 % (4 to 15)
    """
    p, y = probabilities_and_labels(probabilities, labels, classes)
    k = p.shape[1]
    places, true = checked_labels(probabilities, labels, true_labels, checked, classes, p.shape)
    evidence = Evidence(p, y)
    predicted, sureness, _ = evidence.read
    agreement = counted(int((predicted == y).sum()), len(y))
    _, rate = evidence.surest
    confident = confident_rate(evidence)
    T = surest_transition(evidence)
    noise_rate = rate
    if are_apart(rate, confident):
        noise_rate = Interval(rate.value, rate.low, max(rate.high, confident))
    accuracy = reproduced = corrected = follows = None
    if len(places):
        given, guess = y[places], predicted[places]
        wrong = given != true
        noise_rate = counted(int(wrong.sum()), len(true))
        accuracy = counted(int((guess == true).sum()), len(true))
        believed = rate.low <= noise_rate.high and noise_rate.low <= rate.high
        T = _counted_transition(given, true, k, T if believed else None)
        if wrong.any():
            reproduced = counted(int((guess == given)[wrong].sum()), int(wrong.sum()))
            corrected = counted(int((guess == true)[wrong].sum()), int(wrong.sum()))
        follows = _follows_input(noise_rate, agreement, reproduced, corrected, int(wrong.sum()))
    return Diagnosis(
        num_examples=len(y),
        num_classes=k,
        num_checked=len(places),
        above_chance=evidence.above_chance,
        noise_rate=noise_rate,
        surest=rate,
        confident=confident,
        agreement=agreement,
        expected_agreement=float(sureness.mean()),
        T=T,
        confusions=_confusions(T),
        directed=_directed(T),
        accuracy=accuracy,
        reproduced=reproduced,
        corrected=corrected,
        follows_input=follows,
    )


def _follows_input(
    noise_rate: Interval,
    agreement: Interval,
    reproduced: Interval | None,
    corrected: Interval | None,
    wrong: int,
) -> Follows | None:
    """Return whether the model predicts more labels than are right, or wrong labels as given.

    Both must be beyond chance. For the first, the intervals do not overlap. For the second, a sign
    test is made over the wrong labels that the model predicts as given or as they should be. Where
    noise does not follow from the input, the model learns what is right, and the test says "no".
    """
    if agreement.low > 1 - noise_rate.low:
        return "yes"
    if reproduced is None or corrected is None or wrong < FEW:
        return None
    as_given, right = (round(share.value * wrong) for share in (reproduced, corrected))
    sign = counted(as_given, as_given + right) if as_given + right else Interval(0.5, 0, 1)
    return "yes" if sign.low > 0.5 else "no" if sign.high < 0.5 else "partly"


def _counted_transition(
    given: NDArray[np.int64], true: NDArray[np.int64], k: int, prior: TransitionMatrix | None
) -> TransitionMatrix | None:
    try:
        return count_transition(given, true, k, prior=prior)
    except ValueError:  # T has no inverse: the labels say almost nothing about some classes
        return None


def _confusions(T: TransitionMatrix | None) -> tuple[Confusion, ...]:
    if T is None:
        return ()
    off = T.rows - np.diag(T.rows.diagonal())
    largest = np.argsort(-off, axis=None, kind="stable")[:3]
    pairs = (divmod(int(place), T.num_classes) for place in largest)
    return tuple((i, j, float(off[i, j])) for i, j in pairs if off[i, j] > 0.05)


def _directed(T: TransitionMatrix | None) -> float:
    if T is None:
        return float("nan")
    off = T.rows - np.diag(T.rows.diagonal())
    total = float(off.sum())
    return float(off.max(axis=1).sum() / total) if total else 0.0
