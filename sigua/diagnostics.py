"""How good the selection was, what was memorised, and which labels look wrong.

What does not fit raises ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks
from sigua._hills import known_classes, second_hill
from sigua._inputs import Examples
from sigua.objective import Array
from sigua.schedules import rate_to_count, rate_to_parts

NAN = float("nan")


@dataclass(frozen=True)
class EpochReport:
    """What was selected in an epoch, and how well; fractions in [0, 1], NaN where not known.

    Intact examples have a right label, flipped examples a wrong one, which is known where labels
    were corrupted on purpose. A fraction of no examples is NaN, too.
    """

    good: float
    """The share of the examples that were descended on."""
    bad: float
    """The share that was climbed on."""
    neither: float
    """The share that was ignored."""
    good_precision: float = NAN
    """Label precision: the share of intact examples among the good ones."""
    good_recall: float = NAN
    """Label recall: the share of good examples among the intact ones."""
    bad_precision: float = NAN
    """The share of flipped examples among the bad ones."""
    bad_recall: float = NAN
    """The share of bad examples among the flipped ones."""
    accuracy: float = NAN
    """The share of all labels, right or wrong, that the model reproduces in training."""
    accuracy_intact: float = NAN
    """The share of right labels that it reproduces: what was learnt (Figure 1)."""
    accuracy_flipped: float = NAN
    """The share of wrong labels that it reproduces: what was memorised (Figure 1)."""

    @property
    def dropped(self) -> float:
        """The share not descended on: an estimate of the noise rate by `sigua_ag`, once warm."""
        return 1 - self.good

    def logs(self) -> dict[str, float]:
        """Return what a logger takes: `wandb.log(report.logs())`, Lightning's `self.log_dict(...)`.

        `sigua/noise_rate` is what was dropped: an estimate under `sigua_ag`, once it is warm, and
        what the method was told under small loss.

        >>> EpochReport(good=0.5, bad=0.25, neither=0.25).logs()
        {'sigua/good': 0.5, 'sigua/bad': 0.25, 'sigua/noise_rate': 0.5}
        """
        return {"sigua/good": self.good, "sigua/bad": self.bad, "sigua/noise_rate": self.dropped}


def masks_to_count(
    split: Any, part: Array, *, intact: Array | None = None, right: Array | None = None
) -> dict[str, Array]:
    """Return the masks, by name, whose sums over an epoch `report` needs; operators only.

    `split` has `good` and `bad`. All are boolean: who is good and bad, who takes part at all (False
    for ignored labels), which labels are right (intact), and which the model predicts (right).
    """
    masks = {"examples": part, "good": split.good & part, "bad": split.bad & part}
    if intact is not None:
        masks["intact"] = intact & part
        masks["good_intact"] = split.good & masks["intact"]
        masks["bad_intact"] = split.bad & masks["intact"]
    if right is not None:
        masks["right"] = right & part
    if intact is not None and right is not None:
        masks["right_intact"] = right & masks["intact"]
    return masks


def report(counts: Mapping[str, float]) -> EpochReport:
    """Return the report of an epoch from the sums of `masks_to_count`.

    >>> report({"examples": 8, "good": 4, "bad": 2, "intact": 4, "good_intact": 3, "bad_intact": 0})
    EpochReport(good=0.5, bad=0.25, neither=0.25, good_precision=0.75, good_recall=0.75, \
bad_precision=1.0, bad_recall=0.5, accuracy=nan, accuracy_intact=nan, accuracy_flipped=nan)
    """
    c = {name: float(count) for name, count in counts.items()}
    n, good, bad = c["examples"], c["good"], c["bad"]
    intact, right = c.get("intact", NAN), c.get("right", NAN)
    good_intact, right_intact = c.get("good_intact", NAN), c.get("right_intact", NAN)
    bad_flipped = bad - c.get("bad_intact", NAN)
    return EpochReport(
        good=_share(good, n),
        bad=_share(bad, n),
        neither=_share(n - good - bad, n),
        good_precision=_share(good_intact, good),
        good_recall=_share(good_intact, intact),
        bad_precision=_share(bad_flipped, bad),
        bad_recall=_share(bad_flipped, n - intact),
        accuracy=_share(right, n),
        accuracy_intact=_share(right_intact, intact),
        accuracy_flipped=_share(right - right_intact, n - intact),
    )


@dataclass(frozen=True, eq=False)
class LabelIssues:
    """Examples in the order in which their labels look wrong, and which are suspect.

    `sigua.Known` takes the suspects as bad: `trusted=~issues.suspects[index]`, or in Keras
    `model.fit(..., sample_weight=np.where(issues.suspects, -1.0, 1.0))`.
    """

    scores: NDArray[np.float64]
    """(n,), in [0, 1]: how wrong each label looks."""
    order: NDArray[np.intp]
    """(n,): indices of the examples: suspects first, then the others; in both the most suspicious
    first."""
    count: int
    """How many of them are suspects."""
    precision: float = NAN
    """A cautious estimate of the share of suspects whose label is wrong; NaN if there is no suspect
    or a noise rate was given."""

    @property
    def suspects(self) -> NDArray[np.bool_]:
        """(n,): True for the first `count` examples of `order`."""
        mask = np.zeros(len(self.order), dtype=bool)
        mask[self.order[: self.count]] = True
        return mask


def rank_label_issues(
    losses: ArrayLike | None = None,
    *,
    margins: ArrayLike | None = None,
    noise_rate: float | ArrayLike | None = None,
    labels: ArrayLike | None = None,
) -> LabelIssues:
    """Rank examples by how wrong their labels look, over the epochs or in one pass.

    The score is 1 - p(label) from losses, or (1 - margin) / 2 from margins, averaged over the
    epochs that include the example. Right labels are learnt early and wrong ones late, if at all,
    so that epochs tell more than one pass at the end. Margins tell more where the wrong labels of a
    class come from few classes, losses a little more where they come from any (Pleiss et al. 2020
    and Northcutt et al. 2021 rank by margins).

    With a noise rate, that share of the examples is suspect; with labels as well, that share of
    each class, so that rare classes survive. Without a rate, examples with a margin below zero,
    whose label the model finds less likely than another, are suspect if they make a hill of their
    own, beyond that of the right labels. In clean data there is no such hill, whether a model fits
    it or not, and where wrong labels look right to the model there may be none: then no example is
    suspect. `precision` says how sure the suspects are. This needs margins of plain training: a
    method that drops examples never learns hard ones. Losses without a rate give no suspects,
    because hard examples have large losses, too.

    `sigua_torch.LabelHistory` and `sigua_keras.LabelWatch` record both in training. A pass at the
    end is one epoch: `sigua.label_losses(model.predict(x), y)` or `sigua.label_margins`.

    Args:
        losses: at least 0, in nats, shape (n,) or (epochs, n): the plain cross-entropy at the given
            label, whatever loss the model was trained with. +inf is allowed, and NaN for an example
            that an epoch left out. They are read an epoch at a time: float32 and a `numpy.memmap`
            are not copied.
        margins: instead of losses: p(label) less the largest other probability, in [-1, 1].
        noise_rate: the share of wrong labels, in [0, 1]; with labels, a share for each class will
            do, (k,), in the order of `np.unique(labels)`, or by name: a dict or a series.
        labels: the given labels, numbers or words, shape (n,), with a rate, or with margins. For
            margins without a rate, a class of which more than a third is suspect, and more than
            three times as large a share as of all, comes last in the order, and its examples are
            not suspect: a rare class that the model hardly ever predicts looks wrong.

    Raises:
        ValueError: also for an example without a value in any epoch, or an epoch without any.

    >>> issues = rank_label_issues([[2.0, 0.9, 0.1, 0.3], [3.0, 0.1, 0.0, 0.2]], noise_rate=0.25)
    >>> issues.order.tolist(), issues.suspects.tolist()
    ([0, 1, 3, 2], [True, False, False, False])
    """
    if (losses is None) == (margins is None):
        got = "neither" if losses is None else "both"
        raise ValueError(f"losses: must be given unless margins are, got {got}; try one of the two")
    if labels is not None and margins is None and noise_rate is None:
        rule = "labels: must be given with margins, or with a noise rate"
        raise ValueError(f"{rule}, got losses alone; try without labels")
    if margins is not None:
        (scores,) = _means("margins", margins, lambda margin: np.clip((1 - margin) / 2, 0, 1))
        tie_break = scores
    else:
        # The scores of large losses round to 1; the losses themselves break the tie.
        scores, tie_break = _means("losses", losses, lambda loss: -np.expm1(-loss), np.asarray)
    table = losses if margins is None else margins
    given = np.zeros(len(scores), int) if labels is None else _given(labels, scores, table)
    if noise_rate is None and margins is not None:
        return _beyond_the_valley(scores, given)
    order = np.lexsort((-tie_break, -scores))
    if noise_rate is None:
        return LabelIssues(scores, order, 0)
    if labels is None:
        checks.number("noise_rate", noise_rate, 0, 1, "try the share of wrong labels")
    suspect = _of_each_class(order, noise_rate, given)
    order = order[np.argsort(~suspect[order], kind="stable")]
    return LabelIssues(scores, order, int(suspect.sum()))


def _of_each_class(order: NDArray[np.intp], rates: Any, labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return who is suspect, (n,): the given share of each class, the first in the order."""
    classes, of = np.unique(labels, return_inverse=True)
    advice = "try one share of wrong labels, or one for each of np.unique(labels)"
    suspect = np.zeros(len(order), dtype=bool)
    for j, given in enumerate(_rates(rates, classes)):
        rate = checks.number("noise_rate", given, 0, 1, advice)
        own = order[of[order] == j]
        suspect[own[: rate_to_count(len(own), rate_to_parts(rate))]] = True
    return suspect


