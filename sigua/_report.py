"""What was found out about the noise, which method to train, and why, in words.

`examples/real` measures how good the advice is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from sigua import choice
from sigua._answers import Answer, nothing_known
from sigua._method import Method
from sigua.batches import enough
from sigua.counting import Interval
from sigua.methods import forward_correction, sigua_ag, standard
from sigua.transition import TransitionMatrix

Confusion = tuple[Any, Any, float]
"""True class, observed class, and the entry of T for the two."""

GAP = 0.05
"""A model that expects to predict so much more or less than the interval says is named."""


class Advice(NamedTuple):
    """What to train on the labels as given, and who chooses."""

    method: Method
    """The one to train, if only one is."""
    candidates: tuple[Method, ...]
    """Those to train and compare, plain training first: `sigua.choose` says which to keep. Only
    `method`, if there is no doubt."""
    chosen_by: Literal["given", "checked"]
    """Which held-out labels choose the epoch and the method: as given, or the checked ones."""
    with_checked: bool
    """Whether to train on half of the checked labels, too, as half of each mini-batch, beside
    forward correction: plain training and agreement are as good without them."""
    take: str
    why: str
    """Empty if nothing is sure."""


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
    doubts: tuple[str, ...]
    """What speaks against the input itself; usually nothing."""

    @property
    def num_classes(self) -> int:
        """The number of classes, k."""
        return len(self.classes)

    @property
    def _heard(self) -> int:
        """How many checked labels have a say: all of them, or none if they were picked."""
        return self.num_checked if self.at_random else 0

    @cached_property
    def confusions(self) -> tuple[Confusion, ...]:
        """The largest entries of T off the diagonal, at most three, all above 0.05."""
        if self.T is None:
            return ()
        off = self.T.rows - np.diag(self.T.rows.diagonal())
        largest = np.argsort(-off, axis=None, kind="stable")[:3]
        pairs = (divmod(int(place), self.num_classes) for place in largest)
        names = self.classes
        return tuple((names[i], names[j], float(off[i, j])) for i, j in pairs if off[i, j] > 0.05)

    @cached_property
    def advice(self) -> Advice:
        """The method to take, and why; a single one only where the answers leave no doubt."""
        k, hopeless = self.num_classes, nothing_known(self.num_examples, self.above_chance)
        if hopeless and not self._heard:
            return _plain(hopeless)
        with_checked = self._heard >= enough(k)
        if self.wrong.verdict == "no":
            unless = f", unless errors follow from the input: check {enough(k)} labels at random"
            return _plain(f"hardly any label is wrong{'' if with_checked else unless}")
        method, others, why = _methods(self, with_checked)
        candidates = (standard(), *others) if others else (method,)
        with_checked &= isinstance(candidates[-1], forward_correction)
        take = _in_words(candidates, k)
        return Advice(method, candidates, _chosen_by(self), with_checked, take, why)

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
            f"labels wrong?                {self.wrong.verdict}: {self._on_rate()}",
            f"errors follow from input?    {self.follows_input.verdict}: {self._on_input()}",
            f"classes overlap?             {self.overlap.verdict}: "
            f"{self.overlap.share} disagree beyond the noise",
            f"one class taken for another? {self.one_for_another.verdict}: {self._on_direction()}",
            f"take  {self.advice.take}",
            *([with_half] * self.advice.with_checked),
            *([by] * (len(self.advice.candidates) > 1)),
            *([f"why   {self.advice.why}"] * bool(self.advice.why)),
            *(f"but   {doubt}" for doubt in self.doubts),
        ]
        return "\n".join(lines)

    def _on_rate(self) -> str:
        if self.noise_rate == self.counted:
            return f"{self.noise_rate}, counted"
        found = f"{self.noise_rate}{', counted and by the model' * bool(self._heard)}"
        tested = self.follows_input.verdict == "no"
        return found if tested else f"{found}, unless errors follow from the input"

    def _on_input(self) -> str:
        if not self._heard:
            return f"check {enough(self.num_classes)} labels at random"
        if self.reproduced is None:
            return "none of the checked is wrong"
        return f"it predicts {self.reproduced} of them, the truth for {self.corrected}"

    def _on_direction(self) -> str:
        pairs = ", ".join(f"{i} for {j} ({100 * rate:.0f} %)" for i, j, rate in self.confusions)
        return f"mostly {pairs}" if pairs else "no class by more than 5 %"


def _plain(why: str) -> Advice:
    """Return the advice where no method is better than plain training, or nothing is known."""
    take = "sigua.standard(), plain training"
    return Advice(standard(), (standard(),), "given", False, take, why)


def _chosen_by(found: Diagnosis) -> Literal["given", "checked"]:
    """Return who chooses: the checked, unless they are few, or labels as given are fair and many.

    Given labels are fair to all models where errors neither follow from the input nor go to one
    class. A share of wrong ones hides differences: m labels tell about as much as
    m (1 - noise rate)^2 checked ones. So a tenth of them is compared with the half of the checked
    that is not trained on.
    """
    fair = found.follows_input.verdict == "no" and not found.one_for_another
    many = found.num_examples / 10 * (1 - found.noise_rate.value) ** 2 > found._heard / 2
    few = found._heard < choice.FEWEST and not found.follows_input
    return "given" if few or (fair and many) else "checked"


def _methods(found: Diagnosis, with_checked: bool) -> tuple[Method, tuple[Method, ...], str]:
    """Return the method, those to compare with plain training, if any, and why."""
    T = found.T if found._heard else None  # an estimate of T alone can lose to plain training
    corrected = () if T is None else (forward_correction(T),)
    if corrected and found.follows_input:
        why = "a model of the labels learns their errors, and T corrects them"
        return corrected[0], corrected, why
    tested = found.follows_input.verdict == "no" or found.follows_input.share is None
    separated = found.overlap.verdict == found.one_for_another.verdict == "no"
    if found.wrong and separated and tested:
        why = "classes are well separated, so what the model rejects is wrong; take the last epoch"
        return sigua_ag(), (), why
    if corrected and with_checked and found.overlap:
        why = "classes overlap, and T drops nothing that is ambiguous"
        return corrected[0], corrected, why
    others = *choice.candidates(num_classes=found.num_classes)[1:], *corrected
    if corrected and with_checked and found.one_for_another:
        why = "one class is mistaken for another, and the checked say how often"
        return corrected[0], others, why
    return standard(), others, ""


def _in_words(candidates: tuple[Method, ...], k: int) -> str:
    """Return what to train as it is written in Python, T by its name."""
    if len(candidates) == 1:
        return "sigua.sigua_ag()" if candidates == (sigua_ag(),) else f"sigua.{candidates[0]}"
    whole = choice.candidates() == choice.candidates(num_classes=k)
    first = "sigua.candidates()" if whole else f"sigua.candidates(num_classes={k})"
    first = first if sigua_ag() in candidates else "sigua.standard()"
    corrected = isinstance(candidates[-1], forward_correction)
    return f"each of {first}{' and sigua.forward_correction(diagnosis.T)' * corrected}"


def confidence(agreement: Interval, expected: float) -> str:
    """Return the word for a model that expects far more or less than it predicts, or nothing."""
    if expected > agreement.high + GAP:
        return "overconfident"
    return "underconfident" if expected < agreement.low - GAP else ""
