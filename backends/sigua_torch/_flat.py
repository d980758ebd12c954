"""A fast path for the everyday call: eager, on the CPU, nothing weighted, ignored or infinite.

A rule on the loss alone puts examples into buckets: good up to a first limit, bad up to a second.
NumPy does this on the memory of the losses: its sort is several times as fast as PyTorch's, and its
calls cost less. The result equals that of the general path, which the tests compare it with; the
benchmark shows the gain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigua import AllGood, Method, NonNegative, SmallLoss, Split

Array = NDArray[Any]
INF = float("inf")
PRECISE = (torch.float32, torch.float64)
SEARCH_UP_TO = 1024  # above this, two comparisons cost less than a search per value


def is_transformed() -> bool:
    """Return whether a transform of `torch.func` is active, whose tensors have no memory."""
    return bool(torch._C._are_functorch_transforms_active())


def is_traced() -> bool:
    """Return whether tensors have no value to read here: in a graph, or under `torch.vmap`."""
    if torch.compiler.is_compiling() or not is_transformed():
        return torch.compiler.is_compiling()
    stack = torch._C._functorch.get_interpreter_stack() or []
    return any(each.key() == torch._C._functorch.TransformType.Vmap for each in stack)


def is_visible(tensor: Tensor) -> bool:
    """Return whether a value can be read without waiting for a device."""
    return tensor.device.type == "cpu" and not is_traced()


def is_everyday(logits: Any, target: Any) -> bool:
    """Return whether these are plain float logits and class indices in memory, at least one."""
    return (
        type(logits) is Tensor
        and type(target) is Tensor
        and logits.is_cpu
        and target.is_cpu
        and logits.dtype in PRECISE
        and target.dtype == torch.int64
        and logits.ndim > 1
        and logits.shape[1] > 1
        and logits.shape[:1] + logits.shape[2:] == target.shape
        and target.numel() > 0
    )


class FlatRule:
    """A rule of limits on the loss. What depends on the epoch and the batch size is made once.

    Args:
        method: a method for which `applies` is true.
    """

    def __init__(self, method: Method) -> None:
        self.condition = method.condition
        self._made: tuple[Any, ...] = (None, None, None)

    @staticmethod
    def applies(method: Method) -> bool:
        """Return whether the rule consists of limits on the loss, and of one mean."""
        condition, kind = method.condition, type(method.condition)  # a subclass has its own rule
        on_label = kind is NonNegative and getattr(condition, "over", None) == "label"
        by_rank = kind is SmallLoss and getattr(condition, "variant", None) == "paper"
        return (by_rank or on_label or kind is AllGood) and not method.separate

    def __call__(
        self, losses: Tensor, numbers: tuple[Any, ...], mean: bool, *_: Tensor
    ) -> tuple[Tensor, Array] | None:
        """Return the weights and the codes: 0 good, 1 bad, 2 neither. None if a loss is not finite.

        Args:
            losses: float, (n,), n > 0, without gradient.
            numbers: gamma and the condition's numbers.
            mean: whether to divide by n.
        """
        values: Array = losses.numpy()
        # Read and written together, because another thread may have another batch size.
        key, limits, table = self._made
        if key != (len(values), values.dtype, mean, numbers):
            key, limits, table = self._made = self._make(len(values), values.dtype, mean, numbers)
        if isinstance(self.condition, SmallLoss):
            ordered = np.sort(values)  # puts NaN last
            limits, finite = ordered[limits], ordered[0] > -INF and ordered[-1] < INF
        else:  # a loss too large to be squared counts as infinite
            finite = torch.dot(losses, losses).item() < INF
        if not finite:
            return None
        judged = -values if isinstance(self.condition, NonNegative) else values
        codes = _buckets(judged, limits)
        return torch.from_numpy(table[codes]), codes

    def _make(
        self, n: int, dtype: Any, mean: bool, numbers: tuple[Any, ...]
    ) -> tuple[Any, Array, Array]:
        """Return the key, the limits (or their ranks), and the weight of each code."""
        gamma, *rates = numbers
        if isinstance(self.condition, SmallLoss):
            limits = np.minimum(self.condition.counts(n, *rates), n) - 1
        else:  # everything is good; or good is -loss <= 0
            limit = 0.0 if isinstance(self.condition, NonNegative) else INF
            limits = np.array([limit, INF], dtype)
        scale = 1 / n if mean else 1.0
        table = np.array([scale, -gamma * scale, 0.0], dtype)
        return (n, dtype, mean, numbers), limits, table


def _buckets(values: Array, limits: Array) -> Array:
    """Return how many of the two limits each value exceeds."""
    if len(values) <= SEARCH_UP_TO:
        return limits.searchsorted(values)
    exceeds: Array = (values > limits[0]).view(np.int8) + (values > limits[1])
    return exceeds


def to_split(codes: Array, shape: torch.Size) -> Split:
    """Return the masks of codes, in a shape."""
    good, bad = (torch.from_numpy(codes == code).reshape(shape) for code in (0, 1))
    return Split(good, bad)
