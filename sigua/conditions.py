"""Which examples are good and which are bad: each rule once, in operators of every framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from sigua import checks
from sigua.objective import Array, Split
from sigua.schedules import (
    Epochs,
    Schedule,
    horizon,
    keep_rate,
    keep_rates,
    rate_to_count,
    rate_to_parts,
    rates_to_parts,
    value_at,
    values_at,
)


class Batch(Protocol):
    """What a rule may ask about the mini-batch; each adapter answers on its own device.

    Attributes:
        losses: float, shape (n,): what the method optimises, an entry per example and without
            gradient (for backward correction the corrected loss at the given label). +inf for an
            example that takes no part: an ignored label, a weight of zero.
        size: how many examples take part; an integer or a 0-d integer tensor.
        trusted: bool, shape (n,), or a `Split` of two masks, from the user; None if not given.
    """

    losses: Array
    size: Any
    trusted: Array | Split | None

    def smallest(self, count: Any) -> Array:
        """Return the count-th smallest loss; -inf for 0, the largest for more than `size`."""

    def mean(self) -> Array:
        """Return the mean of the losses, without those that are +inf."""

    def class_sums(self) -> Array:
        """Return 1'T^-1 l for each example, shape (n,); backward correction only."""

    def margins(self, by_class: bool = True) -> Array:
        """Return u at the label less the largest other u, shape (n,), in [-1, 1].

        u is p(j | x), divided by the class confidence c_j if `by_class`, and scaled to sum to 1.
        The margin of an example that takes no part has no meaning.
        """


class Condition(Protocol):
    """A rule of your own: two methods, and nothing to register.

    An attribute `reads` may name what the rule reads from a batch besides the losses: a tuple of
    "trusted", "class_sums", "margins" and, for margins by class, "confidence". Without it, the rule
    may read `trusted` and `class_sums`.

    An attribute `horizon` may give the epoch from which `at` stays the same, 0 for a rule without a
    schedule. Without it, a rule whose `at` returns numbers is assumed to change in every epoch.

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import sigua
    >>> @dataclass(frozen=True)
    ... class Between:
    ...     low: float
    ...     high: float
    ...     def at(self, epoch):
    ...         return self.low, self.high
    ...     def split(self, batch, low, high):
    ...         return sigua.Split(batch.losses <= low, batch.losses > high)
    >>> method = sigua.custom(Between(0.5, 2.0), gamma=0.1)
    >>> sigua.reference.split(method, np.array([0.1, 1.0, 3.0]), epoch=0).bad
    array([False, False,  True])
    """

    def at(self, epoch: float) -> tuple[float, ...]:
        """Return the epoch's numbers, as many in each. Integers stay exact on every framework."""

    def split(self, batch: Batch, *numbers: Any, **_: Any) -> Split:
        """Return the masks, from the epoch's numbers as scalars or 0-d tensors; operators only.

        For a type checker, `*numbers, **_` means any further parameters; yours has one per number.
        """


def no_class_sums() -> ValueError:
    """Return the error for a rule that asks for class sums where there are none."""
    return ValueError(
        "class_sums: must come from backward correction, got a method without it; "
        'try sigua.custom(..., correction="backward", T=T)'
    )


def reads(condition: object, name: str) -> bool:
    """Return whether a rule may read `name` from a batch: "trusted", "class_sums", ..."""
    return name in getattr(condition, "reads", ("trusted", "class_sums"))


def no_margins() -> ValueError:
    """Return the error for a rule that reads margins without naming them in `reads`."""
    return ValueError(
        "reads: must name 'margins', and 'confidence' for margins by class, got a condition that "
        'reads them without; try adding reads = ("margins", "confidence") to it'
    )


def is_built_in(condition: object) -> bool:
    """Return whether a rule is one of this file's, and not a user's, which may do anything."""
    return type(condition).__module__ == __name__


def choose(condition: Condition, batch: Batch, numbers: tuple[Any, ...]) -> Split:
    """Apply a rule, and what holds for every rule: good wins; NaN and +inf are neither.

    Raises:
        ValueError: the rule's `split` did not return two boolean masks, an entry per example or one
            for all.
    """
    comparable = batch.losses < float("inf")
    masks = condition.split(batch, *numbers)
    if not isinstance(masks, tuple) or len(masks) != 2:
        raise ValueError(
            f"condition: split must return good and bad, got {type(masks).__name__}; "
            "try returning sigua.Split(good, bad)"
        )
    good, bad = masks
    if is_built_in(condition):  # whose masks are disjoint, but for those of the user in Known
        bad = bad & ~good if isinstance(condition, Known) else bad
        return Split(good & comparable, bad & comparable)
    for name, mask in zip(Split._fields, masks, strict=True):
        _require_mask(name, mask, comparable)
    good = good & comparable
    return Split(good, bad & comparable & ~good)


