"""A transition matrix on the device: its tables as buffers, and the rows of a dense one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigua import TransitionMatrix
from sigua_torch import _check
from sigua_torch._measure import class_dim, is_index

FEW_CLASSES = 100  # up to here copying whole rows costs less than operators saved


class Tables(nn.Module):
    """Arrays as buffers, made from the exact ones in the precision of the logits.

    Args:
        T: what the arrays are made of.
    """

    def __init__(self, T: TransitionMatrix) -> None:
        super().__init__()
        self.T = T
        self._looked_at: str | None = None
        self._make(torch.float32, torch.device("cpu"))

    def arrays(self) -> dict[str, NDArray[Any] | None]:
        """Return the exact arrays by their buffers' names; the last one is of floats."""
        return {}

    def match(self, logits: Tensor) -> None:
        """Make the tables in the logits' precision, if they are in another."""
        if self._looked_at is None:
            return
        table = getattr(self, self._looked_at)
        if table.dtype == logits.dtype and table.device == logits.device:
            return
        _check.device(table.device, logits)
        self._make(logits.dtype, logits.device)

    def _make(self, dtype: torch.dtype, device: torch.device) -> None:
        def table(array: NDArray[Any] | None) -> Tensor | None:
            if array is None:
                return None
            exact = dtype if array.dtype.kind == "f" else torch.int64
            # Rows are gathered, several times as fast where each is in one piece.
            return torch.tensor(np.ascontiguousarray(array), dtype=exact, device=device)

        made = {name: table(array) for name, array in self.arrays().items()}
        # The one whose precision `match` looks at comes last, for another thread may do so.
        for name, made_table in made.items():
            self.register_buffer(name, made_table, persistent=False)
            self._looked_at = name

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Tables:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # PyTorch's
        if self._looked_at is not None:  # a cast has rounded what it should have made afresh
            table = getattr(self, self._looked_at)
            exact = torch.float64 if table.dtype == torch.float64 else torch.float32
            self._make(exact, table.device)
        return self


def rows_at(matrix: Tensor, logits: Tensor, target: Tensor) -> Tensor:
    """Return row y of a (k, k) matrix, or q' matrix, with the classes in the class dimension."""
    dim = class_dim(logits)
    if is_index(logits, target):
        # index_select copies whole rows, where matrix[target] goes entry by entry.
        rows = matrix.index_select(0, target.reshape(-1))
        if logits.ndim == 2:
            return rows
        return rows.reshape(*target.shape, matrix.shape[1]).movedim(-1, dim)
    return mix(target, matrix)


def mix(probabilities: Tensor, matrix: Tensor) -> Tensor:
    """Return q' matrix along the class dimension, in full precision under autocast, too."""
    dim = class_dim(probabilities)
    device = probabilities.device.type
    can_cast = torch.amp.is_autocast_available(device)
    with torch.autocast(device, enabled=False) if can_cast else nullcontext():
        return (probabilities.movedim(dim, -1) @ matrix).movedim(-1, dim)
