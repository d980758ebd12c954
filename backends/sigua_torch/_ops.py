"""PyTorch's names for the step: `sigua.step.numpy_names` says what each of them does."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, abs, all, exp, log, reshape, roll, stack, where
from torch.nn import functional as F

__all__ = ["abs", "all", "exp", "log", "reshape", "roll", "stack", "where"]

INF = float("inf")


def is_plain(x: Tensor) -> bool:
    """Return whether NumPy can look at the memory of x: on the CPU, eager, and no subclass's own."""
    if torch.compiler.is_compiling() or not x.is_cpu:
        return False
    if torch._C._are_functorch_transforms_active():
        return False
    return type(x) is Tensor or type(x).__torch_dispatch__ is Tensor.__torch_dispatch__


def is_transformed() -> bool:
    """Return whether this is eager code inside a transform of `torch.func`."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def stop_gradient(x: Tensor) -> Tensor:
    return x.detach()


def cast(x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


def integers(mask: Tensor) -> Tensor:
    return mask.long()


def constant(array: Any, like: Tensor) -> Tensor:
    if isinstance(array, Tensor):
        return array.to(like.dtype)
    # Rows are gathered, several times as fast where each is in one piece.
    return torch.tensor(np.ascontiguousarray(array), dtype=like.dtype, device=like.device)


def index(array: Any, like: Tensor) -> Tensor:
    return torch.tensor(array, dtype=torch.int64, device=like.device)


def class_sum(x: Tensor) -> Tensor:
    return x.sum(1)


def class_max(x: Tensor) -> Tensor:
    return x.amax(1)


def class_argmax(x: Tensor) -> Tensor:
    return x.argmax(1)


def softmax(z: Tensor) -> Tensor:
    return z.softmax(1)


def log_softmax(z: Tensor) -> Tensor:
    return z.log_softmax(1)


def logsumexp(x: Tensor) -> Tensor:
    return x.logsumexp(1)


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(z, y, reduction="none")


def at(x: Tensor, y: Tensor) -> Tensor:
    return x.gather(1, y.unsqueeze(1)).squeeze(1)


def without(x: Tensor, y: Tensor) -> Tensor:
    return x.scatter(1, y.unsqueeze(1), -INF)


def along(x: Tensor, columns: Tensor) -> Tensor:
    return x.gather(1, columns)


def columns(x: Tensor, indices: Tensor) -> Tensor:
    return x.index_select(1, indices)


def rows(table: Tensor, y: Tensor) -> Tensor:
    # index_select copies whole rows, where table[y] goes entry by entry.
    found = table.index_select(0, y.reshape(-1))
    return found if y.ndim == 1 else found.reshape(*y.shape, -1).movedim(-1, 1)


def take(x: Tensor, index: Tensor) -> Tensor:
    return x[index]


def per_class(c: Tensor, x: Tensor) -> Tensor:
    return c.to(x.dtype).reshape(-1, *[1] * (x.ndim - 2))


def expand(x: Tensor) -> Tensor:
    return x.unsqueeze(1)


def matmul(matrix: Tensor, x: Tensor) -> Tensor:
    device = x.device.type
    can_cast = torch.amp.is_autocast_available(device)
    with torch.autocast(device, enabled=False) if can_cast else nullcontext():
        return (x.movedim(1, -1) @ matrix.t()).movedim(-1, 1)


def full_labels(x: Tensor, label: int) -> Tensor:
    return torch.full_like(x.select(1, 0), label, dtype=torch.int64)


def floor(z: Tensor, low: float) -> Tensor:
    if is_plain(z) and z.numel() and z.detach().min().item() >= low:
        return z
    return z.clamp(min=low)


def sum(x: Tensor) -> Tensor:
    return x.sum()


def sums_by(values: Tensor, groups: Tensor, number: int) -> Tensor:
    return values.new_zeros(number).index_add(0, groups, values)


def argsort(x: Tensor) -> Tensor:
    return x.argsort(stable=True)


def cumsum(x: Tensor) -> Tensor:
    return x.cumsum(0)


def minimum(x: Tensor, y: Any) -> Tensor:
    return torch.minimum(x, y) if isinstance(y, Tensor) else x.clamp(max=y)


def maximum(x: Tensor, y: Any) -> Tensor:
    return torch.maximum(x, y) if isinstance(y, Tensor) else x.clamp(min=y)


def last(losses: Tensor) -> Tensor:
    return losses.nan_to_num(INF, INF, -INF)


def sort(x: Tensor) -> Tensor:
    """Return the losses in order, with -inf before them: what `nth` finds for 0."""
    return torch.cat([x.new_full((1,), -INF), x.sort().values])


def nth(ordered: Tensor, count: Any, size: Any) -> Tensor:
    if not isinstance(count, Tensor):  # filled there, where a copy would wait
        count = torch.full((), count, device=ordered.device)
    return ordered.index_select(0, count.clamp(max=size).reshape(1)).squeeze(0)


def or_one(number: Any) -> Any:
    if not isinstance(number, Tensor):
        return number if number else 1.0
    return number + (number == 0)
