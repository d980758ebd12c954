"""What a criterion keeps: the epoch's numbers, T on the device, and the class confidence.

Plain tensors, not buffers: DistributedDataParallel would broadcast those, and AveragedModel average
them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sigua import Method, checks, confidence
from sigua.conditions import reads
from sigua.step import Matrix, matrix, numpy_names
from sigua_torch import _check, _ops

MOST_STEPS = 1_000_000
WIDTH, COUNTS_WIDTH = 1024, 128
"""The class confidence is saved with a multiple of so many classes, without counts or with."""
MOST_PARTS = 1_000
"""After so many micro-batches without it, `end_step` was forgotten."""
ROUNDING = 1 + 1e-4
"""A sum of class weights in float32 may exceed the total by this factor."""


class Numbers:
    """Gamma, the condition's numbers at the current epoch, and T; as numbers and on the device.

    There they are tensors that are filled in place, so that they change without recompilation, and
    without a transfer in the step. If steps are counted, they are tables with a row per step of the
    warm-up.
    """

    like: Tensor
    """It has the precision and the device of the tensors."""
    tables: list[Tensor]

    def __init__(self, method: Method, steps_per_epoch: int | None) -> None:
        self.method, self.steps_per_epoch, self._epoch = method, steps_per_epoch, 0.0
        self._values: Any = method.at(0)
        """What is in the tensors: numbers, or a NumPy array for each table."""
        if steps_per_epoch is not None:
            _check_steps(method, steps_per_epoch)
            steps = math.ceil(method.horizon * steps_per_epoch)
            self._values = method.at_each(np.arange(steps + 1) / steps_per_epoch)
        self.step = torch.zeros((), dtype=torch.int64)
        self.move(torch.empty((), dtype=torch.float32))

    @property
    def epoch(self) -> float:
        if self.steps_per_epoch is None:
            return self._epoch
        return int(self.step) / self.steps_per_epoch

    def set(self, epoch: float) -> None:
        """Set the epoch, or raise ValueError if it is out of range; then nothing is changed."""
        at = self.method.at(epoch)
        if self.steps_per_epoch is not None:  # a resumed run may have other batches, so other steps
            self.step.fill_(round(epoch * self.steps_per_epoch))
            return
        for table, number in zip(self.tables, at, strict=True):
            if isinstance(number, float) and not table.is_floating_point():
                raise ValueError(
                    "condition: must return numbers of the same type in each epoch, got "
                    f"{number!r} at epoch {epoch:g} and an integer at epoch 0; try floats"
                )
        self._epoch, self._values = float(epoch), at
        for table, number in zip(self.tables, at, strict=True):
            table.fill_(number)

    def now(self, as_numbers: bool) -> tuple[Any, ...]:
        """Return the current numbers, as Python numbers or as 0-d tensors on the device."""
        if self.steps_per_epoch is None:
            return self._values if as_numbers else tuple(self.tables)
        if as_numbers:
            row = min(int(self.step), len(self._values[0]) - 1)
            return tuple(column[row].item() for column in self._values)
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

    def move(self, like: Tensor) -> None:
        """Make everything in another precision, or elsewhere."""
        # Half precision would round what must be exact.
        exact = torch.float64 if like.dtype == torch.float64 else torch.float32
        self.like = like = torch.empty((), dtype=exact, device=like.device)
        step = torch.zeros_like(self.step, device="cpu") if self.step.is_meta else self.step
        self.step = step.to(like.device)
        self.tables = [
            (_ops.constant if np.asarray(value).dtype.kind == "f" else _ops.index)(value, like)
            for value in self._values
        ]
        self._matrices: dict[torch.dtype, Matrix | None] = {}
        self.matrix(like)
        self.column_sums: Tensor | None = None
        """Those of T^-1, where the rule may ask for class sums."""
        method = self.method
        if method.correction == "backward" and reads(method.condition, "class_sums"):
            T: Any = method.T
            self.column_sums = _ops.constant(T.inverse_column_sums, like)


def nothing_seen(k: int, counts: bool, device: torch.device) -> Tensor:
    """Return the state before the first mini-batch, made there, for a copy would wait."""
    shape = confidence.zeros(k, counts).shape
    return torch.zeros(shape, dtype=torch.float32, device=device)


class Confidence:
    """What a rule remembers (`sigua.confidence`), which moves once a step of the optimizer.

    A state of fewer classes is one of more in which those that are new are 0.

    Args:
        counts: whether the rule needs counts, too.
        device: where it is kept.
    """

    def __init__(self, counts: bool, device: torch.device) -> None:
        self.counts, self.device = counts, device
        self.seen: Tensor | None = None
        """The state, (2, k), or with counts (4 + k, k)."""
        self._forget()

    def _forget(self) -> None:
        self.pending: Tensor | None = None
        """The sums of the micro-batches since the last step."""
        self._items: Any = None
        self._counted, self._parts = 0.0, 0

    def state(self, k: int) -> Tensor:
        """Return the state of k classes as it was before this step.

        Raises:
            ValueError: there are fewer classes than before, or too many for counts.
        """
        kept = self.seen if self.pending is None else self.pending
        if kept is not None and kept.shape[1] > k:
            rule = f"have the {kept.shape[1]} classes or more of the class confidence that is kept"
            _check.refuse("input", rule, k, "a criterion for each output")
        return self._widened(self.seen, k)

    def _widened(self, seen: Tensor | None, k: int) -> Tensor:
        """Return a state of k classes."""
        if seen is None:
            return nothing_seen(k, self.counts, self.device)
        new = k - seen.shape[1]
        return nn.functional.pad(seen, (0, new, 0, new if self.counts else 0)) if new else seen

    def check(self, items: Any, here: float | None) -> None:
        """Raise ValueError where it is certain that a step has ended without `end_step`.

        Args:
            items: `num_items_in_batch`, a number; a tensor is not read.
            here: what these examples count of it, if that is known.
        """
        if self._items is None:
            return
        known = not isinstance(items, Tensor) and not isinstance(self._items, Tensor)
        over = known and self._counted + (here or 0) > items * ROUNDING
        if (known and items != self._items) or over or self._parts >= MOST_PARTS:
            raise ValueError(
                "num_items_in_batch: must be the total of one step, which ends with end_step(), "
                f"got {items} after {self._parts} calls with {self._items}; "
                "try criterion.end_step() after each optimizer.step()"
            )

    def add(self, sums: Tensor, items: Any, here: float | None) -> None:
        """Add the sums of a mini-batch, or of a micro-batch if `items` are given."""
        if self.pending is not None:
            sums = self._widened(self.pending, sums.shape[1]) + sums
        self.pending = sums
        if items is None:
            self.end()
        elif not torch.compiler.is_compiling():  # in a graph, nothing counts on the host
            self._items, self._parts = items, self._parts + 1
            self._counted += here or 0

    def end(self) -> None:
        """Move by what is pending: the sums of a step."""
        if self.pending is None:
            return
        ops: Any = _ops
        sums: Any = self.pending
        seen: Any = torch.zeros_like(sums) if self.seen is None else self.seen
        seen = self.seen = self._widened(seen, sums.shape[1])
        if _ops.is_viewable(seen):
            ops, seen, sums = numpy_names, seen.numpy(), sums.numpy()
        seen[:] = confidence.moved(seen, sums, ops)
        self._forget()

    def saved(self) -> Tensor:
        """Return a copy of what is kept, of a multiple of so many classes.

        Then its shape does not depend on whether the first mini-batch has come.
        """
        width = COUNTS_WIDTH if self.counts else WIDTH
        k = width if self.seen is None else self.seen.shape[1]
        return self._widened(self.seen, math.ceil(k / width) * width).clone()

    def load(self, state: Tensor) -> None:
        """Take over what was saved; begin anew after a rule that remembers something else."""
        self.seen = None
        self._forget()
        used = None if state.is_meta else state.any(0).nonzero()
        if used is None or not used.numel() or (len(state) > 2) != self.counts:
            return
        k, exact = int(used.max()) + 1, torch.promote_types(state.dtype, torch.float32)
        kept = state[: confidence.zeros(k, self.counts).shape[0], :k]
        self.seen = kept.to(self.device, exact, copy=True)

    def move(self, device: torch.device) -> None:
        """Move it elsewhere; no cast, which might not count to 100."""

        def moved(x: Tensor | None) -> Tensor | None:
            lost = x is not None and x.is_meta and device.type != "meta"
            return None if x is None or lost else x.to(device)

        self.device, self.seen, self.pending = device, moved(self.seen), moved(self.pending)


def _check_steps(method: Method, steps_per_epoch: int) -> None:
    """Raise ValueError unless the method's schedules can be tabulated in steps."""
    steps = checks.whole("steps_per_epoch", steps_per_epoch, 1, "try len(loader)")
    if not method.horizon * steps <= MOST_STEPS:
        settle = "settle (a number or sigua.Knots; horizon= on your own condition)"
        rule = f"let every schedule {settle} within {MOST_STEPS} steps"
        got = f"{method.horizon:g} epochs of {steps} steps of {method!r}"
        advice = "len(loader), or set_epoch before each epoch"
        _check.refuse("steps_per_epoch", rule, got, advice)
