"""Where labels begin to look wrong: in the valley before a second hill, if there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigua.counting import NORMAL

NOWHERE = float("inf"), float("nan")

BINS = 20
"""Of the histogram over [0, 1]. Two neighbours make a window, 0.1 wide; a cut is at its middle."""
RISE = 3.0
"""How many standard deviations the hill must rise above the valley, so as not to be chance."""
STEEP = 1.25
"""How many times as high as the valley it must be, too: with many examples any tail rises a bit."""
SURE = 0.7
"""The share of wrong labels among suspects, below which no example is named."""
DOUBT = 2
"""The share of suspects may be at most this many times the mean score of the others, or what their
own lacks to 1."""
MIRROR = 1.05
"""How many times as far from 0 the scores of accepted labels may be as those of suspects from 1,
apart from chance."""


def second_hill(scores: NDArray[np.float64]) -> tuple[float, float]:
    """Return where to cut, and the share of wrong labels above; (inf, NaN) for no second hill.

    Right labels make one hill, whose far side falls. Wrong labels make another beyond it, if there
    are many and the model can tell them. A cut is looked for from 0.5 up only: below, the model
    itself finds the label likelier than any other, and a hill is that of hard classes.

    A model that is too sure of itself makes a hill of its own mistakes, even on clean data. A model
    that is not too sure, and finds another class likelier for a share q of the labels, is unsure
    of the rest, too: the mean of 1 - p(likeliest) is at least q, and the mean of the scores,
    (1 - margin) / 2, at least q / 2.

    A model that cannot fit a part of clean data rejects that part, and makes a hill, too. But a
    label that was flipped has its margin turned round: it is rejected as surely as its right label
    would have been accepted. A hill that is nearer to 1 than the first, beyond the mirrored cut, is
    to 0 is not of such labels.

    The share is an estimate: it assumes that half of the labels at the cut are right, and that this
    falls to none at a score of 1, in a straight line.

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
    unsure = min(scores[~above].mean(), 1 - scores[above].mean()) if not above.all() else 0.0
    told = share >= SURE and above.mean() <= DOUBT * unsure
    return (cut, share) if told and _is_mirrored(scores, cut) else NOWHERE


def _is_mirrored(scores: NDArray[np.float64], cut: float) -> bool:
    """Return whether labels above the cut are rejected no more surely than others are accepted."""
    accepted, rejected = scores[scores < 1 - cut], 1 - scores[scores > cut]
    if len(accepted) < len(rejected):  # nor are most labels wrong
        return False
    error = np.sqrt(accepted.var() / len(accepted) + rejected.var() / len(rejected))
    return bool(accepted.mean() - MIRROR * rejected.mean() <= NORMAL * error)


def known_classes(suspects: NDArray[np.bool_], labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which labels are of a class that the model knows well enough to reject labels of.

    It does not know a class of which more than a third is suspect, and more than three times as
    large a share as of all labels: a rare class that is hardly ever predicted looks wrong.

    Args:
        suspects: bool, (n,).
        labels: numbers or words, (n,).
    """
    _, index = np.unique(labels, return_inverse=True)
    shares = np.bincount(index, suspects) / np.bincount(index)
    return np.asarray(((shares <= 1 / 3) | (shares <= 3 * suspects.mean()))[index])
