"""Two normal components, right labels and wrong ones, fitted to a score against each label."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

STEPS = 500
FLOOR = 1e-6  # of a variance: a component of equal losses must not become infinitely narrow


def share_of_larger(values: Floats) -> float:
    """Return the weight, in [0, 1], of the component with the larger values; 0 if all are equal.

    By expectation-maximisation, which starts from the best threshold.

    Args:
        values: in [0, 1], shape (n,), such as 1 - p(label), not losses, which have a long tail and
            may be +inf.
    """
    if values.max() - values.min() < FLOOR:
        return 0.0
    larger = (values > best_threshold(values)).astype(np.float64)
    for _ in range(STEPS):
        before, larger = larger, _responsibility(values, larger)
        if np.abs(larger - before).max() < 1e-6:
            break
    return float(larger.mean())


def best_threshold(values: Floats) -> float:
    """Return the cut for which the variance between the two parts is largest (Otsu 1979).

    The upper part is the values larger than the cut; it is empty if all values are equal.
    """
    ordered = np.sort(values)
    if ordered[-1] - ordered[0] < FLOOR:
        return float(ordered[-1])
    below = np.arange(1, len(ordered))
    above = len(ordered) - below
    sums = ordered.cumsum()
    gap = sums[:-1] / below - (sums[-1] - sums[:-1]) / above
    return float(ordered[(below * above * gap**2).argmax()])


def _responsibility(values: Floats, larger: Floats) -> Floats:
    """Return p(larger component | value), after fitting both to the current responsibilities."""
    scores = []
    for share in (1 - larger, larger):
        weight = max(share.mean(), 1e-12)
        total = max(share.sum(), 1e-12)
        mean = (share * values).sum() / total
        variance = (share * (values - mean) ** 2).sum() / total + FLOOR
        scores.append(np.log(weight**2 / variance) - (values - mean) ** 2 / variance)
    return np.asarray(1 / (1 + np.exp(np.clip((scores[0] - scores[1]) / 2, -700, 700))))
