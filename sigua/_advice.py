"""Which method to take after a diagnosis; `examples/real` measures how good the advice is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sigua._method import Method
from sigua.methods import forward_correction, sigua_ag, standard

if TYPE_CHECKING:
    from sigua.diagnosis import Diagnosis

ENOUGH = 100
"""This many checked labels are enough to choose an epoch or a method, and to train on."""
HARDLY = 0.05
"""Below this noise rate no method that we measured is better than plain training."""
CHECK = "check 100 labels at random"


class Advice(NamedTuple):
    """The method to take for the labels as given, in words, and why."""

    method: Method
    take: str
    why: str


def advise(found: Diagnosis) -> Advice:
    """Return the advice; `ENOUGH` checked labels are also trained on, and choose the epoch."""
    with_checked = found.num_checked >= ENOUGH
    if found.agreement.low <= found.most_frequent < 1 and not with_checked:
        why = (
            "the model predicts no more labels than guessing the most frequent one would, so that "
            "nothing can be known; take a better model, or check the order of rows and columns"
        )
        return Advice(standard(), "sigua.standard(), plain training", why)
    if found.noise_rate.value < HARDLY:
        why = "hardly any label is wrong"
        if not with_checked:
            why += f", unless errors follow from the input: {CHECK}"
        return Advice(standard(), "sigua.standard(), plain training", why)
    if with_checked:
        return _with_checked(found)
    if not found.overlap or found.T is None:
        why = f"classes are apart, so labels that the model rejects are wrong; better, {CHECK}"
        return Advice(sigua_ag(), "sigua.sigua_ag()", why)
    why = f"classes overlap, and T drops nothing that is ambiguous; better, {CHECK}"
    return Advice(forward_correction(found.T), "sigua.forward_correction(diagnosis.T)", why)


def _with_checked(found: Diagnosis) -> Advice:
    recipe = "and half of the checked in each mini-batch"
    why = "the checked correct what the labels teach; the epoch is chosen by their other half"
    if found.follows_input == "yes":
        why = "a model of the labels learns their errors; choose the epoch by the other half"
    if found.T is None:
        return Advice(sigua_ag(), f"sigua.sigua_ag(), {recipe}", why)
    take = f"sigua.forward_correction(diagnosis.T), {recipe}"
    return Advice(forward_correction(found.T), take, why)
