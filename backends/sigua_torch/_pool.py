"""The mini-batch of all processes, by one all_gather that carries no gradient."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sigua import checks


class Pool:
    """Gathers the values that decide about examples from a process group.

    Every process must call `gather` at every step, even without examples. The parts are in the
    order of the ranks; a part that is shorter than the longest is padded.

    Copies of a criterion share its pool. A pool with a process group of its own cannot be pickled,
    because process groups cannot.

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

    def __getstate__(self) -> dict[str, Any]:
        if self.group is not None:
            raise ValueError(
                "sync: must be True or Pool(largest=...) to be pickled, got a process group, which "
                "belongs to this process; try saving criterion.state_dict()"
            )
        return self.__dict__

    @property
    def processes(self) -> int:
        return dist.get_world_size(self._started())

    def gather(self, *columns: Tensor) -> list[Tensor]:
        """Return each column, (n,), of the whole group, (processes * largest,), padded with 0.

        Raises:
            ValueError: n is larger than `largest`.
        """
        table = torch.stack([column.to(columns[0].dtype) for column in columns])
        largest = self._largest(table)
        padded = torch.nn.functional.pad(table, (0, largest - table.shape[1])).contiguous()
        out = padded.new_empty(self.processes * padded.numel())
        self._all_gather(out, padded.reshape(-1))
        parts = out.reshape(self.processes, len(columns), largest)
        return list(parts.transpose(0, 1).reshape(len(columns), -1))

    def total(self, part: Tensor) -> Tensor:
        """Return the sum of a tensor over the processes."""
        total = part.clone()
        dist.all_reduce(total, group=self._started())
        return total

    def own(self, pooled: Tensor, n: int) -> Tensor:
        """Return this process's n entries of a pooled column."""
        start = dist.get_rank(self.group) * (len(pooled) // self.processes)
        return pooled[start : start + n]

    def _started(self) -> Any:
        """Return the group, or raise ValueError if no process has joined one yet."""
        if not dist.is_initialized():
            raise ValueError(
                "sync: must have a process group to select over, got none; "
                "try torch.distributed.init_process_group() first, or sync=None in one process"
            )
        return self.group

    def _all_gather(self, out: Tensor, part: Tensor) -> None:
        # Before it had this name, which the older one now deprecates.
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        gather(out, part, group=self.group)

    def _largest(self, table: Tensor) -> int:
        n = table.shape[1]
        if self.largest is not None and n > self.largest:
            raise ValueError(
                f"largest: must be at least the examples of any process, got {self.largest} for "
                f"a mini-batch of {n}; try Pool(largest={n})"
            )
        if self.largest is None:
            size = torch.tensor([n], device=table.device)
            sizes = size.new_empty(self.processes)
            self._all_gather(sizes, size)
            return int(sizes.max())
        return self.largest


def pool_of(sync: Any) -> Pool | None:
    """Return the pool for the argument `sync`: None, True, a process group, or a pool.

    Raises:
        ValueError: `sync` is anything else.
    """
    if sync is None or sync is False:
        return None
    if isinstance(sync, Pool):
        return sync
    if sync is True or (dist.is_available() and isinstance(sync, dist.ProcessGroup)):
        return Pool(None if sync is True else sync)
    raise ValueError(f"sync: must be True, a process group or a Pool, got {sync!r}; try sync=True")