def _rates(rates: Any, classes: NDArray[Any]) -> list[Any]:
    """Return a rate for each class: one for all, theirs by name, or theirs in order."""
    if not hasattr(rates, "keys"):
        if np.ndim(rates):
            checks.same_length("noise_rate", rates, "classes", classes)
        return list(rates) if np.ndim(rates) else [rates] * len(classes)
    by_name, names = dict(rates.items()), classes.tolist()
    if set(by_name) == set(names):
        return [by_name[name] for name in names]
    raise ValueError(
        f"noise_rate: must have a rate for each of the classes {names!r} by name, got those of "
        f"{list(by_name)!r}; try a list in the order of np.unique(labels)"
    )


def _given(labels: ArrayLike, scores: NDArray[Any], table: Any) -> NDArray[Any]:
    """Return labels as an array, (n,), in the order of the losses or margins that gave scores."""
    given = checks.array("labels", labels)
    if given.ndim != 1:
        raise ValueError(
            f"labels: must have shape (n,), got shape {given.shape}; "
            "try labels.ravel() on a column, labels.argmax(1) on one-hot rows"
        )
    given = checks.classes("labels", given)
    checks.same_length("labels", given, "losses or margins", scores)
    checks.same_order("labels", labels, table, "losses or margins")
    return given


