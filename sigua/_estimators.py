"""The estimators behind `sigua.estimate`: one function each, from checked input to rows of T."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sigua._inputs import Examples
from sigua.counting import LEVEL, NORMAL, Floats, Interval, count_pairs, counted
from sigua.transition import TransitionMatrix
from sigua.transition.matrix import symmetric_rows

Integers = NDArray[Any]
Rows = tuple[Floats, NDArray[np.bool_]]
"""(k, k) and (k,): the rows of T, and the classes about which nothing is known."""

SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
FEWEST = 50
"""With fewer examples than this, nothing can be said about a rate."""
QUARTER = 0.25
"""At most this share of the examples are called the most confident ones."""


class Surest(NamedTuple):
    """The most confident predictions, and the share of their labels that the model rejects."""

    top: NDArray[np.bool_]
    """(n,): the examples."""
    rate: Interval
    low: float
    """The lower end of the best interval of `SHARES` up to `QUARTER`; 0 if these are too few."""
    lowest: float
    """The lowest of their lower ends."""


class Evidence(Examples):
    """What the estimators and the diagnosis read of the examples.

    Attributes:
        predicted: the likeliest class, (n,).
        sureness: its probability, (n,).
        own: the probability of the label, (n,); none of the three if not labelled.
    """

    def __init__(
        self, probabilities: Any, labels: Any, classes: Any, *, labelled: bool = True
    ) -> None:
        super().__init__(probabilities, labels, classes, labelled=labelled)
        if not labelled:
            return
        n = len(self)
        self.predicted, self.sureness, self.own = np.empty(n, np.int64), np.empty(n), np.empty(n)
        for part, rows in self.blocks():
            each, predicted = np.arange(len(rows)), rows.argmax(axis=1)
            self.predicted[part], self.sureness[part] = predicted, rows[each, predicted]
            self.own[part] = rows[each, self.labels[part]]

    @cached_property
    def agreement(self) -> Interval:
        """The share of the labels that the model predicts."""
        return counted(int((self.predicted == self.labels).sum()), len(self))

    @cached_property
    def surest(self) -> Surest:
        return surest(self.predicted, self.sureness, self.labels, self.shape[1])

    @cached_property
    def above_chance(self) -> Interval:
        """How much more probable labels are to the model than labels drawn by their frequencies."""
        n, total, squares = len(self), 0.0, 0.0
        frequencies = np.bincount(self.labels, minlength=self.shape[1]) / n
        for part, rows in self.blocks():
            gains = self.own[part] - rows @ frequencies
            total += float(gains.sum())
            squares += float(gains @ gains)
        mean = total / n
        error = math.sqrt(max(squares / n - mean**2, 0.0) / n)
        return Interval(mean, mean - NORMAL * error, mean + NORMAL * error)

    def true_frequencies(self, T: TransitionMatrix) -> Floats:
        """Return the true class frequencies, which T turns into the observed ones, shape (k,)."""
        if self.labels is not None:
            sums: Any = np.bincount(self.labels, minlength=self.shape[1])
        else:
            sums = np.zeros(self.shape[1])
            for _, rows in self.blocks():
                rows[0] += sums  # added row by row, whatever the blocks
                sums = rows.sum(axis=0)
        frequencies = np.maximum(sums / len(self) @ T.inverse, 0.0)
        return np.asarray(frequencies / frequencies.sum())


def _anchor(evidence: Evidence) -> Rows:
    """Take as row i of T the first of the rows whose i-th entry is the largest of all rows."""
    k = evidence.shape[1]
    anchors = np.zeros((k, k))
    for _, rows in evidence.blocks():
        first = rows.argmax(axis=0)
        larger = rows.max(axis=0) > anchors.diagonal()
        anchors[larger] = rows[first[larger]]
    if evidence.labels is not None:
        anchors[np.bincount(evidence.labels, minlength=k) == 0] = 0.0
    return _divided_by_sums(anchors)


def _confident(evidence: Evidence) -> Rows:
    y, own, k = evidence.labels, evidence.own, evidence.shape[1]
    sizes = np.bincount(y, minlength=k).astype(np.float64)
    sums = np.bincount(y, weights=own, minlength=k)
    average = np.divide(sums, sizes, out=np.full(k, np.inf), where=sizes > 0)
    true, known = np.empty(len(y), np.int64), np.empty(len(y), dtype=bool)
    for part, rows in evidence.blocks():
        # An average of equal numbers may round up.
        sure = np.where(rows >= average - 1e-9, rows, -1.0)
        true[part] = sure.argmax(axis=1)
        known[part] = sure[np.arange(len(sure)), true[part]] >= 0
    # p(true | observed): each class with labels has a most confident example, hence a row.
    share, _ = _divided_by_sums(count_pairs(y[known], true[known], k))
    return _divided_by_sums((share * sizes[:, None]).T)


def _surest(evidence: Evidence) -> Rows:
    (top, rate, *_), k = evidence.surest, evidence.shape[1]
    counts = count_pairs(evidence.predicted[top], evidence.labels[top], k)
    more = k * symmetric_rows(rate.value, k)  # k more labels of each class, as on average
    return _divided_by_sums(counts + more)[0], counts.sum(axis=1) == 0


def surest(predicted: Integers, sureness: Floats, y: Integers, k: int) -> Surest:
    """Return the most confident predictions, and the share of their labels that disagree.

    The same share of each predicted class is taken, and whoever is as sure: the one of `SHARES`
    whose interval has the lowest upper end. The few most confident predictions are hardly
    ambiguous, so a label that disagrees is noise. More examples make the interval narrower, as long
    as they are as sure. As the best of several intervals is taken, all of them hold together with
    probability `LEVEL` (Bonferroni).
    """
    place, wrong = _places(predicted, sureness, k), predicted != y
    tops = [place < share for share in SHARES]
    tops = [top for top in tops if top.sum() >= FEWEST] or [place < 1]
    level = 1 - (1 - LEVEL) / len(tops)
    rates = [counted(int(wrong[top].sum()), int(top.sum()), level) for top in tops]
    best = min(range(len(tops)), key=lambda i: rates[i].high)
    few = [rate for rate, top in zip(rates, tops, strict=True) if top.mean() <= QUARTER]
    low = min(few, key=lambda rate: rate.high).low if few else 0.0
    return Surest(tops[best], rates[best], low, min((rate.low for rate in few), default=0.0))


def _places(predicted: Integers, sureness: Floats, k: int) -> Floats:
    """Return where each example stands in its predicted class, in (0, 1); 0 is the most confident.

    Who is equally sure stands at one place, that of the first.
    """
    order = np.lexsort((-sureness, predicted))
    group, sure = predicted[order], sureness[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (group[1:] != group[:-1]) | (sure[1:] != sure[:-1])
    del sure  # in place from here on: there may be very many examples
    sizes, starts = np.bincount(predicted, minlength=k), np.flatnonzero(first)
    ranks = np.repeat(starts.astype(np.float64), np.diff(starts, append=len(order)))
    ranks -= (np.cumsum(sizes) - sizes - 0.5)[group]
    ranks /= sizes[group]
    place = np.empty(len(order))
    place[order] = ranks
    return place


def _divided_by_sums(rows: NDArray[Any]) -> Rows:
    """Divide each row by its sum; a row of zeros becomes that of a clean class."""
    sums = rows.sum(axis=1)
    unknown = sums == 0
    rows = np.where(unknown[:, None], np.eye(len(rows)), rows)
    return rows / np.where(unknown, 1.0, sums)[:, None], unknown


ESTIMATORS = {"surest": _surest, "anchor": _anchor, "confident": _confident}
