"""Which method to train, who chooses among several, and why.

`examples/real` measures how good the advice is.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from sigua._answers import Answers
from sigua._method import Method
from sigua.batches import enough
from sigua.choice import FEWEST
from sigua.choice import candidates as of_nothing
from sigua.methods import forward_correction, sigua_ag, standard
from sigua.transition import TransitionMatrix


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


def advise(
    answers: Answers, T: TransitionMatrix | None, num_labels: int, num_checked: int, k: int
) -> Advice:
    """Return the advice: a single method only where the answers leave no doubt."""
    with_checked = num_checked >= enough(k)
    if answers.wrong.verdict == "no":
        unless = f", unless errors follow from the input: check {enough(k)} labels at random"
        return advise_plain(f"hardly any label is wrong{'' if with_checked else unless}")
    counted = T if num_checked else None  # an estimate of T alone can lose to plain training
    method, others, why = _methods(answers, counted, with_checked, k)
    candidates = (standard(), *others) if others else (method,)
    by = _chosen_by(answers, num_labels, num_checked)
    with_checked &= isinstance(candidates[-1], forward_correction)
    return Advice(method, candidates, by, with_checked, _in_words(candidates, k), why)


def _chosen_by(answers: Answers, num_labels: int, num_checked: int) -> Literal["given", "checked"]:
    """Return who chooses: the checked, unless they are few, or labels as given are fair and many.

    Given labels are fair to all models where errors neither follow from the input nor go to one
    class. A share of wrong ones hides differences: m labels tell about as much as
    m (1 - noise rate)^2 checked ones. So a tenth of them is compared with the half of the checked
    that is not trained on.
    """
    fair = answers.follows_input.verdict == "no" and not answers.one_for_another
    rate = 0.0 if answers.wrong.share is None else answers.wrong.share.value
    many = num_labels / 10 * (1 - rate) ** 2 > num_checked / 2
    few = num_checked < FEWEST and not answers.follows_input
    return "given" if few or (fair and many) else "checked"


def advise_plain(why: str) -> Advice:
    """Return the advice where no method is better than plain training, or nothing is known."""
    take = "sigua.standard(), plain training"
    return Advice(standard(), (standard(),), "given", False, take, why)


def _methods(
    answers: Answers, T: TransitionMatrix | None, with_checked: bool, k: int
) -> tuple[Method, tuple[Method, ...], str]:
    """Return the method, those to compare with plain training, if any, and why."""
    corrected = () if T is None else (forward_correction(T),)
    if corrected and answers.follows_input:
        why = "a model of the labels learns their errors, and T corrects them"
        return corrected[0], corrected, why
    tested = answers.follows_input.verdict == "no" or answers.follows_input.share is None
    separated = answers.overlap.verdict == answers.one_for_another.verdict == "no"
    if answers.wrong and separated and tested:
        why = "classes are well separated, so what the model rejects is wrong; take the last epoch"
        return sigua_ag(), (), why
    if corrected and with_checked and answers.overlap:
        why = "classes overlap, and T drops nothing that is ambiguous"
        return corrected[0], corrected, why
    others = *of_nothing(num_classes=k)[1:], *corrected
    if corrected and with_checked and answers.one_for_another:
        why = "one class is mistaken for another, and the checked say how often"
        return corrected[0], others, why
    return standard(), others, ""


def _in_words(candidates: tuple[Method, ...], k: int) -> str:
    """Return what to train as it is written in Python, T by its name."""
    if len(candidates) == 1:
        return "sigua.sigua_ag()" if candidates == (sigua_ag(),) else f"sigua.{candidates[0]}"
    whole = of_nothing() == of_nothing(num_classes=k)
    first = "sigua.candidates()" if whole else f"sigua.candidates(num_classes={k})"
    first = first if sigua_ag() in candidates else "sigua.standard()"
    corrected = isinstance(candidates[-1], forward_correction)
    return f"each of {first}{' and sigua.forward_correction(diagnosis.T)' * corrected}"
