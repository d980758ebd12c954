"""Which examples are good and which are bad: each rule once, in operators of every framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sigua import checks
from sigua._rule import (
    Batch,
    Condition,
    choose,
    is_built_in,
    no_class_sums,
    no_margins,
    reads,
)
from sigua.objective import Array, Split
from sigua.schedules import (
    Epochs,
    Schedule,
    at_one,
    horizon,
    keep_rate,
    keep_rates,
    rate_to_count,
    rates_to_parts,
    values_at,
)

__all__ = ["Agreement", "AllGood", "Batch", "Condition", "Known", "NoiseFloor", "NonNegative"]
__all__ += ["SmallLoss", "choose", "is_built_in", "no_class_sums", "no_margins", "reads"]


@dataclass(frozen=True)
class AllGood:
    """Everything is good: standard training, and the plain corrections."""

    reads: ClassVar[tuple[str, ...]] = ()

    def at(self, epoch: float) -> tuple[float, ...]:
        return ()

    def split(self, batch: Batch) -> Split:
        everyone = batch.losses < float("inf")
        return Split(everyone, everyone & ~everyone)


@dataclass(frozen=True)
class SmallLoss:
    """Small losses are good, the next larger ones bad (Eqs. 5 and 6).

    With `variant="paper"`, an example is good if at most n * rho(t) losses are smaller than its
    own, and bad if it is not good and at most n * (rho(t) + delta(t)) are. Examples with equal
    losses are always alike; without ties floor(n * rho) + 1 examples are good.

    With `variant="official"`, as in the authors' released code, floor(n * rho) examples are good
    and delta is a share of those dropped: the next floor(delta * dropped) are bad. A mini-batch
    smaller than 1 / rho then keeps no example: it is only climbed on, if at all.

    The arguments, and their ranges, are those of `sigua.sigua_sl`.

    >>> [round(parts / 1e9, 3) for parts in SmallLoss(0.5, delta=0.15).at(epoch=5)]
    [0.75, 0.9]
    """

    noise_rate: float
    delta: Schedule = 0.0
    warmup: float = 10
    variant: str = "paper"

    reads: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        checks.plain_numbers(self)
        keep_rate(0, self.noise_rate, self.warmup)  # which says what they must be
        checks.schedule("delta", self.delta, 0, 1, "try the rate to forget, such as 0.15")
        checks.choice("variant", self.variant, ("paper", "official"))

    @property
    def horizon(self) -> float:
        return max(self.warmup if self.noise_rate else 0.0, horizon(self.delta))

    def at(self, epoch: float) -> tuple[Any, ...]:
        return at_one(self.at_each, epoch)

    def at_each(self, epochs: Epochs) -> tuple[Array, ...]:
        """Return `at` for many epochs at once, an array per number."""
        keep = keep_rates(epochs, self.noise_rate, self.warmup)
        delta = values_at("delta", self.delta, epochs)
        forget = delta if self.variant == "official" else np.minimum(keep + delta, 1.0)
        return rates_to_parts(keep), rates_to_parts(forget)

    def counts(self, size: Any, keep: Any, forget: Any) -> tuple[Any, Any]:
        """Return how many are good, and how many are good or bad, when no two losses tie."""
        kept = rate_to_count(size, keep)
        if self.variant == "official":
            return kept, kept + rate_to_count(size - kept, forget)
        return kept + 1, rate_to_count(size, forget) + 1

    def too_small(self, size: int) -> bool:
        """Whether, after the warm-up, such a batch keeps, drops or climbs on no example."""
        settled = self.horizon if self.horizon < float("inf") else self.warmup
        kept, reached = self.counts(size, *self.at(settled))
        none_bad = self.delta != 0 and reached <= kept
        return self.noise_rate > 0 and (not 0 < kept < size or none_bad)

    def split(self, batch: Batch, keep: Any, forget: Any) -> Split:
        kept, reached = self.counts(batch.size, keep, forget)
        good = batch.losses <= batch.smallest(kept)
        return Split(good, (batch.losses <= batch.smallest(reached)) & ~good)


@dataclass(frozen=True)
class NonNegative:
    """Good if a backward-corrected loss is at least zero, bad if it is below (Eqs. 11 and 12).

    Args:
        over: what must not be negative. "label": the example's corrected loss at its given label,
            as in the authors' released code. "classes": the sum of its corrected vector, 1'T^-1 l,
            as in the paper; it cannot be negative for symmetric or pair noise. "batch": the mean
            corrected loss of the mini-batch, so that all are good or all are bad; it is ours.
    """

    over: str = "label"

    def __post_init__(self) -> None:
        checks.choice("over", self.over, ("label", "classes", "batch"))

    @property
    def reads(self) -> tuple[str, ...]:
        return ("class_sums",) if self.over == "classes" else ()

    def at(self, epoch: float) -> tuple[float, ...]:
        return ()

    def split(self, batch: Batch) -> Split:
        if self.over == "label":
            value = batch.losses
        else:
            value = batch.class_sums() if self.over == "classes" else batch.mean()
        return Split(value >= 0, value < 0)


@dataclass(frozen=True)
class NoiseFloor:
    """All are good while the mini-batch's mean loss is at or above a floor, all bad below it.

    The mean is that of the losses before class weights, over the examples that take part and have
    a finite loss. With gamma = 1 this is flooding (Ishida et al., ICML 2020), at a level that is
    computed by `sigua.noise_floor` instead of tuned: `custom(NoiseFloor(noise_floor(T)), 1.0,
    "forward", T)`, or `custom(NoiseFloor(noise_floor(rate, k)), 1.0)` for errors that spread over
    all classes. Not for pair noise without T, nor for human noise, which is more predictable than
    its rate says.

    Args:
        floor: at least 0, in nats of the loss that the method optimises; a number or a function of
            the epoch.

    >>> import numpy as np
    >>> import sigua
    >>> method = sigua.custom(NoiseFloor(1.0), gamma=1.0)
    >>> sigua.reference.split(method, np.array([0.5, 0.7])).bad
    array([ True,  True])
    """

    floor: Schedule

    reads: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        checks.plain_numbers(self)
        advice = "try nats, such as sigua.noise_floor(0.5, 10)"
        checks.schedule("floor", self.floor, 0, float("inf"), advice)

    @property
    def horizon(self) -> float:
        return horizon(self.floor)

    def at(self, epoch: float) -> tuple[Any, ...]:
        return at_one(self.at_each, epoch)

    def at_each(self, epochs: Epochs) -> tuple[Array, ...]:
        """Return `at` for many epochs at once, an array per number."""
        return (values_at("floor", self.floor, epochs, float("inf")),)

    def split(self, batch: Batch, floor: Any) -> Split:
        mean = batch.mean()
        return Split(mean >= floor, mean < floor)


@dataclass(frozen=True)
class Agreement:
    """An example is good if the model itself agrees with its label (ours).

    The margin of an example is u at its label less the largest other u. u is p(j | x), divided by
    the class confidence c_j, the average of p(j | x) over examples labelled j (`sigua.confidence`),
    and scaled to sum to 1. An example is good if its margin is above tau(t), and bad otherwise. tau
    rises linearly from -1, where every example is good, to `threshold`: at 0 the label must be what
    the model predicts.

    If the right label is the most frequent one given x, the label that a model of the noisy labels
    predicts is right, however the noise depends on x. After division by c_j, the diagonal of T need
    only be the largest entry of its column, not of its row: true of far stronger class noise.

    With a `power` b, another class o counts as a rival of the label y by its own record only: its u
    is taken times min(1, (C_oy / C_yy)^b), where C_oy is the share of label y among the examples
    that the model predicted as o so far (`sigua.confidence`). With b = 1 this is Bayes' rule: a
    label is dropped only if it is more probably wrong than right. Fewer right labels are dropped
    where classes overlap, and fewer wrong ones where a network memorises.

    Each example is judged alone, so that the size of a mini-batch does not matter. Related:
    thresholds per class (Northcutt et al. 2021), margins over epochs (Pleiss et al. 2020).

    Args:
        warmup: T_k, epochs until tau has risen to `threshold`.
        by_class: whether to divide by the class confidence; if not, u is p.
        threshold: tau at the end, in [-1, 1); below 0 it also keeps labels that come close second.
        power: b, in [0, 1]. Above 0 it keeps k x k counts, and needs `by_class`.

    >>> [round(Agreement().at(epoch)[0], 3) for epoch in (1, 5, 10, 100)]
    [-0.9, -0.5, 0.0, 0.0]
    """

    warmup: float = 10
    by_class: bool = True
    threshold: float = 0.0
    power: float = 0.0

    def __post_init__(self) -> None:
        checks.plain_numbers(self)
        checks.number("warmup", self.warmup, 0, float("inf"), "try epochs, 0 for no warm-up")
        checks.flag("by_class", self.by_class)
        advice = "try 0, which keeps labels that the model agrees with"
        checks.number("threshold", self.threshold, -1, 1, advice, closed=False)
        advice = "try 0 for agreement, 1 for Bayes' rule"
        checks.number("power", self.power, 0, 1, advice)
        if self.power and not self.by_class:
            raise ValueError(
                f"power: must be 0 with by_class=False, got {self.power:g}; try by_class=True"
            )

    @property
    def reads(self) -> tuple[str, ...]:
        read = ("margins", "confidence", "counts")
        return read[: 1 + self.by_class + (self.power > 0)]

    @property
    def horizon(self) -> float:
        return float(self.warmup)

    def at(self, epoch: float) -> tuple[Any, ...]:
        return at_one(self.at_each, epoch)

    def at_each(self, epochs: Epochs) -> tuple[Array, ...]:
        """Return `at` for many epochs at once, an array per number."""
        risen = np.minimum(epochs / self.warmup, 1.0) if self.warmup else np.ones_like(epochs)
        # A probability may round to 0, and a margin to -1, which is good at the start, too.
        return (np.where(risen > 0, -1 + risen * (1 + self.threshold), -2.0),)

    def split(self, batch: Batch, threshold: Any) -> Split:
        margins = batch.margins(self.by_class, self.power)
        return Split(margins > threshold, margins <= threshold)


@dataclass(frozen=True)
class Known:
    """Good and bad are given with the batch: `trusted`, a boolean per example; False is bad.

    The condition of the paper's Figure 1, and the way to use a list of suspects from elsewhere. A
    `Split` of two masks can also mark an example as neither.
    """

    reads: ClassVar[tuple[str, ...]] = ("trusted",)

    def at(self, epoch: float) -> tuple[float, ...]:
        return ()

    def split(self, batch: Batch) -> Split:
        """Return what the user gave, or raise ValueError if that is nothing."""
        if batch.trusted is None:
            raise ValueError(
                "trusted: must be a boolean per example for the condition Known, got None; "
                "try passing trusted=mask with the batch"
            )
        if isinstance(batch.trusted, Split):
            return batch.trusted
        return Split(batch.trusted, ~batch.trusted)
