"""What a criterion keeps: the epoch's numbers, T on the device, and the class confidence.

Plain tensors, not buffers: DistributedDataParallel would broadcast those, and AveragedModel average
them. They move with the criterion, and are saved as its extra state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sigua import Method, checks, confidence
from sigua.conditions import may_read_class_sums
from sigua.step import Matrix, matrix
from sigua_torch import _check, _ops
from sigua_torch._pool import Pool

MOST_STEPS = 1_000_000
WIDTH = 1024
"""The class confidence is saved in whole multiples of so many classes, so that the shape of a state
dict does not depend on whether the first mini-batch has come."""
MOST_PARTS = 1_000
"""After so many micro-batches without `end_step` it was forgotten."""

Change = Callable[[Tensor], Tensor]


def changed(fn: Change, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return an empty tensor in the precision, and at the place, that a module is moved to.

    Half precision would round what must be exact, so float32 stays.
    """
    moved = fn(torch.empty((), dtype=dtype, device=device))
    exact = torch.float64 if moved.dtype == torch.float64 else torch.float32
    return torch.empty((), dtype=exact, device=moved.device)


class Sums(NamedTuple):
    """What `sigua.step.class_sums` reads of T."""

    inverse_column_sums: Tensor


class Numbers(nn.Module):
    """Gamma, the condition's numbers at the current epoch, and T; as numbers and on the device.

    On the device they are tensors that are filled in place, so that they change without
    recompilation, and without a transfer in the step. If steps are counted, they are tables with a
    row per step of the warm-up.

    Args:
        method: its schedules are followed.
        steps_per_epoch: calls per epoch; None if `set` sets the epoch.
    """

    def __init__(self, method: Method, steps_per_epoch: int | None) -> None:
        super().__init__()
        _check_steps(method, steps_per_epoch)
        self.method, self.steps_per_epoch = method, steps_per_epoch
        self._epoch = 0.0
        with torch.inference_mode(False):  # whose tensors could not be filled later
            self.step = torch.zeros((), dtype=torch.int64)
            self._make(torch.empty((), dtype=torch.float32, device=self.step.device))

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
        self._at = self.method.at(epoch)
        self._epoch = float(epoch)
        for table, number in zip(self.tables, self._at, strict=True):
            table.fill_(number)

    def now(self, plain: bool) -> tuple[Any, ...]:
        """Return the current numbers, as Python numbers or as 0-d tensors on the device."""
        if self.steps_per_epoch is None:
            return self._at if plain else tuple(self.tables)
        if plain:
            row = min(int(self.step), len(self._columns[0]) - 1)
            return tuple(column[row].item() for column in self._columns)
        place = self.step.clamp(max=len(self.tables[0]) - 1).reshape(1)
        return tuple(table.index_select(0, place).squeeze(0) for table in self.tables)

    def advance(self) -> None:
        """Count a step."""
        if self.steps_per_epoch is not None:
            self.step.add_(1)

    def matrix(self, like: Tensor) -> Matrix | None:
        """Return T^-1 or T' in the precision of the logits."""
        if like.dtype not in self._matrices:
            self._matrices[like.dtype] = matrix(_ops, self.method, like)
        return self._matrices[like.dtype]

    def _make(self, like: Tensor) -> None:
        """Make everything in the precision and at the place of `like`."""
        self._like, self.device, T = like, like.device, self.method.T
        self._at = self.method.at(self._epoch)
        self._columns: list[Any] = [np.array(number) for number in self._at]
        if self.steps_per_epoch is not None:
            steps = math.ceil(self.method.horizon * self.steps_per_epoch)
            self._columns = self.method.at_each(np.arange(steps + 1) / self.steps_per_epoch)
        self.tables = [
            torch.tensor(
                column,
                dtype=torch.int64 if column.dtype.kind == "i" else like.dtype,
                device=like.device,
            )
            for column in self._columns
        ]
        self._matrices: dict[torch.dtype, Matrix | None] = {}
        self.matrix(like)
        self.sums = None
        if self.method.correction == "backward" and may_read_class_sums(self.method.condition):
            self.sums = Sums(_ops.constant(T.inverse_column_sums, like))  # type: ignore[union-attr]  # it has a T

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.epoch, dtype=torch.float64)  # safetensors store tensors only

    def set_extra_state(self, state: Tensor) -> None:
        if self.steps_per_epoch is None:
            self.set(state.item())
        else:  # the resumed run may have batches of another size, and so other steps
            self.step.fill_(round(state.item() * self.steps_per_epoch))

    def _apply(self, fn: Change, recurse: bool = True) -> Numbers:
        with torch.inference_mode(False):  # as when it is made
            like, lost = changed(fn, self._like.dtype, self._like.device), self.step.is_meta
            self.step = torch.zeros_like(self.step, device=like.device) if lost else self.step
            self.step = self.step.to(like.device)
            self._make(like)
        return self


