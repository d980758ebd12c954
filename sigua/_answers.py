"""The questions about the noise, and what can be answered: yes, no, cannot tell.

Besides, what speaks against the input itself: the columns, the folds, or how labels were drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sigua._estimators import FEWEST, Evidence
from sigua.counting import Interval, count_pairs, counted, share_of

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
GAP = 0.15
"""Shares that differ by more than this, and beyond their intervals, are said to differ."""
NEARLY_ALL = 0.98
"""A model that surely predicts more of the labels than this, out of fold, is too good."""
HALF = 0.5
"""If more predictions than this are of probability 1, none is said to be more confident."""
SURELY = 0.999
"""The level of the interval beyond which checked labels are said not to be drawn at random."""


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
    k, top = evidence.shape[1], evidence.surest.top
    by_checked = are_foretold(given, true, k)
    if by_checked.verdict != "cannot tell":
        return by_checked
    return are_foretold(evidence.labels[top], evidence.predicted[top], k)


def are_foretold(given: Labels, true: Labels, k: int) -> Answer:
    """Return whether an error is foretold by another one of its class, `MOST` of the time.

    One error of each class does the foretelling, and is not counted.
    """
    wrong = given != true
    errors = count_pairs(true[wrong], given[wrong], k)
    likeliest, classes = errors.max(axis=1), len(np.unique(true[wrong]))
    others = int(errors.sum()) - classes
    if others <= 0:
        return UNKNOWN
    return answer(counted(int(likeliest.sum()) - classes, others), MOST)


def about_the_model(evidence: Evidence, names: list[Any]) -> list[str]:
    """Return sentences about probabilities that do not seem to be what they should be."""
    if evidence.above_chance.low <= 0 and len(evidence) >= FEWEST:
        return [
            "labels are hardly more probable to the model than random ones: "
            "are rows and labels in one order? Or take a better model"
        ]
    counts = count_pairs(evidence.predicted, evidence.labels, evidence.shape[1])
    likeliest = counts.argmax(axis=1)
    if counts.max(axis=1).sum() / len(evidence) > evidence.agreement.high + GAP:
        gain = counts.max(axis=1) - counts.diagonal()
        i = int(gain.argmax())
        return [
            f"what it predicts as {names[i]} is mostly labelled {names[likeliest[i]]}: "
            "are the columns in the order of the classes?"
        ]
    if evidence.agreement.low > NEARLY_ALL:
        return ["it predicts nearly every label: was it trained on them? Take those out of fold"]
    if (evidence.sureness == 1).mean() > HALF:
        return [
            "most of its probabilities are 0 or 1, which do not say where it is most confident: "
            "take another model, such as one with more neighbours"
        ]
    return []


def nothing_known(size: int, above_chance: Interval) -> str:
    """Return why nothing can be known of so many labels without checked ones, or nothing."""
    if size < FEWEST:
        return f"fewer than {FEWEST} labels say nothing about their errors"
    return "the model knows hardly anything about the labels" * (above_chance.low <= 0)


def are_at_random(evidence: Evidence, given: Labels, guess: Labels) -> bool:
    """Return whether the model predicts as many of the checked labels as given as of all."""
    if not len(given):
        return True
    drawn = counted(int((guess == given).sum()), len(given), SURELY)
    return drawn.low <= evidence.agreement.high and evidence.agreement.low <= drawn.high
