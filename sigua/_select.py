"""Who is good, who is bad, and what each weighs. Nothing here has a gradient.

So an adapter may pass views of its tensors as arrays of NumPy, and NumPy's names as `ops`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sigua._measure import FINITE, INF, is_index
from sigua._method import Method
from sigua.conditions import choose, no_class_sums, no_margins
from sigua.objective import Split

Array = Any


class Margins:
    """The model's predictions against its labels.

    Args:
        ops: the framework's names.
        logits: (N, k, ...), without gradient.
        y: class indices (N, ...), or class probabilities, of which the largest is the label.
        rates: the class confidence c, (k,); None for ones.
        by_class: whether margins by class may be asked for.
    """

    def __init__(
        self, ops: Any, logits: Array, y: Array, rates: Array | None, by_class: bool = True
    ) -> None:
        self.ops, self.logits, self.rates, self.by_class = ops, logits, rates, by_class
        self.y = y if is_index(y, logits) else ops.class_argmax(y)

    def __call__(self, by_class: bool = True) -> Array:
        """Return u at the label less the largest other u, (n,), for u = p / c, scaled to sum 1."""
        if by_class and not self.by_class:
            raise no_margins()
        ops, z = self.ops, self.logits
        if by_class and self.rates is not None:
            z = z - ops.per_class(ops.log(self.rates), z)
        top = ops.class_max(z)
        total = ops.class_sum(ops.exp(z - ops.expand(top)))
        own, other = ops.at(z, self.y), ops.class_max(ops.without(z, self.y))
        margins = (ops.exp(own - top) - ops.exp(other - top)) / total
        return ops.reshape(margins, (-1,))

    def sums(self, valid: Array | None, losses: Array | None = None) -> Array:
        """Return the sum of p(j | x) over examples labelled j, and their number, (2, k).

        Args:
            valid: bool, (n,): who takes part; None for all.
            losses: the cross-entropies at the labels, (n,), if they are known.
        """
        ops, k = self.ops, self.logits.shape[1]
        if losses is None:
            losses = ops.reshape(ops.cross_entropy(self.logits, self.y), (-1,))
        p = ops.exp(-losses)
        counted = p == p  # not a NaN, which would stay for ever (XLA takes exp(x) >= 0 for true)
        counted = counted if valid is None else counted & valid
        y = ops.reshape(self.y, (-1,))
        parts = ops.where(counted, p, 0.0), ops.cast(counted, p)
        return ops.stack([ops.sums_by(part, y, k) for part in parts])


class Batch:
    """The mini-batch as a rule sees it: the protocol `sigua.Batch`.

    Args:
        ops: the framework's names.
        losses: (n,), float32 or better; +inf for who takes no part.
        size: how many take part.
        trusted: bool, (n,), a `Split` of two masks, or None.
        sums: returns 1'T^-1 l, (n,); None without backward correction.
        margins: returns margins, by class or not; None if the rule reads none.
    """

    def __init__(
        self,
        ops: Any,
        losses: Array,
        size: Any,
        trusted: Any = None,
        sums: Callable[[], Array] | None = None,
        margins: Callable[[bool], Array] | None = None,
    ) -> None:
        self.ops, self.losses, self.size, self.trusted = ops, losses, size, trusted
        self._sums, self._margins, self._ordered = sums, margins, None

    def smallest(self, count: Any) -> Array:
        if self._ordered is None:
            self._ordered = self.ops.sort(self.ops.last(self.losses))
        return self.ops.nth(self._ordered, count, self.size)

    def mean(self) -> Array:
        ops, counted = self.ops, self.losses != INF
        total = ops.sum(ops.where(counted, self.losses, 0.0))
        return total / ops.maximum(ops.sum(ops.cast(counted, self.losses)), 1.0)

    def class_sums(self) -> Array:
        if self._sums is None:
            raise no_class_sums()
        return self._sums()

    def margins(self, by_class: bool = True) -> Array:
        if self._margins is None:
            raise no_margins()
        return self._margins(by_class)


class Grouped(Batch):
    """Judges each group alone: sizes, order statistics and means have an entry per example.

    Args:
        ops, losses, trusted, sums, margins: as for `Batch`.
        valid: bool, (n,): who takes part; None for all.
        groups: integers, (n,), any.
    """

    def __init__(
        self,
        ops: Any,
        losses: Array,
        valid: Array | None,
        groups: Array,
        trusted: Any = None,
        sums: Callable[[], Array] | None = None,
        margins: Callable[[bool], Array] | None = None,
    ) -> None:
        everyone = losses == losses
        members = ops.integers(everyone | ~everyone)
        values = ops.last(losses)
        order = ops.argsort(values)
        order = ops.take(order, ops.argsort(ops.take(groups, order)))  # by group, then by loss
        found = ops.take(groups, order)
        number = ops.cumsum(ops.integers(found != ops.roll(found, 1)))  # of the group, in order
        self._of = ops.take(number, ops.argsort(order))
        n = losses.shape[0]
        self._most = None if n is None else n + 1  # not known in a graph of TensorFlow
        size = members if valid is None else ops.integers(valid)
        super().__init__(ops, losses, None, trusted, sums, margins)
        self._ordered = ops.take(values, order)
        totals = self._totals(members)
        self._start = ops.take(ops.cumsum(totals) - totals, self._of)
        self.size = self._shared(size)

    def _totals(self, values: Array) -> Array:
        return self.ops.sums_by(values, self._of, self._most)

    def _shared(self, values: Array) -> Array:
        """Return the sum of the values over each example's group."""
        return self.ops.take(self._totals(values), self._of)

    def smallest(self, count: Any) -> Array:
        ops = self.ops
        count = ops.minimum(self.size, count)
        found = ops.take(self._ordered, ops.maximum(self._start + count - 1, 0))
        return ops.where(count == 0, -INF, found)

    def mean(self) -> Array:
        ops, counted = self.ops, self.losses != INF
        total = self._shared(ops.where(counted, self.losses, 0.0))
        return total / ops.maximum(self._shared(ops.cast(counted, self.losses)), 1.0)


