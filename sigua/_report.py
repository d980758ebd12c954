"""What was found out about the noise, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sigua._advice import Advice
from sigua._answers import Answer
from sigua.batches import enough
from sigua.intervals import Interval
from sigua.transition import TransitionMatrix

Confusion = tuple[Any, Any, float]
"""True class, observed class, and the entry of T for the two."""

GAP = 0.05
"""A model that expects to predict so much more or less than the interval says is named."""


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
    known; `counted` alone if they have nothing in common or errors may follow from the input."""
    by_model: Interval
    """Without checked labels. If the right label is the likeliest one given the input, no model
    predicts more labels, out of fold, than are right: that is the upper end. The value is `surest`.
    The lower end is 0 where classes may overlap or the model is overconfident."""
    counted: Interval | None
    """The share of wrong labels among the checked; None if none was checked."""
    surest: Interval
    """The share of labels that the model rejects, among its most confident predictions."""
    agreement: Interval
    """The share of the given labels that the model predicts, out of fold."""
    expected_agreement: float
    """The share that the model expects to predict: the mean of its largest probabilities."""
    T: TransitionMatrix | None
    """By the most confident predictions, or counted on the checked labels with that as the prior,
    unless the two noise rates contradict each other. None if it has no usable inverse, or nothing
    is known."""
    confusions: tuple[Confusion, ...]
    """The largest entries of T off the diagonal, at most three, all above 0.05."""
    accuracy: Interval | None
    """The share of checked examples whose true label the model predicts; None if there are none."""
    reproduced: Interval | None
    """The share of checked wrong labels that the model predicts as given; None if none is wrong."""
    corrected: Interval | None
    """The share of checked wrong labels for which it predicts the true label."""
    wrong: Answer
    """Whether so many labels are wrong that a method may be better than plain training."""
    follows_input: Answer
    """Whether errors can be predicted from the input. The share is that of wrong labels predicted
    as given, among those predicted as given or as they should be."""
    overlap: Answer
    """Whether classes overlap, or the model is too weak to tell them apart. The share is that of
    labels that disagree with the model beyond the noise."""
    one_for_another: Answer
    """Whether each class is mostly mistaken for one other class. The share is that of errors that
    another one of their class foretells."""
    advice: Advice
    """The method to take, and why."""
    doubts: tuple[str, ...]
    """What speaks against the input itself; usually nothing."""

    @property
    def num_classes(self) -> int:
        """The number of classes, k."""
        return len(self.classes)

    @property
    def _counts(self) -> bool:
        """Whether checked labels have a say."""
        return self.num_checked > 0 and self.at_random

    def __str__(self) -> str:
        checked = f", {self.num_checked} of them checked" if self.num_checked else ""
        expected = f"{100 * self.expected_agreement:.0f} %"
        named = confidence(self.agreement, self.expected_agreement)
        given = self.advice.chosen_by == "given"
        other = "other " if self.advice.with_checked else ""
        chosen = "held-out labels as given: " if given else f"the {other}checked labels: "
        flag = "" if given else ", checked=True"
        with_half = "with  half of the checked labels, as half of each mini-batch, beside T"
        by = f"by    {chosen}sigua.choose(predictions, labels{flag}) keeps plain if in doubt"
        lines = [
            f"{self.num_examples} labels of {self.num_classes} classes{checked}; out of fold:",
            f"  the model predicts    {self.agreement} of the labels, and expects {expected}"
            + f": {named}" * bool(named),
            *([f"                        {self.accuracy} of the true ones"] * bool(self.accuracy)),
            f"  it rejects            {self.surest} where it is most confident",
            f"labels wrong?                {self._on_rate()}",
            f"errors follow from input?    {self._on_input()}",
            f"classes overlap?             {self._on_overlap()}",
            f"one class taken for another? {self._on_direction()}",
            f"take  {self.advice.take}",
            *([with_half] * self.advice.with_checked),
            *([by] * (len(self.advice.candidates) > 1)),
            *([f"why   {self.advice.why}"] * bool(self.advice.why)),
            *(f"but   {doubt}" for doubt in self.doubts),
        ]
        return "\n".join(lines)

    def _on_rate(self) -> str:
        found = f"{self.wrong.verdict}: {self.noise_rate}"
        if self.noise_rate == self.counted:
            return f"{found}, counted"
        found += ", counted and by the model" * self._counts
        tested = self.follows_input.verdict == "no"
        return found if tested else f"{found}, unless errors follow from the input"

    def _on_input(self) -> str:
        if not self._counts:
            check = f"check {enough(self.num_classes)} labels at random"
            return f"{self.follows_input.verdict}: {check}"
        if self.reproduced is None:
            return f"{self.follows_input.verdict}: none of the checked is wrong"
        found = f"it predicts {self.reproduced} of them, the truth for {self.corrected}"
        return f"{self.follows_input.verdict}: {found}"

    def _on_overlap(self) -> str:
        return f"{self.overlap.verdict}: {self.overlap.share} disagree beyond the noise"

    def _on_direction(self) -> str:
        pairs = ", ".join(f"{i} for {j} ({100 * rate:.0f} %)" for i, j, rate in self.confusions)
        found = f"mostly {pairs}" if pairs else "no class by more than 5 %"
        return f"{self.one_for_another.verdict}: {found}"


def confidence(agreement: Interval, expected: float) -> str:
    """Return the word for a model that expects far more or less than it predicts, or nothing."""
    if expected > agreement.high + GAP:
        return "overconfident"
    return "underconfident" if expected < agreement.low - GAP else ""
