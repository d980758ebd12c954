"""Warnings about a use that trains, but not as meant; a criterion gives each once."""

from __future__ import annotations

import warnings

from sigua import Method, SmallLoss
from sigua_torch._schedule import EpochNumbers

FORGOTTEN_AFTER = 1_000
"""Training calls at epoch 0, whoever set it, after which the criterion asks about set_epoch."""
LARGE = 1000
"""Examples above which a mini-batch is not looked at."""
USER = 6
"""Frames from a warning up to the call of the criterion."""


class Advice:
    """Looks at training calls.

    Args:
        method: what is trained with.
        numbers: which know the epoch.
        whole: whether a mini-batch is all that is selected from, and at once.
    """

    def __init__(self, method: Method, numbers: EpochNumbers, whole: bool) -> None:
        self.method, self.numbers = method, numbers
        condition = method.condition
        self.rule = condition if whole and isinstance(condition, SmallLoss) else None
        self.known_sizes: set[int] = set()
        can_forget = method.horizon > 0 and numbers.steps_per_epoch is None
        self.calls_at_epoch_0: int | None = 0 if can_forget else None

    def look(self, size: int) -> None:
        """Look at a call with that many examples."""
        if self.rule is not None and size not in self.known_sizes and 0 < size <= LARGE:
            self._look_at_size(size, self.rule)
        if self.calls_at_epoch_0 is not None:
            self.calls_at_epoch_0 += 1
            if self.calls_at_epoch_0 == FORGOTTEN_AFTER:
                self._look_at_epoch()

    def _look_at_size(self, size: int, rule: SmallLoss) -> None:
        self.known_sizes.add(size)
        if rule.too_small(size):
            self.rule = None
            warnings.warn(
                f"a mini-batch of {size} is too small for {self.method!r}: once warm, it keeps or "
                "drops no example, or climbs on none; use larger batches (if it was only the last, "
                "partial batch of an epoch, drop_last=True)",
                stacklevel=USER,
            )

    def _look_at_epoch(self) -> None:
        self.calls_at_epoch_0 = None
        if self.numbers.epoch == 0:
            warnings.warn(
                f"{FORGOTTEN_AFTER} training calls and still at epoch 0, where {self.method!r} "
                "begins: call criterion.set_epoch(epoch) before each epoch, in a long one "
                "set_epoch(epoch + step / len(loader)) before each step, or pass "
                "steps_per_epoch=len(loader)",
                stacklevel=USER,
            )