class Selection(NamedTuple):
    """What a method makes of a mini-batch; every entry has shape (n,)."""

    good: Array
    bad: Array
    weights: Array
    """good - gamma * bad, the factor in Eq. 3."""
    silent: Array
    """bool: who has no part in the objective, not even NaN: whoever takes no part, and infinite
    losses, unless there are no others. Their losses have to be replaced by 0 before the product."""


def select(
    ops: Any,
    method: Method,
    numbers: tuple[Any, ...],
    losses: Array,
    *,
    valid: Array | None = None,
    shares: Array | None = None,
    trusted: Any = None,
    sums: Callable[[], Array] | None = None,
    margins: Callable[[bool], Array] | None = None,
    groups: Array | None = None,
) -> Selection:
    """Return who is good and who is bad, and what each weighs.

    Args:
        ops: the framework's names.
        method: whose condition decides.
        numbers: `method.at(epoch)`, as numbers or 0-d tensors.
        losses: (n,), without gradient, float32 or better: what decides, without class weights.
        valid: bool, (n,): who takes part; None for all.
        shares: (n,), each example's part of the denominator, where good and bad are averaged apart;
            None for 1 each.
        trusted: bool, (n,), or a `Split` of two masks.
        sums: returns 1'T^-1 l, (n,).
        margins: returns margins, by class or not: a `Margins`.
        groups: integers, (n,): who is judged together; None for all.
    """
    gamma, *rates = numbers
    silent = losses > FINITE if valid is None else (losses > FINITE) | ~valid
    ranked = ops.where(silent, INF, losses)
    given = trusted, sums, margins
    size = losses.shape[0] if valid is None else ops.sum(ops.integers(valid))
    if groups is None:
        batch = Batch(ops, ranked, size, *given)
    else:
        batch = Grouped(ops, ranked, valid, groups, *given)
    split = choose(method.condition, batch, tuple(rates))
    weights = signed(ops, split, gamma, method.separate, size, shares, losses)
    # If nothing is finite, nobody would be told: all count then, and the objective is infinite.
    lost = ops.all(silent)
    lost = lost if valid is None else lost & valid
    return Selection(*split, ops.where(lost, 1.0, weights), silent & ~lost)


def signed(
    ops: Any, split: Split, gamma: Any, separate: bool, size: Any, shares: Array | None, like: Array
) -> Array:
    """Return good - gamma * bad, (n,), in the dtype of `like`."""
    good, bad = (ops.cast(mask, like) for mask in split)
    if separate:
        total = size if shares is None else ops.sum(shares)
        good, bad = (_averaged(ops, mask, total, shares) for mask in (good, bad))
    return good - gamma * bad


def _averaged(ops: Any, mask: Array, total: Any, shares: Array | None) -> Array:
    """Return a mask such that its mean over `total` is that over its own part of it."""
    return mask * (total / ops.or_one(ops.sum(mask if shares is None else mask * shares)))
