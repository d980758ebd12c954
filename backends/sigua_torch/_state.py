"""What a criterion keeps: the epoch's numbers, T on the device, and the class confidence.

Plain tensors, not buffers: DistributedDataParallel would broadcast those, and AveragedModel average
them.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sigua import Method, checks, confidence
from sigua.conditions import may_read_class_sums
from sigua.step import Matrix, matrix, numpy_names
from sigua_torch import _check, _ops

MOST_STEPS = 1_000_000
WIDTH, COUNTS_WIDTH = 1024, 128
"""The class confidence is saved in whole multiples of so many classes, with counts or without, so
that the shape of a state dict does not depend on whether the first mini-batch has come."""
MOST_PARTS = 1_000
"""After so many micro-batches without it, `end_step` was forgotten."""
ROUNDING = 1 + 1e-4
"""A sum of class weights in float32 may exceed the total by this factor."""


class Numbers:
    """Gamma, the condition's numbers at the current epoch, and T; as numbers and on the device.

    There they are tensors, of the precision and the device of `like`, that are filled in place, so
    that they change without recompilation, and without a transfer in the step. If steps are
    counted, they are tables with a row per step of the warm-up.
    """

    tables: list[Tensor]

    def __init__(self, method: Method, steps_per_epoch: int | None, like: Tensor) -> None:
        if steps_per_epoch is not None:
            _check_steps(method, steps_per_epoch)
        self.method, self.steps_per_epoch, self._epoch = method, steps_per_epoch, 0.0
        self.step = torch.zeros((), dtype=torch.int64, device=like.device)
        self.move(like)

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
        self._at, self._epoch = at, float(epoch)
        for table, number in zip(self.tables, at, strict=True):
            table.fill_(number)

    def now(self, as_numbers: bool) -> tuple[Any, ...]:
        """Return the current numbers, as Python numbers or as 0-d tensors on the device."""
        if self.steps_per_epoch is None:
            return self._at if as_numbers else tuple(self.tables)
        if as_numbers:
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

    def move(self, like: Tensor) -> None:
        """Make everything in another precision, or elsewhere."""
        self.device, T = like.device, self.method.T
        lost = self.step.is_meta
        self.step = (
            self.step.new_zeros((), device=like.device) if lost else self.step.to(like.device)
        )
        self._at = self.method.at(self._epoch)
        self._columns: list[Any] = [np.array(number) for number in self._at]
        if self.steps_per_epoch is not None:
            steps = math.ceil(self.method.horizon * self.steps_per_epoch)
            self._columns = self.method.at_each(np.arange(steps + 1) / self.steps_per_epoch)
        self.tables = [
            _ops.constant(column, like) if column.dtype.kind == "f" else _ops.index(column, like)
            for column in self._columns
        ]
        self._matrices: dict[torch.dtype, Matrix | None] = {}
        self.matrix(like)
        self.class_sums: SimpleNamespace | None = None
        """What `sigua.step.class_sums` reads of T, where the rule may ask for them."""
        backward = self.method.correction == "backward"
        if T is not None and backward and may_read_class_sums(self.method.condition):
            sums = _ops.constant(T.inverse_column_sums, like)
            self.class_sums = SimpleNamespace(inverse_column_sums=sums)


class Confidence:
    """What a rule remembers (`sigua.confidence`), which moves once a step of the optimizer.

    Args:
        counts: whether the rule needs counts, too.
        device: where it is kept.
    """

    def __init__(self, counts: bool, device: torch.device) -> None:
        self.counts, self.device = counts, device
        self.seen: Tensor | None = None
        """The state, (2, k), or with counts (4 + k, k)."""
        self._used = -1
        """Of a loaded state, which is padded, how many classes are not all 0; -1 of any other."""
        self._forget()

    def _forget(self) -> None:
        self.pending: Tensor | None = None
        """The sums of the micro-batches since the last step."""
        self._items: Any = None
        self._counted, self._parts = 0.0, 0

    def state(self, k: int, plain: bool) -> Any:
        """Return the state as it was before this step.

        Raises:
            ValueError: the number of classes has changed, or is too large for counts.
        """
        if self.seen is None:
            zeros = confidence.zeros(k, self.counts)
            return zeros if plain else torch.from_numpy(zeros).to(self.device)
        known = self.seen.shape[1]
        if 0 <= self._used <= k:  # what is left out is 0
            self.seen = self._widened(k - known)
            self._used = -1
        elif known != k:
            raise ValueError(
                f"input: must have the {max(self._used, 0) or known} classes whose confidence the "
                f"criterion keeps, got {k}; try a criterion for each output"
            )
        return self.seen.numpy() if plain else self.seen

    def _widened(self, classes: int) -> Tensor:
        """Return the state with more classes, or with fewer, which are 0."""
        seen: Any = self.seen
        return nn.functional.pad(seen, (0, classes, 0, classes if self.counts else 0))

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

    def add(self, sums: Any, items: Any, here: float | None) -> None:
        """Add the sums of a mini-batch, or of a micro-batch if `items` are given."""
        batch = sums if isinstance(sums, Tensor) else torch.from_numpy(sums)
        self.pending = batch if self.pending is None else self.pending + batch
        if items is None:
            self.end()
        elif not torch.compiler.is_compiling():  # in a graph, nothing counts on the host
            self._items, self._parts = items, self._parts + 1
            self._counted += here or 0

    def end(self) -> None:
        """Move by what has been pending."""
        batch: Any = self.pending
        if batch is not None:
            seen: Any = torch.zeros_like(batch) if self.seen is None else self.seen
            self.seen = seen
            ops: Any = _ops
            if _ops.is_plain(seen):
                ops, seen, batch = numpy_names, seen.numpy(), batch.numpy()
            seen[:] = confidence.moved(seen, batch, ops)
            self._forget()

    def saved(self) -> Tensor:
        """Return a copy of what is kept, padded."""
        width = COUNTS_WIDTH if self.counts else WIDTH
        if self.seen is None:
            return torch.from_numpy(confidence.zeros(width, self.counts)).to(self.device)
        return self._widened(-self.seen.shape[1] % width).clone()

    def load(self, state: Tensor) -> None:
        """Take over what was saved; begin anew after a rule that remembers something else."""
        if (state.shape[0] > 2) != self.counts:
            self.seen, self._used = None, -1
            self._forget()
            return
        exact = torch.promote_types(state.dtype, torch.float32)
        used = [] if state.is_meta else state.ne(0).any(0).nonzero().flatten().tolist()
        self.seen, self._used = state.to(self.device, exact, copy=True), max(used, default=-1) + 1
        self._forget()

    def move(self, device: torch.device) -> None:
        """Move it elsewhere; no cast, which might not count to 100."""

        def moved(x: Tensor | None) -> Tensor | None:
            lost = x is not None and x.is_meta and device.type != "meta"
            return None if x is None or lost else x.to(device)

        self.device, self.seen, self.pending = device, moved(self.seen), moved(self.pending)


def is_saved(state: Tensor) -> bool:
    """Return whether a matrix has the shape of an epoch, and what `Confidence.saved` returns."""
    if state.ndim != 2:
        return False
    rows, k = state.shape[0], state.shape[1] - 1
    return (rows == 2 and k >= 0) or (rows > 2 and k > 0 and rows == k + confidence.VECTORS)


def _check_steps(method: Method, steps_per_epoch: int) -> None:
    """Raise ValueError unless the method's schedules can be tabulated in steps."""
    steps = checks.whole("steps_per_epoch", steps_per_epoch, 1, "try len(loader)")
    if not method.horizon * steps <= MOST_STEPS:
        settle = "settle (a number or sigua.Knots; horizon= on your own condition)"
        rule = f"let every schedule {settle} within {MOST_STEPS} steps"
        got = f"{method.horizon:g} epochs of {steps} steps of {method!r}"
        advice = "len(loader), or set_epoch before each epoch"
        _check.refuse("steps_per_epoch", rule, got, advice)
