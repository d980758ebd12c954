"""What speaks against the input itself: the columns, the folds, or how labels were drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from sigua._estimators import FEWEST, Evidence, Integers
from sigua.intervals import Interval, counted

GAP = 0.15
"""Shares that differ by more than this, and beyond their intervals, are said to differ."""
NEARLY_ALL = 0.98
"""A model that surely predicts more of the labels than this, out of fold, is too good."""
HALF = 0.5
"""If more predictions than this are of probability 1, none is said to be more confident."""
SURELY = 0.999
"""The level of the interval beyond which checked labels are said not to be drawn at random."""


def about_the_model(evidence: Evidence, agreement: Interval, names: list[Any]) -> list[str]:
    """Return sentences about probabilities that do not seem to be what they should be."""
    if evidence.above_chance.low <= 0 and len(evidence.p) >= FEWEST:
        return [
            "labels are hardly more probable to the model than random ones: "
            "are rows and labels in one order? Or take a better model"
        ]
    counts = evidence.counts(evidence.read.predicted, evidence.labels)
    likeliest = counts.argmax(axis=1)
    if counts.max(axis=1).sum() / len(evidence.p) > agreement.high + GAP:
        gain = counts.max(axis=1) - counts.diagonal()
        i = int(gain.argmax())
        return [
            f"what it predicts as {names[i]} is mostly labelled {names[likeliest[i]]}: "
            "are the columns in the order of the classes?"
        ]
    if agreement.low > NEARLY_ALL:
        return ["it predicts nearly every label: was it trained on them? Take those out of fold"]
    if (evidence.read.sureness == 1).mean() > HALF:
        return [
            "most of its probabilities are 0 or 1, which do not say where it is most confident: "
            "take another model, such as one with more neighbours"
        ]
    return []


def nothing_known(evidence: Evidence) -> str:
    """Return why nothing can be known without checked labels, or nothing."""
    if len(evidence.p) < FEWEST:
        return f"fewer than {FEWEST} labels say nothing about their errors"
    return "the model knows hardly anything about the labels" * (evidence.above_chance.low <= 0)


def at_random(agrees: np.ndarray[Any, Any], places: Integers, agreement: Interval) -> bool:
    """Return whether the model predicts as many of the checked labels as given as of all."""
    if not len(places):
        return True
    drawn = counted(int(agrees[places].sum()), len(places), SURELY)
    return drawn.low <= agreement.high and agreement.low <= drawn.high
