"""Warnings about training that probably does not do what was meant; a criterion gives each once."""

from __future__ import annotations

import warnings

from sigua import Method, SmallLoss

FORGOTTEN_AFTER = 1_000
"""After this many training calls at epoch 0, the criterion warns about set_epoch."""
LARGE = 1000
"""The size of a mini-batch above which it is not checked."""
USER = 6
"""The number of frames from a warning up to the call of the criterion."""


class Advice:
    """Checks training calls, and warns.

    Args:
        method: the method trained with.
        counts: whether the criterion counts epochs by itself.
        whole: whether the examples of a call are selected from together, and without others.
    """

    def __init__(self, method: Method, counts: bool, whole: bool) -> None:
        self.method = method
        condition = method.condition
        self.rule = condition if whole and isinstance(condition, SmallLoss) else None
        self.known_sizes: set[int] = set()
        self.calls_at_epoch_0: int | None = 0 if method.horizon > 0 and not counts else None

    def look(self, size: int) -> None:
        """Check a call with `size` examples."""
        if self.rule is not None and size not in self.known_sizes and 0 < size <= LARGE:
            self._look_at_size(size, self.rule)
        if self.calls_at_epoch_0 is not None:
            self.calls_at_epoch_0 += 1
            if self.calls_at_epoch_0 == FORGOTTEN_AFTER:
                self._say_epoch()

    def _look_at_size(self, size: int, rule: SmallLoss) -> None:
        self.known_sizes.add(size)
        if rule.too_small(size):
            self.rule = None
            warnings.warn(
                f"a mini-batch of {size} is too small for {self.method!r}: after the warm-up it "
                "keeps, drops or climbs on no example; use larger batches, or drop_last=True if "
                "it was only the last, partial batch of an epoch",
                stacklevel=USER,
            )

    def _say_epoch(self) -> None:
        self.calls_at_epoch_0 = None
        warnings.warn(
            f"{FORGOTTEN_AFTER} training calls and still at epoch 0, where {self.method!r} "
            "begins: call criterion.set_epoch(epoch) before each epoch; if epochs are long, "
            "set_epoch(epoch + step / len(loader)) before each step; or pass "
            "steps_per_epoch=len(loader)",
            stacklevel=USER,
        )