class Confidence(nn.Module):
    """The class confidence (`sigua.confidence`): it moves once a step of the optimiser.

    Args:
        pool: the processes that share it; None for this process alone.
    """

    def __init__(self, pool: Pool | None) -> None:
        super().__init__()
        self.pool = pool
        self.seen: Tensor | None = None
        """(2, k): the sums and the numbers."""
        self._used = -1
        """Of a loaded state, which is padded, how many classes are not all 0; -1 of any other."""
        self._like = torch.empty(())
        self._forget()

    def _forget(self) -> None:
        self.pending: Tensor | None = None
        """The sums of the micro-batches since the last step."""
        self._items: Any = None
        self._counted, self._parts = 0, 0

    def rates(self, k: int, plain: bool) -> Any:
        """Return c, (k,), as it was before this step; None before the first.

        Raises:
            ValueError: the number of classes has changed.
        """
        if self.seen is None:
            return None
        if self._used >= 0:
            self._narrow(k, self.seen)
        if self.seen.shape[1] != k:
            raise ValueError(
                f"input: must have {self.seen.shape[1]} classes, whose confidence the criterion "
                f"keeps, got {k}; try a criterion for each output"
            )
        return confidence.rates(self.seen.numpy() if plain else self.seen)

    def _narrow(self, k: int, seen: Tensor) -> None:
        """Leave out what was saved beyond the k classes, or raise ValueError if it is not all 0."""
        if self._used > k:
            raise ValueError(
                f"input: must have {self._used} classes or more, whose confidence was loaded, got "
                f"{k}; try the state of a model of as many classes"
            )
        self.seen = nn.functional.pad(seen, (0, k - seen.shape[1]))
        self._used = -1

    def check(self, items: Any, examples: int | None) -> None:
        """Raise ValueError where it is certain that a step has ended without `end_step`.

        Args:
            items: `num_items_in_batch`, a number; a tensor is not read.
            examples: how many take part here, if that is known.
        """
        if self._items is None or items is None:
            return
        known = not isinstance(items, Tensor) and not isinstance(self._items, Tensor)
        over = known and examples is not None and self._counted + examples > items
        if (known and items != self._items) or over or self._parts >= MOST_PARTS:
            raise ValueError(
                "num_items_in_batch: must belong to the step that the last calls belong to, whose "
                f"end nobody has told, got {_said(items)} after {self._parts} calls with "
                f"{_said(self._items)}; try criterion.end_step() after each optimizer.step()"
            )

    def add(self, sums: Any, items: Any, examples: int | None) -> None:
        """Add the sums of a mini-batch, (2, k), or of a micro-batch if `items` are given."""
        batch = sums if isinstance(sums, Tensor) else torch.from_numpy(sums)
        if self.pool is not None:
            batch = self.pool.total(batch)
        if items is None and self.pending is None:
            return self._move(batch)
        self.pending = batch if self.pending is None else self.pending + batch
        self._items, self._parts = items, self._parts + 1
        self._counted += examples or 0
        if items is None:
            self.end()
        return None

    def end(self) -> None:
        """Move by what has been pending."""
        if self.pending is not None:
            self._move(self.pending)
        self._forget()

    def _move(self, batch: Tensor) -> None:
        if self.seen is None:
            self.seen = torch.zeros_like(batch)
        if _ops.is_plain(self.seen):
            seen = self.seen.numpy()
            seen[...] = confidence.moved(seen, batch.numpy())
        else:
            self.seen.copy_(confidence.moved(self.seen, batch))

    def get_extra_state(self) -> Tensor:
        seen = torch.zeros(2, 0) if self.seen is None else self.seen
        missing = -seen.shape[1] % WIDTH or WIDTH * (seen.shape[1] == 0)
        return nn.functional.pad(seen, (0, missing)).clone()

    def set_extra_state(self, state: Tensor) -> None:
        with torch.inference_mode(False):  # whose tensors could not be counted on later
            exact = torch.promote_types(state.dtype, torch.float32)
            self.seen = state.to(self._like.device, exact, copy=True)
        used = [] if state.is_meta else state.ne(0).any(0).nonzero().flatten().tolist()
        self._used = max(used, default=-1) + 1
        self._forget()

    def _apply(self, fn: Change, recurse: bool = True) -> Confidence:
        with torch.inference_mode(False):
            self._like = changed(fn, self._like.dtype, self._like.device)
            for name in ("seen", "pending"):
                value = getattr(self, name)
                if value is not None:
                    place = self._like.device
                    lost = value.is_meta and place.type != "meta"
                    moved = torch.zeros_like(value, device=place) if lost else value.to(place)
                    setattr(self, name, moved)
        return self


def _said(items: Any) -> str:
    return "another one on the device" if isinstance(items, Tensor) else f"{items:g}"


def _check_steps(method: Method, steps_per_epoch: int | None) -> None:
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
