"""The everyday case in few operators: eager, on the CPU, nothing weighted, ignored or infinite.

A rule on the loss alone is a bucketing: good up to a first limit, bad up to a second. It equals the
general path and is tested against it; the benchmark says what it buys.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sigua import AllGood, Method, NonNegative, SmallLoss, Split

SORT_UP_TO = 512  # above, two selections (kthvalue) cost less than one sort


class FlatRule:
    """What depends on the epoch and the batch size is made once; a step is a few operators.

    Args:
        method: one for which `applies` holds.
        mean: divide by n.
    """

    def __init__(self, method: Method, mean: bool) -> None:
        self.condition = method.condition
        self.mean = mean
        self._key: tuple[Any, ...] = ()

    @staticmethod
    def applies(method: Method) -> bool:
        """Return whether the rule is made of limits on the loss, and one mean."""
        condition = method.condition
        on_label = isinstance(condition, NonNegative) and condition.over == "label"
        return (on_label or isinstance(condition, (AllGood, SmallLoss))) and not method.separate

    def __call__(self, losses: Tensor, numbers: tuple[Any, ...]) -> tuple[Tensor, Tensor] | None:
        """Return the weights and the codes 0 good, 1 bad, 2 neither; None if a loss is not finite.

        Args:
            losses: float, (n,), n > 0, without gradient.
            numbers: gamma and the condition's numbers.
        """
        n = losses.shape[0]
        if self._key != (n, losses.dtype, numbers):
            self._prepare(n, losses.dtype, numbers)
        if isinstance(self.condition, SmallLoss):
            largest, limits = self._order_statistics(losses)
        else:
            largest, limits = losses.max(), self._limits
        if not largest.item() < float("inf"):  # NaN is every maximum, and comes last in a sort
            return None
        judged = -losses if isinstance(self.condition, NonNegative) else losses
        codes = torch.bucketize(judged, limits)  # 0 up to the first limit, inclusive
        return self._table[codes], codes

    def _order_statistics(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        if losses.shape[0] <= SORT_UP_TO:
            ordered = losses.sort().values
            return ordered[-1], ordered[self._places]
        limits = [losses.kthvalue(count).values for count in self._counts]
        return losses.max(), torch.stack(limits)

    def _prepare(self, n: int, dtype: torch.dtype, numbers: tuple[Any, ...]) -> None:
        gamma, *rates = numbers
        if isinstance(self.condition, SmallLoss):
            self._counts = [min(count, n) for count in self.condition.counts(n, *rates)]
            self._places = torch.tensor(self._counts) - 1
        else:  # everything is good; or good is -loss <= 0
            limit = 0.0 if isinstance(self.condition, NonNegative) else float("inf")
            self._limits = torch.tensor([limit], dtype=dtype)
        scale = 1 / n if self.mean else 1.0
        self._table = torch.tensor([scale, -gamma * scale, 0.0], dtype=dtype)
        self._key = (n, dtype, numbers)


def to_split(codes: Tensor) -> Split:
    return Split(codes == 0, codes == 1)
