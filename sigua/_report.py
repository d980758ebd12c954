"""What was found out about the noise, in words, and which method to take.

`examples/real` measures how good the advice is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sigua._estimators import FEWEST
from sigua._method import Method
from sigua.estimate import are_apart
from sigua.intervals import Interval
from sigua.methods import forward_correction, sigua_ag, standard
from sigua.transition import TransitionMatrix

Follows = Literal["yes", "partly", "no"]
Confusion = tuple[Any, Any, float]
"""True class, observed class, and the entry of T for the two."""

AMBIGUOUS = 0.1
"""Classes are said to overlap if noise leaves more than this share of disagreement unexplained."""
ENOUGH = 100
"""This many checked labels are enough to choose an epoch or a method, and to train on."""
HARDLY = 0.05
"""Below this noise rate no method that we measured is better than plain training, if the interval
ends below twice that, too."""
CHECK = "check 100 labels at random"


class Advice(NamedTuple):
    """The method to take for the labels as given, in words, and why."""

    method: Method
    take: str
    why: str


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
            *([f"  of the checked        {self.counted}"] if self.num_checked else []),
            f"  the model predicts    {self.agreement} of the labels, and expects {expected}",
            *(
                [f"                        {self.accuracy} of the true ones"]
                if self.accuracy
                else []
            ),
            f"errors follow from input?    {self._on_input()}",
            f"classes overlap?             {self._on_overlap()}",
            f"one class taken for another? {self._on_direction()}",
            f"take  {self.advice.take}",
            f"why   {self.advice.why}",
            *(f"but   {doubt}" for doubt in self.doubts),
        ]
        return "\n".join(lines)

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


def advise(found: Diagnosis) -> Advice:
    """Return the advice; `ENOUGH` checked labels are also trained on, and choose the epoch."""
    with_checked = found.at_random and found.num_checked >= ENOUGH
    plain = _why_plain(found, with_checked)
    if plain:
        return Advice(standard(), "sigua.standard(), plain training", plain)
    recipe = ", and half of the checked in each mini-batch" if with_checked else ""
    follows = found.follows_input in ("yes", "partly")
    directed = found.one_for_another and with_checked
    if found.T is None or not (follows or found.overlap or directed):
        epoch = "take the last epoch" if with_checked else f"better, {CHECK}"
        why = f"classes are apart, so what the model rejects is wrong; {epoch}"
        return Advice(sigua_ag(), f"sigua.sigua_ag(){recipe}", why)
    if follows:
        why = "a model of the labels learns their errors, and T corrects them"
    elif found.overlap:
        why = "classes overlap, and T drops nothing that is ambiguous"
    else:
        why = "one class is taken for another, and the checked say how often"
    epoch = "the other half chooses the epoch" if with_checked else f"better, {CHECK}"
    take = f"sigua.forward_correction(diagnosis.T){recipe}"
    return Advice(forward_correction(found.T), take, f"{why}; {epoch}")


def _why_plain(found: Diagnosis, with_checked: bool) -> str:
    """Return why plain training is advised, or nothing if it is not."""
    if not with_checked and found.num_examples < FEWEST:
        return f"fewer than {FEWEST} labels say nothing about their errors"
    if not with_checked and found.above_chance.low <= 0:
        return (
            "the labels are hardly more probable to the model than random ones, so that nothing "
            "can be known; take a better model, or check the order of rows and columns"
        )
    if found.noise_rate.value >= HARDLY or found.noise_rate.high > 2 * HARDLY:
        return ""
    if with_checked and found.counted is not None and found.counted.high <= 2 * HARDLY:
        return "hardly any label is wrong"
    return f"hardly any label is wrong, unless errors follow from the input: {CHECK}"
