"""The questions about the noise, and what can be answered: yes, no, cannot tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sigua._estimators import Evidence
from sigua.intervals import Interval, counted, share_of

Verdict = Literal["yes", "no", "cannot tell"]
Labels = NDArray[np.int64]

AMBIGUOUS = 0.1
"""Classes overlap if noise leaves more than this share of disagreement unexplained."""
HARDLY = 0.05
"""Below this noise rate no method that we measured is better than plain training, if the interval
ends below twice that, too."""
MOST = 0.5
"""One class is mistaken for another if more than this share of errors go to it."""
FEW = 10
"""With fewer wrong labels among the checked ones, nobody can tell what the errors follow from."""


@dataclass(frozen=True)
class Answer:
    """An answer to a question; true only if it is "yes".

    >>> bool(Answer("cannot tell"))
    False
    """

    verdict: Verdict
    share: Interval | None = None
    """What it rests on; None if nothing is known."""

    def __bool__(self) -> bool:
        return self.verdict == "yes"


def answer(share: Interval, limit: float) -> Answer:
    """Return whether a share surely lies above a limit, or surely below it.

    >>> answer(Interval(0.3, 0.2, 0.4), 0.1).verdict
    'yes'
    """
    verdict: Verdict = "yes" if share.low > limit else "no" if share.high < limit else "cannot tell"
    return Answer(verdict, share)


UNKNOWN = Answer("cannot tell")


class Answers(NamedTuple):
    """What `Diagnosis` has by the same names."""

    wrong: Answer
    follows_input: Answer
    overlap: Answer
    one_for_another: Answer


def are_wrong(noise_rate: Interval) -> Answer:
    """Return whether more than hardly any labels are wrong."""
    if noise_rate.value >= HARDLY and noise_rate.low > 0:
        return Answer("yes", noise_rate)
    few = noise_rate.value < HARDLY and noise_rate.high <= 2 * HARDLY
    return Answer("no" if few else "cannot tell", noise_rate)


def do_follow(agreement: Interval, given: Labels, true: Labels, guess: Labels) -> Answer:
    """Return whether the model predicts more labels than are right, or wrong labels as given.

    Both beyond chance: the intervals do not overlap, or a sign test over the wrong labels that are
    predicted as given or as they should be says so. Where noise does not follow from the input, the
    model learns what is right, and the test says "no".
    """
    wrong = given != true
    if not wrong.any():
        return UNKNOWN
    told = wrong & ((guess == given) | (guess == true))
    sign = share_of((guess == given)[told]) or Interval(0.5, 0, 1)
    if agreement.low > 1 - counted(int(wrong.sum()), len(wrong)).low:
        return Answer("yes", sign)
    return UNKNOWN if wrong.sum() < FEW else answer(sign, 0.5)


def do_overlap(noise_rate: Interval, agreement: Interval, at_least: float) -> Answer:
    """Return whether labels disagree with the model beyond the noise, which is `at_least` so much.

    Without checked labels that is never sure: hard examples may be wrong more often.
    """
    low, value, high = (
        max(0.0, 1 - predicted - noise)
        for predicted, noise in (
            (agreement.high, noise_rate.high),
            (agreement.value, noise_rate.value),
            (agreement.low, at_least),
        )
    )
    return answer(Interval(min(max(value, low), high), low, high), AMBIGUOUS)


def is_mistaken(evidence: Evidence, given: Labels, true: Labels) -> Answer:
    """Return whether errors go mostly to one class for each true class.

    By the checked labels; if these cannot tell, by the most confident predictions. What these say
    of errors may be true of classes that overlap.
    """
    k, top = evidence.num_classes, evidence.surest.top
    by_checked = are_foretold(given, true, k)
    if by_checked.verdict != "cannot tell":
        return by_checked
    return are_foretold(evidence.labels[top], evidence.read.predicted[top], k)


def are_foretold(given: Labels, true: Labels, k: int) -> Answer:
    """Return whether an error is foretold by another one of its class, `MOST` of the time.

    One error of each class does the foretelling, and is not counted.
    """
    wrong = given != true
    errors = np.bincount(true[wrong] * k + given[wrong], minlength=k * k).reshape(k, k)
    likeliest, classes = errors.max(axis=1), len(np.unique(true[wrong]))
    others = int(errors.sum()) - classes
    if others <= 0:
        return UNKNOWN
    return answer(counted(int(likeliest.sum()) - classes, others), MOST)
