"""The estimators behind `sigua.estimate`: one function each, from checked input to rows of T."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigua.intervals import Floats, Interval, counted
from sigua.transition import TransitionMatrix

Integers = NDArray[Any]
Rows = tuple[Floats, NDArray[np.bool_]]
"""(k, k) and (k,): the rows of T, and the classes about which nothing is known."""

SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
FEWEST = 50
"""With fewer examples than this, nothing can be said about a rate."""


@dataclass(frozen=True)
class Evidence:
    """Checked input: p is (n, k), a copy, with rows that sum to 1; labels are int64."""

    p: Floats
    labels: Integers | None
    true_labels: Integers | None
    quantile: float

    @property
    def num_classes(self) -> int:
        return int(self.p.shape[1])

    def counts(self, rows: Integers, columns: Integers) -> Floats:
        """Return how often each pair of classes occurs, shape (k, k)."""
        k = self.num_classes
        pairs = np.bincount(rows * k + columns, minlength=k * k)
        return pairs.reshape(k, k).astype(np.float64)

    def true_frequencies(self, T: TransitionMatrix) -> Floats:
        """Return the true class frequencies, which T turns into the observed ones, shape (k,)."""
        observed = self.p.mean(axis=0)
        if self.labels is not None:
            observed = np.bincount(self.labels, minlength=self.num_classes) / len(self.p)
        frequencies = np.maximum(observed @ T.inverse, 0.0)
        return np.asarray(frequencies / frequencies.sum())


def _anchor(evidence: Evidence) -> Rows:
    at_quantile = np.quantile(evidence.p, evidence.quantile, axis=0, method="lower")
    rows = evidence.p[(evidence.p == at_quantile).argmax(axis=0)]
    seen = evidence.p.max(axis=0) > 0
    if evidence.labels is not None:
        seen = np.bincount(evidence.labels, minlength=evidence.num_classes) > 0
    return _divided_by_sums(rows * seen[:, None])


def _confident(evidence: Evidence) -> Rows:
    p, y = evidence.p, evidence.labels
    assert y is not None
    sizes = np.bincount(y, minlength=evidence.num_classes).astype(np.float64)
    own = np.bincount(y, weights=p[np.arange(len(p)), y], minlength=evidence.num_classes)
    average = np.divide(own, sizes, out=np.full(len(sizes), np.inf), where=sizes > 0)
    sure = np.where(p >= average - 1e-9, p, -1.0)  # an average of equal numbers may round up
    some = sure.max(axis=1) >= 0
    # p(true | observed): each class with labels has a most confident example, hence a row.
    share, _ = _divided_by_sums(evidence.counts(y[some], sure[some].argmax(axis=1)))
    return _divided_by_sums((share * sizes[:, None]).T)


def _dual(evidence: Evidence) -> Rows:
    assert evidence.labels is not None
    to_predicted, unknown = _anchor(evidence)
    predicted = evidence.p.argmax(axis=1)
    to_observed, never = _divided_by_sums(evidence.counts(predicted, evidence.labels))
    return to_predicted @ to_observed, unknown | never


def _surest(evidence: Evidence) -> Rows:
    assert evidence.labels is not None
    p, y, k = evidence.p, evidence.labels, evidence.num_classes
    top, rate = surest(p, y)
    counts = evidence.counts(p.argmax(axis=1)[top], y[top])
    average = np.full((k, k), rate.value / (k - 1))
    np.fill_diagonal(average, 1 - rate.value)
    rows, _ = _divided_by_sums(counts + k * average)  # k more labels a class, as on average
    return rows, counts.sum(axis=1) == 0


def surest(p: Floats, y: Integers) -> tuple[NDArray[np.bool_], Interval]:
    """Return the examples predicted most surely, and the share of their labels that disagree.

    The same share of each predicted class is taken: the one of `SHARES` whose interval has the
    lowest upper end. The few surest examples are hardly ambiguous, so a label that disagrees is
    noise. More examples make the interval narrower, as long as they are as sure.
    """
    predicted, sureness = p.argmax(axis=1), p.max(axis=1)
    order = np.lexsort((-sureness, predicted))
    sizes = np.bincount(predicted, minlength=p.shape[1])
    place = np.empty(len(p))
    within = np.arange(len(p)) - (np.cumsum(sizes) - sizes)[predicted[order]]
    place[order] = (within + 0.5) / sizes[predicted[order]]
    wrong = predicted != y
    tops = [place < share for share in SHARES]
    tops = [top for top in tops if top.sum() >= FEWEST] or [place < 1]
    rates = [counted(int(wrong[top].sum()), int(top.sum())) for top in tops]
    best = min(range(len(tops)), key=lambda i: rates[i].high)
    return tops[best], rates[best]


def _gold(evidence: Evidence) -> Rows:
    assert evidence.true_labels is not None
    return _divided_by_sums(np.eye(evidence.num_classes)[evidence.true_labels].T @ evidence.p)


def _divided_by_sums(rows: Floats) -> Rows:
    """Divide each row by its sum; a row of zeros becomes that of a clean class."""
    sums = rows.sum(axis=1)
    unknown = sums == 0
    rows = np.where(unknown[:, None], np.eye(len(rows)), rows)
    return rows / np.where(unknown, 1.0, sums)[:, None], unknown


ESTIMATORS = {
    "surest": _surest,
    "anchor": _anchor,
    "confident": _confident,
    "dual-t": _dual,
    "gold": _gold,
}
