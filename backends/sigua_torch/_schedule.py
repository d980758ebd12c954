"""The epoch's numbers, as Python numbers for eager CPU code and as buffers for the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sigua import Method, checks

MOST_STEPS = 1_000_000


class EpochNumbers(nn.Module):
    """Gamma and the condition's numbers at the current epoch.

    Kept as buffers that are filled in place, they change without a recompilation or a transfer in
    the step. If the epoch is counted in steps, they are tables with a row per step of the warm-up.

    Args:
        method: whose schedules are followed.
        steps_per_epoch: calls per epoch; None if `set` says the epoch.
    """

    step: Tensor

    def __init__(self, method: Method, steps_per_epoch: int | None) -> None:
        super().__init__()
        self.method = method
        self.steps_per_epoch = steps_per_epoch
        self._epoch = 0.0
        self.register_buffer("step", torch.zeros((), dtype=torch.int64), persistent=False)
        self._fill(torch.float32)

    @property
    def epoch(self) -> float:
        if self.steps_per_epoch is None:
            return self._epoch
        return int(self.step) / self.steps_per_epoch

    def set(self, epoch: float) -> None:
        """Set the epoch; nothing changes if it, or a schedule's value there, is refused."""
        self._on_host = self.method.at(epoch)
        self._epoch = float(epoch)
        for table, number in zip(self._tables(), self._on_host, strict=True):
            table.fill_(number)

    def advance(self) -> None:
        """Count a step."""
        if self.steps_per_epoch is not None:
            self.step.add_(1)

    def now(self, on_host: bool) -> tuple[Any, ...]:
        """Return the current numbers, as Python numbers or as 0-d tensors on the device."""
        if self.steps_per_epoch is None:
            return self._on_host if on_host else tuple(table[0] for table in self._tables())
        if on_host:
            return self.method.at(self.epoch)
        row = self.step.clamp(max=len(self._tables()[0]) - 1).reshape(1)
        return tuple(table.index_select(0, row).squeeze(0) for table in self._tables())

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.epoch, dtype=torch.float64)  # safetensors hold nothing else

    def set_extra_state(self, state: Tensor) -> None:
        if self.steps_per_epoch is None:
            self.set(state.item())
        else:  # of the resumed run, whose batches may have another size
            self.step.fill_(round(state.item() * self.steps_per_epoch))

    def _fill(self, dtype: torch.dtype) -> None:
        epochs = [self._epoch]
        if self.steps_per_epoch is not None:
            steps = math.ceil(self.method.horizon * self.steps_per_epoch)
            epochs = [step / self.steps_per_epoch for step in range(steps + 1)]
        self._on_host = self.method.at(self._epoch)
        self._width = len(self._on_host)  # a compiled graph may read this, not the numbers
        columns = zip(*map(self.method.at, epochs), strict=True)
        for i, column in enumerate(columns):
            exact = torch.int64 if isinstance(column[0], int) else dtype
            table = torch.tensor(column, dtype=exact, device=self.step.device)
            self.register_buffer(f"table_{i}", table, persistent=False)

    def _tables(self) -> list[Tensor]:
        return [getattr(self, f"table_{i}") for i in range(self._width)]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> EpochNumbers:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        gamma = self._tables()[0]  # a cast has rounded what it should have made afresh
        self._fill(torch.float64 if gamma.dtype == torch.float64 else torch.float32)
        return self


def check_steps(method: Method, steps_per_epoch: int | None) -> None:
    """Raise ValueError unless the method's schedules can be laid out in steps."""
    if steps_per_epoch is None:
        return
    steps = checks.whole("steps_per_epoch", steps_per_epoch, 1, "give len(loader)")
    if method.horizon == math.inf:
        raise checks.refuse(
            "steps_per_epoch",
            "every schedule must settle (a number or sigua.Knots; horizon= on your own condition)",
            f"{method!r} came",
            "call set_epoch before each epoch instead",
        )
    if method.horizon * steps > MOST_STEPS:
        came = f"{method.horizon:g} epochs of {steps} steps came"
        rule = f"the schedule must settle within {MOST_STEPS} steps, each of which has its numbers"
        raise checks.refuse("steps_per_epoch", rule, came, "give len(loader), or use set_epoch")