def _beyond_the_valley(scores: NDArray[np.float64], labels: NDArray[Any]) -> LabelIssues:
    """Cut where a second hill begins, without the classes that look wrong as a whole."""
    cut, precision = second_hill(scores)
    known = known_classes(scores > cut, labels)
    if not known.all():
        cut, precision = second_hill(scores[known])
    order = np.lexsort((-scores, ~known))
    return LabelIssues(scores, order, int((known & (scores > cut)).sum()), precision)


def _means(name: str, table: ArrayLike | None, *values: Callable[..., Any]) -> list[Any]:
    """Return the mean over the epochs of each function of an example's losses or margins, (n,)."""
    counts: Any = 0
    sums: list[Any] = [0.0 for _ in values]
    for t, epoch in enumerate(checks.epochs(name, table)):
        known = ~np.isnan(epoch)
        if not known.any():
            raise ValueError(
                f"{name}: must have a value in each epoch, got NaN alone in epoch {t}; "
                "try leaving it out; perhaps the training diverged there"
            )
        counts = counts + known
        with np.errstate(over="ignore"):  # infinite is large enough
            new = [np.where(known, value(epoch), 0.0) for value in values]
            sums = [total + part for total, part in zip(sums, new, strict=True)]
    never = counts == 0
    if never.any():
        raise ValueError(
            f"{name}: must have a value for each example in some epoch, got none for "
            f"{never.sum()} of {len(never)}, the first at {int(never.argmax())}; try more epochs, "
            f"or rank the others, {name}[:, ~np.isnan({name}).all(axis=0)]"
        )
    return [total / counts for total in sums]


def label_margins(
    probabilities: ArrayLike, labels: ArrayLike, *, classes: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Return p(label | x) less the largest other probability, float64, shape (n,), in [-1, 1].

    Arguments and errors are those of `sigua.label_losses`.

    >>> label_margins([[0.25, 0.75], [0.5, 0.5]], [0, 1]).tolist()
    [-0.5, 0.0]
    """
    examples = Examples(probabilities, labels, classes)
    margins = np.empty(len(examples))
    for part, rows in examples.blocks():
        label = np.arange(len(rows)), examples.labels[part]
        margins[part] = rows[label]
        rows[label] = -1.0
        margins[part] -= rows.max(axis=1)
    return margins


def _share(part: float, whole: float) -> float:
    return part / whole if whole else NAN
