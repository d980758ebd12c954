"""The everyday case in few operators: eager small loss, on the CPU, nothing weighted or ignored.

It equals the general path and is tested against it; the benchmark says what it buys.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sigua import Method, SmallLoss, Split

SORT_UP_TO = 512  # above, two selections (kthvalue) cost less than one sort


class FlatSmallLoss:
    """Counts and weights are made once per epoch and batch size; then one sort and one bucketing.

    Args:
        condition: the paper's `SmallLoss`.
        mean: divide by n.
    """

    def __init__(self, condition: SmallLoss, mean: bool) -> None:
        self.condition = condition
        self.mean = mean
        self._key: tuple[Any, ...] = ()

    @classmethod
    def of(cls, method: Method, mean: bool) -> FlatSmallLoss | None:
        """Return the short way for a method; None if it has none."""
        condition = method.condition
        if isinstance(condition, SmallLoss) and not method.separate:
            return cls(condition, mean)
        return None

    def __call__(self, losses: Tensor, numbers: tuple[Any, ...]) -> tuple[Tensor, Tensor] | None:
        """Return the weights and the codes 0 good, 1 bad, 2 neither; None if a loss is not finite.

        Args:
            losses: float, (n,), n > 0, without gradient.
            numbers: gamma and the condition's numbers.
        """
        n = len(losses)
        if self._key != (n, losses.dtype, numbers):
            self._prepare(n, losses.dtype, numbers)
        if n <= SORT_UP_TO:
            ordered = losses.sort().values
            largest, limits = ordered[-1], ordered[self._places]
        else:
            largest = losses.max()
            limits = torch.stack([losses.kthvalue(count).values for count in self._counts])
        if not largest.item() < float("inf"):  # NaN comes last in a sort, and is every maximum
            return None
        codes = torch.bucketize(losses, limits)  # 0 up to the first limit, inclusive
        return self._table[codes], codes

    def _prepare(self, n: int, dtype: torch.dtype, numbers: tuple[Any, ...]) -> None:
        gamma, *rates = numbers
        self._counts = [min(count, n) for count in self.condition.counts(n, *rates)]
        self._places = torch.tensor(self._counts) - 1
        scale = 1 / n if self.mean else 1.0
        self._table = torch.tensor([scale, -gamma * scale, 0.0], dtype=dtype)
        self._key = (n, dtype, numbers)


def to_split(codes: Tensor) -> Split:
    return Split(codes == 0, codes == 1)
