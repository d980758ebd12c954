"""Was the selection right, what was memorised, and which labels look wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks
from sigua._mixture import best_threshold
from sigua.objective import Array, Split
from sigua.schedules import rate_to_count, rate_to_parts

NAN = float("nan")


@dataclass(frozen=True)
class EpochReport:
    """What was selected in an epoch, and how well; fractions in [0, 1], NaN where not known.

    Intact examples are those whose label is right, flipped ones the others; who knows which is
    which corrupted them on purpose. A fraction of no examples is NaN, too.
    """

    good: float
    """Share of the examples that were descended on."""
    bad: float
    """Share that was climbed on."""
    neither: float
    good_precision: float = NAN
    """Label precision: the share of intact ones among the good."""
    good_recall: float = NAN
    """Label recall: the share of good ones among the intact."""
    bad_precision: float = NAN
    """The share of flipped ones among the bad."""
    bad_recall: float = NAN
    """The share of bad ones among the flipped."""
    accuracy: float = NAN
    """How many labels, right or wrong, the model reproduces in training."""
    accuracy_intact: float = NAN
    """How many of the right labels it reproduces: what was learnt (Figure 1)."""
    accuracy_flipped: float = NAN
    """How many of the wrong labels it reproduces: what was memorised (Figure 1)."""

    @property
    def dropped(self) -> float:
        """Share that was not descended on; once `sigua_ag` is warm, it estimates the noise rate."""
        return 1 - self.good


def masks_to_count(
    split: Split,
    part: Array,
    *,
    intact: Array | None = None,
    right: Array | None = None,
) -> dict[str, Array]:
    """Return the masks whose sums over an epoch `report` needs, by name; operators only.

    Args:
        split: who is good and who is bad, boolean.
        part: boolean, who takes part at all (False for ignored labels).
        intact: boolean, whose label is right.
        right: boolean, whose label the model predicts.
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
    """Examples in the order in which their labels look wrong, and where to cut.

    `sigua.Known` takes them as bad. In PyTorch, with the indices of a mini-batch from the loader:
    `criterion(logits, y, torch.from_numpy(~issues.suspects)[index])`. In Keras:
    `model.fit(..., sample_weight=np.where(issues.suspects, -1.0, 1.0))`.
    """

    scores: NDArray[np.float64]
    """(n,), in [0, 1]: what speaks against each label."""
    order: NDArray[np.intp]
    """(n,): indices of the examples, the most suspicious first."""
    count: int
    """How many of them are suspects."""

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
    noise_rate: float | None = None,
) -> LabelIssues:
    """Rank examples by how wrong their labels look, over the epochs or in one pass.

    The score is 1 - p(label) from losses, or (1 - margin) / 2 from margins, averaged over the
    epochs. Epochs tell more than a pass at the end: right labels are learnt early and wrong ones
    late, if at all, whereas at the end both may be. Margins tell more where wrong labels of a class
    are of few classes, and losses a little more where they are of any (Pleiss et al. 2020 and
    Northcutt et al. 2021 rank by margins).

    `sigua_torch.diagnostics.LabelHistory` records both in training. A pass at the end is one epoch:
    use `sigua.label_losses(model.predict(x), y)` or `sigua.label_margins`.

    Args:
        losses: at least 0, in nats, shape (n,) or (epochs, n): the plain cross-entropy at the given
            label, whatever the model was trained with. +inf is allowed.
        margins: instead of losses: p(label) less the largest other probability, in [-1, 1].
        noise_rate: the share of wrong labels, in [0, 1], where to cut; if not given, where the
            scores of the two parts are furthest apart (Otsu 1979), which cuts clean data, too.

    Raises:
        ValueError: losses or margins that are none, or not exactly one of them; a rate outside
            [0, 1].

    >>> issues = rank_label_issues([[2.0, 0.9, 0.1, 0.3], [3.0, 0.1, 0.0, 0.2]], noise_rate=0.25)
    >>> issues.order.tolist(), issues.suspects.tolist()
    ([0, 1, 3, 2], [True, False, False, False])
    """
    if (losses is None) == (margins is None):
        came = "neither came" if losses is None else "both came"
        raise checks.refuse("losses", "give them or margins", came, "give one of the two")
    if margins is not None:
        table = (1 - np.atleast_2d(checks.margins("margins", margins))) / 2
        scores = tie_break = table.mean(axis=0)
    else:
        table = np.atleast_2d(checks.losses("losses", losses))
        scores = -np.expm1(-table).mean(axis=0)
        with np.errstate(over="ignore"):  # infinite is large enough
            tie_break = table.mean(axis=0)  # where scores of large losses have rounded to 1
    order = np.lexsort((-tie_break, -scores))
    if noise_rate is None:
        return LabelIssues(scores, order, int((scores > best_threshold(scores)).sum()))
    rate = checks.number("noise_rate", noise_rate, 0, 1, "give the share of wrong labels")
    return LabelIssues(scores, order, rate_to_count(len(order), rate_to_parts(rate)))


def label_margins(probabilities: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """Return p(label | x) less the largest other probability, float64, shape (n,), in [-1, 1].

    Raises:
        ValueError: probabilities or labels that are none, or of different lengths.

    >>> label_margins([[0.25, 0.75], [0.5, 0.5]], [0, 1]).tolist()
    [-0.5, 0.0]
    """
    p = checks.probabilities("probabilities", probabilities)
    y = checks.labels("labels", labels, p.shape[1])
    checks.same_length("labels", y, "probabilities", p)
    rows = np.arange(len(p))
    own = p[rows, y]
    p[rows, y] = -1.0
    return np.asarray(own - p.max(axis=1))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else NAN
