"""Which method to take after a diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sigua.diagnosis import Diagnosis


class Advice(NamedTuple):
    """What to take, as Python where it is a method, and why."""

    take: str
    why: str


def advise(diagnosis: Diagnosis) -> Advice:
    """Return the advice for what is known."""
    return Advice("", "")
