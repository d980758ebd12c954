"""Where the labels that look wrong begin: at the valley before a second hill, if there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NOWHERE = float("inf"), float("nan")

BINS = 20
"""Over [0, 1]. Two neighbours are a window, 0.1 wide, whose middle is where one may cut."""
RISE = 3.0
"""Standard deviations by which the hill must rise above the valley, or chance may have made it."""
STEEP = 1.25
"""How many times as high it must be, too: of many examples, any flat tail rises a little."""
SURE = 0.7
"""The share of wrong labels below which nobody is named."""
DOUBT = 2
"""How many times the mean score of the others the share of suspects may be."""


def second_hill(scores: NDArray[np.float64]) -> tuple[float, float]:
    """Return where to cut, and the share of wrong labels above; (inf, NaN) for no second hill.

    Right labels make one hill, whose far side falls; wrong ones, if there are many and the model
    can tell them, make another beyond it. Only a cut from 0.5 up is looked for: below, the model
    itself finds the label likelier than any other, and a hill is one of hard classes.

    A model that is too sure of itself makes a hill of its own mistakes, clean data or not. One that
    is not, and finds another class likelier for a share q of the labels, is unsure of the rest: the
    mean of 1 - p(likeliest) is q at least, and that of the scores, (1 - margin) / 2, half of it.

    The share is an estimate: as if half of the labels at the cut were right, and fewer and fewer up
    to a score of 1, in a straight line.

    Args:
        scores: in [0, 1], shape (n,): (1 - margin) / 2.
    """
    counts, _ = np.histogram(scores, BINS, (0, 1))
    windows = (counts[:-1] + counts[1:])[BINS // 2 - 1 :]  # around 0.5, 0.55, ..., 0.95
    valley = np.minimum.accumulate(windows)
    rise = (windows - valley) / np.sqrt(np.maximum(windows + valley, 1))
    rise[windows < STEEP * valley] = 0
    top = int(rise.argmax())
    if rise[top] < RISE:
        return NOWHERE
    at = int(windows[:top].argmin())
    cut = 0.5 + at / BINS
    above = scores > cut
    right = windows[at] / 4 * (1 - cut) * BINS / 2  # a triangle
    share = float(1 - right / above.sum())
    unsure = scores[~above].mean() if not above.all() else 0.0
    return (cut, share) if share >= SURE and above.mean() <= DOUBT * unsure else NOWHERE


def known_classes(suspects: NDArray[np.bool_], labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whose label is of a class that the model knows well enough to speak against it.

    That is not a class of which a third is suspect, and three times as many as of all: a rare class
    that the model hardly ever predicts looks as if it was wrong.

    Args:
        suspects: bool, (n,).
        labels: numbers or words, (n,).
    """
    number: dict[Any, int] = {}
    index = np.array([number.setdefault(label, len(number)) for label in labels.tolist()])
    shares = np.bincount(index, suspects) / np.bincount(index)
    return np.asarray(((shares <= 1 / 3) | (shares <= 3 * suspects.mean()))[index])
