"""Which method to take after a diagnosis; `examples/real` measures how good the advice is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sigua._estimators import FEWEST
from sigua._method import Method
from sigua.methods import forward_correction, sigua_ag, standard

if TYPE_CHECKING:
    from sigua.diagnosis import Diagnosis

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
