"""The mini-batch of all processes, by one all_gather that carries no gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from sigua import Split, checks
from sigua_torch import _check
from sigua_torch._ops import as_tensor

REFUSED = -1
"""What a process sends instead of who takes part, or of a size, if it refuses its mini-batch."""


class Pool:
    """Gathers the values that decide about examples from a process group.

    Every process must call the criterion at every step, even without examples. If one refuses its
    mini-batch, all raise, and may go on together. On a card with `largest`, where nothing is read,
    it raises alone, and the loss of the others is NaN, or they wait for it: end all, as torchrun
    does. Copies of a criterion share its pool. A pool with a process group of its own cannot be
    pickled, because process groups cannot.

    Args:
        group: the process group; None for the default group.
        largest: an upper bound of the number of examples in a process. With it, a step is one
            collective and waits for nothing on the host. Without it, the sizes are exchanged and
            read first.

    Raises:
        ValueError: `largest` is not a whole number of at least 1.
    """

    def __init__(self, group: Any = None, largest: int | None = None) -> None:
        self.group = group
        if largest is not None:
            largest = checks.whole("largest", largest, 1, "try the largest local batch")
        self.largest = largest

    def __deepcopy__(self, memo: dict[int, Any]) -> Pool:
        return self

    @property
    def processes(self) -> int:
        """How many there are."""
        return dist.get_world_size(self.group)

    def check(self, n: int) -> None:
        """Raise ValueError if no group has been joined, or n examples are too many."""
        if not dist.is_initialized():
            advice = "torch.distributed.init_process_group() first, or sync=None in one process"
            _check.refuse("sync", "have a process group to select over", None, advice)
        if self.largest is not None and n > self.largest:
            got = f"{self.largest} for a mini-batch of {n}"
            rule = "be at least the examples of any process"
            _check.refuse("largest", rule, got, f"Pool(largest={n})")

    def gather(self, columns: Sequence[Tensor], number: Any = None) -> list[Tensor]:
        """Return each column, (n,), of the whole group, one process after the other, padded with 0.

        They come as float64, in which floats and integers up to 2^53 are what they were. The last
        column is each process's `number`, or 0-d tensor, (processes,), which is NaN for None.

        Raises:
            ValueError: another process refuses its mini-batch.
        """
        n, largest = columns[0].shape[0], self.largest
        if largest is None:
            sizes = self._sizes(n, columns[0].device)
            if min(sizes) == REFUSED:
                _refuse_with_the_other()
            largest = max(sizes)
        table = torch.stack([column.to(torch.float64) for column in columns])
        return self._gathered(F.pad(table, (0, largest - n)), number)

    def refuse(self, columns: int, device: torch.device) -> None:
        """Tell the others, who are about to `gather`, that this process refuses its mini-batch."""
        if not dist.is_initialized() or torch.compiler.is_compiling():
            return
        if self.largest is None:
            self._sizes(REFUSED, device)
        else:
            none = torch.full((columns, self.largest), REFUSED, dtype=torch.float64, device=device)
            self._gathered(none, None)

    def total(self, part: Tensor) -> Tensor:
        """Return the sum of a tensor over the processes."""
        total = part.clone()
        dist.all_reduce(total, group=self.group)
        return total

    def own(self, pooled: Any, n: int) -> Any:
        """Return this process's n entries of a pooled column."""
        start = dist.get_rank(self.group) * (len(pooled) // self.processes)
        return pooled[start : start + n]

    def _sizes(self, n: int, device: torch.device) -> list[int]:
        size = torch.tensor([n], device=device)
        sizes = size.new_empty(self.processes)
        self._all_gather(sizes, size)
        found: list[int] = sizes.tolist()
        return found

    def _gathered(self, table: Tensor, number: Any) -> list[Tensor]:
        part = F.pad(table, (0, 1))
        part[0, -1] = float("nan") if number is None else number
        out = part.new_empty(self.processes * part.shape[0], part.shape[1])
        self._all_gather(out, part)
        parts = out.reshape(self.processes, *part.shape)
        columns = parts[:, :, :-1].transpose(0, 1).reshape(len(table), -1)
        return [*columns, parts[:, 0, -1]]

    def _all_gather(self, out: Tensor, part: Tensor) -> None:
        # Before it had this name, which the older one now deprecates.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        gather(out, part, group=self.group)


def pool_of(sync: Any) -> Pool | None:
    """Return the pool for the argument `sync`, or raise ValueError on what is none."""
    if sync is None or sync is False:
        return None
    if isinstance(sync, Pool):
        return sync
    if sync is not True and not (dist.is_available() and isinstance(sync, dist.ProcessGroup)):
        _check.refuse("sync", "be True, a process group or a Pool", repr(sync), "sync=True")
    return Pool(None if sync is True else sync)


def _refuse_with_the_other() -> NoReturn:
    """Raise where the own mini-batch is fine, but another process's is not."""
    rule, got = "have a mini-batch that fits in every process", "one that another process refuses"
    _check.refuse("sync", rule, got, "its own message, which says why")


def in_pool(
    ranked: Tensor, pool: Pool, viewable: bool, marks: int, columns: dict[str, Any], items: Any
) -> tuple[Tensor, dict[str, Any], Tensor]:
    """Return what decides, and the other columns of `step.select`, of all processes, padded.

    And the mean of their `items`, which is NaN if one gives none. Padding takes no part. Of
    `trusted` every process gives `marks` columns. If another process refuses its mini-batch, or
    only some give items, raise ValueError where values can be read (`viewable`).
    """
    ones = torch.ones_like(ranked)
    trusted, groups = columns.get("trusted"), columns.get("groups")
    valid = ones if columns["valid"] is None else columns["valid"]
    masks = trusted if isinstance(trusted, Split) else (trusted, trusted)
    given = [valid, ranked, valid if columns["shares"] is None else columns["shares"]]
    given += [ones if each is None else each for each in masks[:marks]]
    given = given if groups is None else [*given, groups]
    valid, pooled, shares, *rest, numbers = pool.gather(given, items)
    refused = (valid == REFUSED).any()
    if viewable and refused:
        _refuse_with_the_other()
    if viewable and len(set(numbers.isnan().tolist())) > 1:
        rule, got = "be given by every process, or by none", "it by some of them"
        _check.refuse("num_items_in_batch", rule, got, "each process's own number")

    def of_all(measure: Callable[..., Any]) -> Callable[..., Any]:
        def gathered(*how: Any) -> Any:
            found = pool.gather([as_tensor(measure(*how))])[0].to(ranked.dtype)
            return found.numpy() if viewable else found

        return gathered

    # Where values cannot be read, a process that refuses makes the loss of all NaN.
    shares = shares.to(ranked.dtype).masked_fill(refused, float("nan"))
    found: dict[str, Any] = {"valid": valid > 0, "shares": shares}
    if groups is not None:
        found["groups"] = rest[-1].long()
    if trusted is not None:
        pair = Split(*(mask.bool() for mask in rest[:marks]))
        found["trusted"] = pair if isinstance(trusted, Split) else pair.good
    for name in {"sums", "margins"} & set(columns):
        found[name] = of_all(columns[name])
    return pooled.to(ranked.dtype), found, numbers.mean()
