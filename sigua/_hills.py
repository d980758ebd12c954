"""Where the labels that look wrong begin: at the valley before a second hill, if there is one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BINS = 20
"""Over [0, 1]. Two neighbours are a window, 0.1 wide, whose middle is where one may cut."""
RISE = 3.0
"""Standard deviations by which the hill must rise above the valley, or chance may have made it."""
STEEP = 1.5
"""How many times as high it must be: of many examples, chance makes no hill, but a flat tail may
rise a little."""


def second_hill(scores: NDArray[np.float64]) -> tuple[float, float]:
    """Return where to cut, and the share of wrong labels above; (inf, NaN) for no second hill.

    Right labels make one hill, whose far side falls; wrong ones, if there are many and the model
    can tell them, make another beyond it. Only a cut from 0.5 up is looked for: below, the model
    itself finds the label likelier than another one, and a hill is one of hard classes.

    The share is an estimate on the safe side: as if half of the labels at the cut were right, and
    fewer and fewer up to a score of 1, in a straight line.

    Args:
        scores: in [0, 1], shape (n,): what speaks against each label.
    """
    counts, _ = np.histogram(scores, BINS, (0, 1))
    windows = (counts[:-1] + counts[1:])[BINS // 2 - 1 :]  # around 0.5, 0.55, ..., 0.95
    valley = np.minimum.accumulate(windows)
    rise = (windows - valley) / np.sqrt(np.maximum(windows + valley, 1))
    rise[windows < STEEP * valley] = 0
    top = int(rise.argmax())
    if rise[top] < RISE:
        return float("inf"), float("nan")
    at = int(windows[:top].argmin())
    cut = 0.5 + at / BINS
    above = int((scores > cut).sum())
    right = windows[at] / 4 * (1 - cut) * BINS / 2  # a triangle
    return cut, max(1 - float(right) / above, 0.0)
