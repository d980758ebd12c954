"""Small-loss selection in a graph that is compiled for the CPU: without a sort, or by NumPy's.

Inductor fuses no sort there but calls PyTorch's, which takes twice as long as all the rest; and
what it makes of the masks, which are bytes, is slow. So many losses go to one operator. As
`torch.library.custom_op` its call alone would take longer than a sort of 128 losses.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from sigua import SmallLoss, Split
from sigua_torch._flat import INF, Array, is_transformed

COUNTED = 512
"""Up to so many losses, n^2 comparisons, which inductor fuses, take less time than the operator."""

_LIBRARY = torch.library.Library("sigua", "FRAGMENT")  # type: ignore[no-untyped-call]  # PyTorch's
_LIBRARY.define(  # type: ignore[no-untyped-call]  # PyTorch's
    "small_loss(Tensor losses, Tensor kept, Tensor reached, Tensor gamma) "
    "-> (Tensor, Tensor, Tensor)"
)


def is_here(losses: Tensor) -> bool:
    """Return whether such a graph is being traced, outside the transforms of `torch.func`."""
    return torch.compiler.is_compiling() and losses.is_cpu and not is_transformed()


def takes(condition: object, losses: Tensor) -> TypeGuard[SmallLoss]:
    """Return whether such a graph selects by `small_loss`; a subclass has a rule of its own."""
    return type(condition) is SmallLoss and is_here(losses)


def finite(losses: Tensor, weights: Tensor) -> Tensor:
    """Return the losses with 0 where they are infinite, and so have weight 0.

    The backward pass finds out from the weights, which it has, where there is no gradient, and
    needs no mask of its own, which inductor would write and read byte by byte.
    """
    values = losses.detach()
    values = values.masked_fill(values == INF, 0.0)
    return torch.where(weights.reshape(losses.shape) == 0, values, losses)


def small_loss(
    condition: SmallLoss, losses: Tensor, size: Tensor, numbers: tuple[Any, ...]
) -> tuple[Split, Tensor]:
    """Return who is good and bad, and good - gamma * bad.

    Args:
        condition: the rule.
        losses: float, (n,), without gradient; +inf for who takes no part.
        size: how many do, int64, 0-d.
        numbers: gamma and the condition's.
    """
    gamma, *rates = numbers
    counts = condition.counts(size, *rates)
    if len(losses) > COUNTED:
        good, bad, signs = torch.ops.sigua.small_loss(losses, *counts, gamma)
        return Split(good, bad), signs
    smaller = _smaller(losses)
    good, both = ((losses < INF) & (smaller < count) for count in counts)
    bad = both & ~good
    return Split(good, bad), torch.where(bad, -gamma, good.to(losses.dtype))


def _smaller(losses: Tensor) -> Tensor:
    """Return how many losses are smaller than each, (n,)."""
    # With `unsqueeze`, inductor would measure the losses again for each of the n^2 comparisons.
    column = losses.as_strided((len(losses), 1), (losses.stride(0), 0))
    return (losses < column).to(losses.dtype).sum(1)


def _by_numpy(
    losses: Tensor, kept: Tensor, reached: Tensor, gamma: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    values = losses.numpy()
    ordered = np.sort(values)  # puts NaN last
    good, both = (values <= _limit(ordered, int(count)) for count in (kept, reached))
    bad = both > good
    signs = good.astype(values.dtype)
    np.putmask(signs, bad, -float(gamma))
    return torch.from_numpy(good), torch.from_numpy(bad), torch.from_numpy(signs)


def _limit(ordered: Array, count: int) -> Any:
    """Return the count-th smallest loss, or the largest finite number if that is not finite."""
    count = min(count, len(ordered))
    limit = ordered[count - 1] if count else -np.inf
    return limit if limit < np.inf else np.finfo(ordered.dtype).max


def _shapes(
    losses: Tensor, kept: Tensor, reached: Tensor, gamma: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    good, bad = (torch.empty_like(losses, dtype=torch.bool) for _ in range(2))
    return good, bad, torch.empty_like(losses)


_LIBRARY.impl("small_loss", _by_numpy, "CPU")  # type: ignore[no-untyped-call]  # PyTorch's
torch.library.register_fake("sigua::small_loss", _shapes, lib=_LIBRARY)