def _require_mask(name: str, mask: Any, like: Array) -> None:
    """Raise ValueError unless a mask is boolean, in the framework of `like`, and of its shape.

    No value is read. A length that is unknown in a graph is None, and fits.
    """
    if isinstance(mask, (bool, np.bool_)):
        return
    kind = type(mask).__name__
    if getattr(mask, "dtype", None) != like.dtype:
        got = f"a {kind} of {mask.dtype}" if hasattr(mask, "dtype") else f"a {kind}"
        raise ValueError(
            f"condition: must return boolean masks, like batch.losses < 1, got {name} as {got}; "
            "try operators on what the batch gives"
        )
    shape, n = mask.shape, like.shape[0]
    if len(shape) > 1 or (len(shape) == 1 and n is not None and shape[0] not in (1, n, None)):
        raise ValueError(
            f"condition: must return masks of shape ({n},), got {name} of shape {tuple(shape)}; "
            "try an entry for each of batch.losses"
        )


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

    Args:
        noise_rate: share of wrong labels, in [0, 1).
        delta: rate of examples to forget, a number in [0, 1] or a function of the epoch.
        warmup: epochs until rho has fallen from 1 to 1 - noise_rate.
        variant: "paper" or "official".

    Raises:
        ValueError: an argument lies outside its range.

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
        checks.number(
            "noise_rate", self.noise_rate, 0, 1, "try the share of wrong labels", closed=False
        )
        checks.schedule("delta", self.delta, 0, 1, "try the rate to forget, such as 0.15")
        checks.number("warmup", self.warmup, 0, float("inf"), "try epochs, 0 for no warm-up")
        checks.choice("variant", self.variant, ("paper", "official"))

    @property
    def horizon(self) -> float:
        return max(self.warmup if self.noise_rate else 0.0, horizon(self.delta))

    def at(self, epoch: float) -> tuple[int, int]:
        keep = keep_rate(epoch, self.noise_rate, self.warmup)
        delta = value_at("delta", self.delta, epoch)
        forget = delta if self.variant == "official" else min(keep + delta, 1.0)
        return rate_to_parts(keep), rate_to_parts(forget)

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

    Raises:
        ValueError: `over` is none of these.
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
    a finite loss: over all processes where the selection is, and over each micro-batch where
    gradients are accumulated.
    With gamma = 1 this is flooding (Ishida et al., ICML 2020), at a level that is computed by
    `sigua.noise_floor` instead of tuned.

    Args:
        floor: at least 0, in nats of the loss that the method optimises; a number or a function of
            the epoch.

    Raises:
        ValueError: `floor` is negative, infinite or NaN.

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

    def at(self, epoch: float) -> tuple[float, ...]:
        return (value_at("floor", self.floor, epoch, float("inf")),)

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
    rises linearly from -1, where every example is good, to `threshold`. At 0 an example is good if
    its label is what the model predicts.

    If the right label is the most frequent one given x, the label that a model of the noisy labels
    predicts is right, however the noise depends on x. After division by c_j, the diagonal of T need
    only be the largest entry of its column, not of its row: true of far stronger class noise.

    Each example is judged alone, by its own margin: nothing is sorted, and the size of a mini-batch
    does not matter. Related: thresholds per class (Northcutt et al. 2021), margins over epochs
    (Pleiss et al. 2020), agreement with an ensemble or an early network (Nguyen et al. 2020, Bai et
    al. 2021).

    Args:
        warmup: T_k, epochs until tau has risen to `threshold`.
        by_class: whether to divide by the class confidence; if not, u is p.
        threshold: tau at the end, in [-1, 1); below 0 it also keeps labels that come close second.

    Raises:
        ValueError: an argument lies outside its range.

    >>> [round(Agreement().at(epoch)[0], 3) for epoch in (1, 5, 10, 100)]
    [-0.9, -0.5, 0.0, 0.0]
    """

    warmup: float = 10
    by_class: bool = True
    threshold: float = 0.0

    def __post_init__(self) -> None:
        checks.plain_numbers(self)
        checks.number("warmup", self.warmup, 0, float("inf"), "try epochs, 0 for no warm-up")
        checks.flag("by_class", self.by_class)
        advice = "try 0, which keeps labels that the model agrees with"
        checks.number("threshold", self.threshold, -1, 1, advice, closed=False)

    @property
    def reads(self) -> tuple[str, ...]:
        return ("margins", "confidence") if self.by_class else ("margins",)

    @property
    def horizon(self) -> float:
        return float(self.warmup)

    def at(self, epoch: float) -> tuple[float, ...]:
        risen = min(epoch / self.warmup, 1.0) if self.warmup else 1.0
        # A probability may round to 0, and a margin to -1, which is good at the start, too.
        return (-1 + risen * (1 + self.threshold) if risen else -2.0,)

    def at_each(self, epochs: Epochs) -> tuple[Array, ...]:
        """Return `at` for many epochs at once, an array per number."""
        risen = np.minimum(epochs / self.warmup, 1.0) if self.warmup else np.ones_like(epochs)
        return (np.where(risen > 0, -1 + risen * (1 + self.threshold), -2.0),)

    def split(self, batch: Batch, threshold: Any) -> Split:
        margins = batch.margins(self.by_class)
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
        """Return what the user gave.

        Raises:
            ValueError: the user gave nothing.
        """
        if batch.trusted is None:
            raise ValueError(
                "trusted: must be a boolean per example for the condition Known, got None; "
                "try passing trusted=mask with the batch"
            )
        if isinstance(batch.trusted, Split):
            return batch.trusted
        return Split(batch.trusted, ~batch.trusted)


def may_read_marks(condition: Condition) -> bool:
    """Return whether a rule may read `trusted`, as `Known` does and a user's own may."""
    return reads(condition, "trusted")


def may_read_class_sums(condition: Condition) -> bool:
    """Return whether a rule may read `class_sums`, as over="classes" does and a user's may."""
    return reads(condition, "class_sums")
