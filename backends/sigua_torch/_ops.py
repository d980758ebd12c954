"""PyTorch's names for the step: `sigua.step.numpy_names` says what each of them does."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, abs, all, log, reshape, roll, stack, sum
from torch import cat as concat
from torch.nn import functional as F

from sigua import Split

__all__ = ["abs", "all", "concat", "log", "reshape", "roll", "stack", "sum"]

INF = float("inf")
HALF = torch.float16, torch.bfloat16
COUNTED = 512

stop_gradient, integers = Tensor.detach, Tensor.long
class_sum, class_max = partial(torch.sum, dim=1), partial(torch.amax, dim=1)
class_argmax, expand = partial(torch.argmax, dim=1), partial(torch.unsqueeze, dim=1)
softmax, log_softmax = partial(torch.softmax, dim=1), partial(torch.log_softmax, dim=1)
logsumexp, cumsum = partial(torch.logsumexp, dim=1), partial(torch.cumsum, dim=0)
argsort = partial(torch.argsort, stable=True)
cross_entropy = partial(F.cross_entropy, reduction="none")


def exact(x: Tensor) -> Tensor:
    """Return it in float32 or better, if it is a float."""
    return x.float() if x.dtype in HALF else x


def is_transformed() -> bool:
    """Return whether this is eager code inside a transform of `torch.func`."""
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


def is_viewable(x: Tensor) -> bool:
    """Return whether NumPy can look at x: in memory, eager, no subclass with ways of its own."""
    if torch.compiler.is_compiling() or not x.is_cpu or is_transformed():
        return False
    return type(x) is Tensor or type(x).__torch_dispatch__ is Tensor.__torch_dispatch__


def as_view(x: Any) -> Any:
    """Return tensors as NumPy's views of their memory, and anything else as it is."""
    if isinstance(x, Tensor):
        return x.numpy(force=True)  # also of a negated view
    return Split(as_view(x.good), as_view(x.bad)) if isinstance(x, Split) else x


def as_tensor(x: Any) -> Tensor:
    """Return NumPy's arrays as tensors on their memory, and tensors as they are."""
    return x if isinstance(x, Tensor) else torch.from_numpy(x)


def column(x: Any) -> Any:
    """Return a tensor, or a pair, as one column each; `reshape` costs where it is one."""
    if isinstance(x, Split):
        return Split(*map(column, x))
    return x if x is None or x.ndim == 1 else x.reshape(-1)


def cast(x: Tensor, like: Tensor) -> Tensor:
    return x.to(like.dtype)


def constant(array: Any, like: Tensor) -> Tensor:
    if isinstance(array, Tensor):
        return array.to(like.dtype)
    # Rows are gathered, several times as fast where each is in one piece.
    return torch.tensor(np.asarray(array, order="C"), dtype=like.dtype, device=like.device)


def index(array: Any, like: Tensor) -> Tensor:
    return torch.tensor(array, dtype=torch.int64, device=like.device)


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
    return found if y.ndim == 1 else found.reshape(*y.shape, table.shape[1]).movedim(-1, 1)


def take(x: Tensor, index: Tensor) -> Tensor:
    return x[index]


def per_class(c: Tensor, x: Tensor) -> Tensor:
    return c.to(x.dtype).reshape(-1, *[1] * (x.ndim - 2))


def matmul(matrix: Tensor, x: Tensor) -> Tensor:
    device = x.device.type  # in full precision under autocast, too
    can_cast = torch.amp.is_autocast_available(device)
    with torch.autocast(device, enabled=False) if can_cast else nullcontext():
        return (x.movedim(1, -1) @ matrix.t()).movedim(-1, 1)


def full_labels(x: Tensor, label: int) -> Tensor:
    return torch.full_like(x.select(1, 0), label, dtype=torch.int64)


def floor(z: Tensor, low: float) -> Tensor:
    if is_viewable(z) and z.numel() and z.detach().min().item() >= low:
        return z
    return z.clamp(min=low)


def where(mask: Tensor, x: Any, y: Any) -> Tensor:
    if isinstance(y, Tensor) and not isinstance(x, Tensor):  # a number would be a tensor of its own
        return y.masked_fill(mask, x)
    return x.masked_fill(~mask, y) if not isinstance(y, Tensor) else torch.where(mask, x, y)


def are_small(x: Tensor, limit: float) -> bool:
    column = x.detach().reshape(-1)
    return is_viewable(x) and torch.dot(column, column).item() <= limit * limit


def sums_by(values: Tensor, groups: Tensor, number: int) -> Tensor:
    return values.new_zeros(number).index_add(0, groups, values)


def minimum(x: Tensor, y: Any) -> Tensor:
    return torch.minimum(x, y) if isinstance(y, Tensor) else x.clamp(max=y)


def maximum(x: Tensor, y: Any) -> Tensor:
    return torch.maximum(x, y) if isinstance(y, Tensor) else x.clamp(min=y)


def last(losses: Tensor) -> Tensor:
    return losses.nan_to_num(INF, INF, -INF)


def sort(x: Tensor) -> Any:
    """Return the losses in order, after -inf: what `nth` finds for 0.

    In a graph for the CPU, where a call of a sort takes longer than all the rest, up to `COUNTED`
    losses are compared with each other: they, and how many are smaller than each.
    """
    if torch.compiler.is_compiling() and x.is_cpu and 0 < x.shape[0] <= COUNTED:
        # With `unsqueeze`, inductor would measure the losses again for each comparison.
        row = x.as_strided((x.shape[0], 1), (x.stride(0), 0))
        return x, (x < row).to(x.dtype).sum(1)
    return F.pad(x.sort().values, (1, 0), value=-INF)


def nth(ordered: Any, count: Any, size: Any) -> Tensor:
    if isinstance(ordered, tuple):
        losses, smaller = ordered
        reached: Tensor = smaller < torch.as_tensor(count).clamp(max=size)
        smallest: Tensor = where(reached, losses, -INF).amax()
        return smallest
    if not isinstance(count, Tensor):  # filled there, where a copy would wait
        count = torch.full((), count, device=ordered.device)
    found: Tensor = ordered.index_select(0, count.clamp(max=size).reshape(1)).squeeze(0)
    return found


def or_one(number: Any) -> Any:
    if not isinstance(number, Tensor):
        return number or 1
    return number + (number == 0) if number.is_floating_point() else number.clamp(min=1)
