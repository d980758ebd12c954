"""The epoch's numbers: Python numbers for eager code on the CPU, buffers for the device."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sigua import Method, checks

MOST_STEPS = 1_000_000


class EpochNumbers(nn.Module):
    """Gamma and the condition's numbers at the current epoch.

    They are buffers that are filled in place, so they change without recompilation, and without a
    transfer in the step. If steps are counted, they are tables with a row per step of the warm-up.

    Args:
        method: its schedules are followed.
        steps_per_epoch: calls per epoch; None if `set` sets the epoch.
    """

    step: Tensor

    def __init__(self, method: Method, steps_per_epoch: int | None) -> None:
        super().__init__()
        self.method = method
        self.steps_per_epoch = steps_per_epoch
        self._epoch = 0.0
        self._asked = False
        self._repeated = -1, 0  # the last backward pass that repeated calls, and how many
        with torch.inference_mode(False):  # whose tensors could not be filled later
            self.register_buffer("step", torch.zeros((), dtype=torch.int64), persistent=False)
            self._fill(torch.float32)

    @property
    def epoch(self) -> float:
        if self.steps_per_epoch is None:
            return self._epoch
        return int(self.step) / self.steps_per_epoch

    def set(self, epoch: float) -> None:
        """Set the epoch.

        Raises:
            ValueError: the epoch, or a schedule's value there, is out of range; nothing is changed.
        """
        self._on_host = self.method.at(epoch)
        self._epoch = float(epoch)
        for table, number in zip(self._tables(), self._on_host, strict=True):
            table.fill_(number)

    def advance(self) -> None:
        """Count a step, once even if a checkpoint repeats it."""
        if self.steps_per_epoch is None:
            return
        if is_repeated():
            self._repeated = torch._C._current_graph_task_id(), self._steps_back()
        else:
            self.step.add_(1)

    def now(self, on_host: bool) -> tuple[Any, ...]:
        """Return the current numbers, as Python numbers or as 0-d tensors on the device.

        Raises:
            ValueError: steps are counted, and `torch.optim.LBFGS` repeats them.
        """
        if self.steps_per_epoch is None:
            return self._on_host if on_host else tuple(table[0] for table in self._tables())
        step = (self.step - self._steps_back()).clamp(min=0) if is_repeated() else self.step
        if not self._asked and not torch.compiler.is_compiling():
            check_caller()
            self._asked = True
        if on_host:
            return self.method.at(int(step) / self.steps_per_epoch)
        row = step.clamp(max=len(self._tables()[0]) - 1).reshape(1)
        return tuple(table.index_select(0, row).squeeze(0) for table in self._tables())

    def _steps_back(self) -> int:
        """Return how many steps ago the repeated call was: the last call is repeated first."""
        task, back = self._repeated
        return back + 1 if task == torch._C._current_graph_task_id() else 1

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.epoch, dtype=torch.float64)  # safetensors store tensors only

    def set_extra_state(self, state: Tensor) -> None:
        if self.steps_per_epoch is None:
            self.set(state.item())
        else:  # the resumed run may have batches of another size, and so other steps
            self.step.fill_(round(state.item() * self.steps_per_epoch))

    def _fill(self, dtype: torch.dtype) -> None:
        epochs = np.array([self._epoch])
        if self.steps_per_epoch is not None:
            steps = math.ceil(self.method.horizon * self.steps_per_epoch)
            epochs = np.arange(steps + 1) / self.steps_per_epoch
        self._on_host = self.method.at(self._epoch)
        self._width = len(self._on_host)  # a compiled graph may read this, but not the numbers
        for i, column in enumerate(self.method.at_each(epochs)):
            exact = torch.int64 if column.dtype.kind == "i" else dtype
            table = torch.tensor(column, dtype=exact, device=self.step.device)
            self.register_buffer(f"table_{i}", table, persistent=False)

    def _tables(self) -> list[Tensor]:
        return [getattr(self, f"table_{i}") for i in range(self._width)]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> EpochNumbers:
        without_values = self.step.is_meta
        with torch.inference_mode(False):  # as when it is made
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # untyped in PyTorch
            if without_values:  # to_empty leaves memory uninitialised
                self.step.zero_()
            gamma = self._tables()[0]  # a cast has rounded the tables, so they are made again
            self._fill(torch.float64 if gamma.dtype == torch.float64 else torch.float32)
        return self


def is_repeated() -> bool:
    """Return whether `torch.utils.checkpoint` repeats this call in the backward pass.

    Its reentrant variant needs no such check: its first call is without gradients, and not counted.
    """
    if torch.compiler.is_compiling() or torch._C._current_graph_task_id() == -1:
        return False
    return _is_called_from("unpack_hook", "torch.utils.checkpoint")


def check_caller() -> None:
    """Raise ValueError under `torch.optim.LBFGS`, which calls its closure many times a step."""
    if _is_called_from("step", "torch.optim.lbfgs"):
        raise ValueError(
            "steps_per_epoch: must be left out under torch.optim.LBFGS, "
            "got its closure, which is called many times a step; try set_epoch"
        )


def _is_called_from(function: str, module: str) -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == function and frame.f_globals.get("__name__") == module:
            return True
        frame = frame.f_back
    return False


def check_steps(method: Method, steps_per_epoch: int | None) -> None:
    """Raise ValueError unless the method's schedules can be tabulated in steps."""
    if steps_per_epoch is None:
        return
    steps = checks.whole("steps_per_epoch", steps_per_epoch, 1, "try len(loader)")
    if method.horizon == math.inf:
        raise ValueError(
            "steps_per_epoch: must be None unless every schedule settles (a number or sigua.Knots; "
            f"horizon= on your own condition), got {method!r}; "
            "try set_epoch before each epoch instead"
        )
    if method.horizon * steps > MOST_STEPS:
        raise ValueError(
            f"steps_per_epoch: must let every schedule settle within {MOST_STEPS} steps, "
            f"got {method.horizon:g} epochs of {steps} steps; try len(loader), or set_epoch"
        )
