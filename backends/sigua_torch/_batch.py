"""`sigua.Batch` on tensors: the order statistic and the means that the rules ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sigua import Split
from sigua.conditions import no_class_sums, no_margins
from sigua_torch._flat import INF
from sigua_torch._measure import class_dim, is_index


@dataclass(eq=False)
class HostBatch:
    """For CPU tensors outside a compiled graph, where reading a number costs no synchronisation.

    Counts and thresholds are Python numbers, and one selection (`kthvalue`) serves a threshold.
    """

    losses: Tensor
    size: Any
    trusted: Tensor | Split | None
    sums: Tensor | None
    measure_margins: Callable[[bool], Tensor] | None = None

    def smallest(self, count: Any) -> Any:
        count = min(count, self.size)
        if count == 0:
            return -INF
        value = self.losses.kthvalue(count).values.item()
        return value if value == value else INF  # kthvalue puts NaN last, after +inf

    def mean(self) -> Tensor:
        counted = self.losses != INF  # +inf takes no part, or says nothing; NaN stays
        mean: Tensor = torch.where(counted, self.losses, 0.0).sum() / counted.sum().clamp(min=1)
        return mean

    def class_sums(self) -> Tensor:
        if self.sums is None:
            raise no_class_sums()
        return self.sums

    def margins(self, by_class: bool = True) -> Tensor:
        if self.measure_margins is None:
            raise no_margins()
        return self.measure_margins(by_class)


class DeviceBatch(HostBatch):
    """For accelerators and compiled graphs: counts stay on the device, and one sort serves all."""

    _ordered: Tensor | None = None

    def smallest(self, count: Any) -> Any:
        if self._ordered is None:
            ordered = self.losses.nan_to_num(INF, INF, -INF).sort().values
            self._ordered = torch.cat([ordered.new_full((1,), -INF), ordered])
        if not isinstance(count, Tensor):  # filled there, where a copy would wait
            count = torch.full((), count, device=self.losses.device)
        return self._ordered.index_select(0, count.clamp(max=self.size).reshape(-1))

    def between(self, counts: tuple[Any, Any]) -> Split:
        """Return who is up to the first order statistic, and who only up to the second.

        NaN and +inf are neither. Each operator is a launch on a card, and these are few.
        """
        limits = self.smallest(torch.stack(counts)).clamp(max=torch.finfo(self.losses.dtype).max)
        codes = torch.bucketize(self.losses, limits, out_int32=True)
        return Split(codes == 0, codes == 1)


class Groups(NamedTuple):
    """Which group each example belongs to."""

    of: Tensor
    """int64, (n,), in [0, number)."""
    number: int

    def sums(self, values: Tensor) -> Tensor:
        """Return the sum over each group, (number,), of a value per example."""
        return values.new_zeros(self.number).scatter_add(0, self.of, values)


class GroupedBatch(HostBatch):
    """`sigua.Batch` that answers each example for its own group.

    Sizes, thresholds and means have an entry per example, so that the rules need not know. Nothing
    is read off the device, and no shape depends on the data.
    """

    def __init__(
        self, losses: Tensor, valid: Tensor | None, trusted: Any, sums: Any, groups: Groups
    ) -> None:
        self.groups = groups
        sizes = groups.sums(torch.ones_like(groups.of) if valid is None else valid.long())
        super().__init__(losses, self._of(sizes), trusted, sums)
        self._ordered: Tensor | None = None

    def _of(self, per_group: Tensor) -> Tensor:
        return per_group.index_select(0, self.groups.of)

    def smallest(self, count: Any) -> Tensor:
        if self._ordered is None:
            # Groups lie one after the other, each ascending; those who take no part are last in it.
            losses = self.losses.masked_fill(self.losses.isnan(), INF)
            order = losses.argsort()
            self._ordered = losses[order[self.groups.of[order].argsort(stable=True)]]
            members = self.groups.sums(torch.ones_like(self.groups.of))
            self._start = self._of(members.cumsum(0) - members)
        count = self.size.clamp(max=count)
        place = (self._start + count - 1).clamp(min=0, max=max(len(self._ordered) - 1, 0))
        return self._ordered[place].masked_fill(count == 0, -INF)

    def mean(self) -> Tensor:
        counted = self.losses != INF
        totals = self.groups.sums(torch.where(counted, self.losses, 0.0))
        return self._of(totals / self.groups.sums(counted.long()).clamp(min=1))


def find_groups(
    per_class: bool, per_image: bool, logits: Tensor, target: Tensor, shape: torch.Size
) -> Groups | None:
    """Return the groups that are judged apart; None for the mini-batch as a whole.

    Args:
        per_class: whether the examples of each label are.
        per_image: whether the examples of each entry of dimension 0 are.
        logits: (N, k, d1, ...).
        target: class indices, (N, d1, ...), those that are ignored among them replaced; or floats.
        shape: that of the losses, an example each.

    Raises:
        ValueError: `per_class` and class probabilities, or `per_image` and one loss per image.
    """
    if not per_class and not per_image:
        return None
    index, count = torch.zeros(shape.numel(), dtype=torch.int64, device=logits.device), 1
    if per_class:
        if not is_index(logits, target) or target.is_floating_point():
            raise ValueError(
                "per_class: must come with class indices, got probabilities; "
                "try target.argmax(1), target.long() with a sigmoid, or leaving per_class out"
            )
        index, count = target.reshape(-1), logits.shape[class_dim(logits)]
    if per_image:
        images = logits.shape[0] if logits.ndim > 1 else 1
        own = len(index) // max(images, 1)
        if images > 1 and own == 1:
            raise ValueError(
                "per_image: must come with several losses per image, one for each pixel or time "
                f"step, got one for each of {images}; try leaving it out"
            )
        index = index + count * torch.arange(images, device=index.device).repeat_interleave(own)
        count *= images
    return Groups(index, count)
