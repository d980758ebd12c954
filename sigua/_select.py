"""Who is good, who is bad, and what each weighs. Nothing here has a gradient.

So an adapter may pass views of its tensors as arrays of NumPy, and NumPy's names as `ops`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sigua import confidence
from sigua._measure import FINITE, INF, is_index
from sigua._method import Method
from sigua.conditions import choose, is_built_in, no_class_sums, no_margins
from sigua.objective import Split

Array = Any


class Margins:
    """The model's predictions against its labels.

    Args:
        ops: the framework's names.
        p: probabilities, (N, k, ...), without gradient.
        y: class indices (N, ...), or class probabilities, of which the largest is the label.
        state: what is remembered (`sigua.confidence`); None if the rule reads no confidence.
    """

    def __init__(self, ops: Any, p: Array, y: Array, state: Array | None = None) -> None:
        self.ops, self.p, self.state = ops, p, state
        self.y = y if is_index(y, p) else ops.class_argmax(y)

    def __call__(self, by_class: bool = True, power: float = 0.0) -> Array:
        """Return u at the label less the largest bounded other u, (n,); see `sigua.Batch`."""
        ops, u = self.ops, self._divided() if by_class else self.p
        others = u * self._bounds(power) if power else u
        rival = ops.class_max(ops.without(others, self.y))
        return ops.reshape((ops.at(u, self.y) - rival) / ops.class_sum(u), (-1,))

    def _divided(self) -> Array:
        """Return p / c, (N, k, ...): u, but for a factor of each example's."""
        if self.state is None:
            raise no_margins()
        return self.p / self.ops.per_class(confidence.rates(self.state), self.p)

    def _bounds(self, power: float) -> Array:
        """Return the bounds for each example's label, (N, k, ...)."""
        if self.state is None or self.state.shape[0] == 2:
            raise no_margins()
        table = confidence.bounds(self.state, power, self.ops)
        return self.ops.rows(self.ops.cast(table, self.p), self.y)

    def sums(self, valid: Array | None) -> Array:
        """Return what the mini-batch adds to the state, in the state's shape.

        `valid`, bool, (n,), says who takes part; None for all.
        """
        ops, k, y = self.ops, self.p.shape[1], self.y
        p = ops.at(self.p, y)
        if len(y.shape) > 1:
            y, p = ops.reshape(y, (-1,)), ops.reshape(p, (-1,))
        counted = p == p  # a NaN would stay for ever
        counted = counted if valid is None else counted & valid
        ones = ops.cast(counted, p)
        sums = [ops.sums_by(ops.where(counted, p, 0.0), y, k), ops.sums_by(ones, y, k)]
        if self.state is None or self.state.shape[0] == 2:
            return ops.reshape(ops.concat(sums), (2, k))
        predicted = ops.cast(ops.reshape(ops.class_argmax(self._divided()), (-1,)), y)
        right = ops.where(predicted == y, ones, 0.0)
        sums += [ops.sums_by(ones, predicted, k), ops.sums_by(right, y, k)]
        counts = ops.sums_by(ones, y * k + predicted, k * k)
        return ops.concat([ops.stack(sums), ops.reshape(counts, (k, k))])


class Batch:
    """The mini-batch as a rule sees it: the protocol `sigua.Batch`.

    Args:
        ops: the framework's names.
        losses: (n,), float32 or better; +inf for who takes no part.
        size: how many take part.
        trusted: bool, (n,), a `Split` of two masks, or None.
        sums: returns 1'T^-1 l, (n,); None without backward correction.
        margins: returns margins, by class or not, with a power; None if the rule reads none.
    """

    def __init__(
        self,
        ops: Any,
        losses: Array,
        size: Any,
        trusted: Any = None,
        sums: Callable[[], Array] | None = None,
        margins: Callable[[bool, float], Array] | None = None,
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

    def margins(self, by_class: bool = True, power: float = 0.0) -> Array:
        if self._margins is None:
            raise no_margins()
        return self._margins(by_class, power)


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
        margins: Callable[[bool, float], Array] | None = None,
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
    size: Any = None,
    shares: Array | None = None,
    trusted: Any = None,
    sums: Callable[[], Array] | None = None,
    margins: Callable[[bool, float], Array] | None = None,
    groups: Array | None = None,
) -> Selection:
    """Return who is good and who is bad, and what each weighs.

    Args:
        ops: the framework's names.
        method: whose condition decides.
        numbers: `method.at(epoch)`, as numbers or 0-d tensors.
        losses: (n,), without gradient, float32 or better: what decides, without class weights.
        valid: bool, (n,): who takes part; None for all.
        size: how many do, if it is known.
        shares: (n,), each example's part of the denominator, where good and bad are averaged apart;
            None for 1 each.
        trusted: bool, (n,), or a `Split` of two masks.
        sums: returns 1'T^-1 l, (n,).
        margins: returns margins, by class or not, with a power: a `Margins`.
        groups: integers, (n,): who is judged together; None for all.
    """
    ranked = losses if valid is None else ops.where(valid, losses, INF)
    silent = ranked > FINITE
    if not is_built_in(method.condition):  # which may write to what it is given
        ranked = ops.where(silent, INF, ranked)
    given = trusted, sums, margins
    if size is None:
        size = losses.shape[0] if valid is None else ops.sum(ops.integers(valid))
    if groups is None:
        batch = Batch(ops, ranked, size, *given)
    else:
        batch = Grouped(ops, ranked, valid, groups, *given)
    split = choose(method.condition, batch, numbers[1:])
    weights = signed(ops, split, numbers[0], method.separate, size, shares, losses)
    if ops.are_small(ranked, FINITE):
        return Selection(*split, weights, silent)
    # If nothing is finite, nobody would be told: all count then, and the objective is infinite.
    lost = ops.all(silent)
    lost = lost if valid is None else lost & valid
    return Selection(*split, ops.where(lost, 1.0, weights), silent & ~lost)


def signed(
    ops: Any, split: Split, gamma: Any, separate: bool, size: Any, shares: Array | None, like: Array
) -> Array:
    """Return good - gamma * bad, (n,), in the dtype of `like`."""
    good = ops.cast(split.good, like)
    if not separate:
        return ops.where(split.bad, -gamma, good)
    total = size if shares is None else ops.sum(shares)
    good, bad = (_averaged(ops, ops.cast(mask, like), total, shares) for mask in split)
    return good - gamma * bad


def _averaged(ops: Any, mask: Array, total: Any, shares: Array | None) -> Array:
    """Return a mask such that its mean over `total` is that over its own part of it."""
    return mask * (total / ops.or_one(ops.sum(mask if shares is None else mask * shares)))
