"""`sigua.Batch` on tensors: the order statistic and the means that the rules ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sigua import Split
from sigua.conditions import no_class_sums

INF = float("inf")


@dataclass(eq=False)
class HostBatch:
    """For CPU tensors outside a compiled graph, where reading a number costs no synchronisation.

    Counts and thresholds are Python numbers, and one selection (`kthvalue`) serves a threshold.
    """

    losses: Tensor
    size: Any
    trusted: Tensor | Split | None
    sums: Tensor | None

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


class DeviceBatch(HostBatch):
    """For accelerators and compiled graphs: counts stay on the device, and one sort serves all."""

    _ordered: Tensor | None = None

    def smallest(self, count: Any) -> Any:
        if self._ordered is None:
            ordered = self.losses.masked_fill(self.losses.isnan(), INF).sort().values
            self._ordered = torch.cat([ordered.new_full((1,), -INF), ordered])
        if not isinstance(count, Tensor):  # filled there, where a copy would wait
            count = torch.full((), count, device=self.losses.device)
        return self._ordered.index_select(0, count.clamp(max=self.size).reshape(1))
