"""From measured examples to their weights in Eq. 3, over one process or a group of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sigua import Method, SmallLoss, Split
from sigua.conditions import choose, is_built_in
from sigua_torch import _graph
from sigua_torch._batch import DeviceBatch, GroupedBatch, Groups, HostBatch
from sigua_torch._examples import Examples
from sigua_torch._flat import INF, to_split
from sigua_torch._measured import Measured
from sigua_torch._pool import Pool


class LastSplit:
    """Who was good and bad in the last training call.

    It is no attribute of the criterion's own, which a module sets slowly.
    """

    def __init__(self) -> None:
        self.found: Split | tuple[Any, torch.Size] | None = None  # or codes, and their shape

    def masks(self) -> Split | None:
        found = self.found
        return found if found is None or isinstance(found, Split) else to_split(*found)


class Columns(NamedTuple):
    """A mini-batch as the rules see it; every entry has shape (n,) and no gradient."""

    ranked: Tensor
    """What ranks an example: its loss without class weights."""
    valid: Tensor | None = None
    """bool: who takes part; None for everybody."""
    shares: Tensor | None = None
    """Each example's part of the plain criterion's denominator; None for 1 each."""
    sums: Tensor | None = None
    """1'T^-1 l, where the rule asks for it."""
    trusted: Tensor | Split | None = None
    groups: Groups | None = None
    """Who is judged together; None for all."""
    margins: Callable[[bool], Tensor] | None = None
    """Returns the margins, by class or not, where the rule asks for them."""

    @classmethod
    def of(
        cls,
        examples: Examples,
        found: Measured,
        trusted: Any,
        groups: Groups | None,
        margins: Callable[[bool], Tensor] | None,
    ) -> Columns:
        """Return the columns of examples of any shape."""
        parts = found.ranked, examples.valid, found.shares, found.sums, trusted
        ranked, valid, shares, sums, trusted = map(flattened, parts)
        return cls(ranked, valid, shares, sums, trusted, groups, margins)


@dataclass
class Selector:
    """Applies a method's rule.

    Args:
        method: whose condition decides.
        pool: the processes whose mini-batches are one; None for this process alone.
    """

    method: Method
    pool: Pool | None = None

    def __call__(
        self, columns: Columns, numbers: tuple[Any, ...], items: Any, on_host: bool, mean: bool
    ) -> tuple[Tensor, Split]:
        """Return the factors of Eq. 3, (n,), and who is good and bad.

        Args:
            columns: the mini-batch.
            numbers: gamma and the condition's.
            items: what to divide by instead of the denominator; None for that.
            on_host: whether a number may be read off a tensor.
            mean: whether to divide by the plain criterion's denominator.
        """
        ranked, valid, shares, *_ = columns
        n = len(ranked)
        if self.pool is not None:
            columns = self._pooled(columns, self.pool)
            ranked, valid, shares, *_ = columns
        condition = self.method.condition
        size: Any = len(ranked)
        if valid is not None:
            ranked = ranked.masked_fill(~valid, INF)
            size = int(valid.sum()) if on_host else valid.sum()
        elif not is_built_in(condition):
            ranked = ranked.clone()  # a user's rule may write to it, and it may be the losses
        given = columns.trusted, columns.sums
        if columns.groups is not None:
            batch: HostBatch = GroupedBatch(ranked, valid, *given, columns.groups)
        else:
            batch = (HostBatch if on_host else DeviceBatch)(ranked, size, *given, columns.margins)
        whole = columns.groups is None and not self.method.separate
        if whole and _graph.takes(condition, ranked):
            split, weights = _graph.small_loss(condition, ranked, size, numbers)
        else:
            if type(condition) is SmallLoss and isinstance(batch, DeviceBatch):
                split = batch.between(condition.counts(size, *numbers[1:]))
            else:
                split = choose(condition, batch, numbers[1:])
            weights = self._weights(split, numbers[0], shares, size, ranked.dtype)
        if mean:
            weights = weights / _or_one(self._denominator(shares, size, items))
        if self.pool is not None:
            own = self.pool.own
            weights, split = own(weights, n), Split(own(split.good, n), own(split.bad, n))
        return weights, split

    def _denominator(self, shares: Tensor | None, size: Any, items: Any) -> Any:
        if items is not None:
            return items
        total = size if shares is None else shares.sum()
        # Gradients are averaged over the processes, and are to sum up to the whole's.
        return total if self.pool is None else total / self.pool.processes

    def _weights(
        self, split: Split, gamma: Any, shares: Tensor | None, size: Any, dtype: torch.dtype
    ) -> Tensor:
        good = split.good.to(dtype)
        if self.method.separate:
            bad = split.bad.to(dtype)
            total = size if shares is None else shares.sum()
            good = good * (total / _or_one((good if shares is None else good * shares).sum()))
            bad = bad * (total / _or_one((bad if shares is None else bad * shares).sum()))
            weights: Tensor = good - gamma * bad
            return weights
        return torch.where(split.bad, -gamma, good)

    def _pooled(self, own: Columns, pool: Pool) -> Columns:
        """Return the examples of all processes; padding takes no part."""
        ranked, valid, shares, sums, trusted, groups, margins = own
        valid = torch.ones_like(ranked, dtype=torch.bool) if valid is None else valid
        marks = trusted if isinstance(trusted, Split) else (trusted,)
        columns = [None if groups is None else groups.of, shares, sums, *marks]
        given = [column for column in columns if column is not None]
        ranked, valid, *rest = pool.gather(ranked, valid, *given)
        found = iter(rest)
        index, shares, sums, *masks = (
            None if column is None else next(found) for column in columns
        )
        masks = [None if mask is None else mask.bool() for mask in masks]
        pooled = Split(*masks) if isinstance(trusted, Split) else masks[0]
        if groups is not None and index is not None:
            groups = Groups(index.long(), groups.number)
        gathered = None if margins is None else lambda by_class: pool.gather(margins(by_class))[0]
        return Columns(ranked, valid.bool(), shares, sums, pooled, groups, gathered)


def flattened(part: Any) -> Any:
    """Return a tensor or a pair of masks as one column each; `reshape` costs where it is one."""
    if isinstance(part, Split):
        return Split(*(mask.reshape(-1) for mask in part))
    return part if part is None or part.ndim == 1 else part.reshape(-1)


def _or_one(number: Any) -> Any:
    """Return a denominator, or 1 where it is 0 and so is everything above it."""
    if isinstance(number, Tensor) and not number.is_floating_point():
        return number.clamp(min=1)
    return number + (number == 0)
