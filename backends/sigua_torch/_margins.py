"""Margins of the model's own prediction, and the class confidence that divides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sigua import confidence
from sigua.conditions import no_margins
from sigua_torch._measure import class_dim, is_index
from sigua_torch._pool import Pool
from sigua_torch._schedule import is_repeated
from sigua_torch._sparse import along


class Margins:
    """A mini-batch's predictions against its labels, without gradient.

    The label's own class is left out by a mask, which graphs fuse, and not by writing to an index.

    Args:
        logits: (k,), (N, k) or (N, k, d1, ...).
        target: class indices in [0, k), or class probabilities, of which the largest is the label.
        valid: bool, with the shape of class indices: which examples take part; None for all.
    """

    def __init__(self, logits: Tensor, target: Tensor, valid: Tensor | None) -> None:
        self.dim = class_dim(logits)
        self.p = logits.detach().softmax(self.dim)
        index = target if is_index(logits, target) else target.argmax(self.dim)
        self.index = index.unsqueeze(self.dim)
        classes = torch.arange(logits.shape[self.dim], device=logits.device)
        self.at_label = along(classes, logits, self.dim) == self.index
        self.valid = valid

    def __call__(self, c: Tensor | None) -> Tensor:
        """Return the margins, (n,), of p divided by c, (k,), and scaled to sum to 1."""
        u = self.p if c is None else self.p / along(c, self.p, self.dim)
        own = u.gather(self.dim, self.index).squeeze(self.dim)
        other = u.masked_fill(self.at_label, 0.0).amax(self.dim)
        return ((own - other) / u.sum(self.dim)).reshape(-1)

    def measure(self, confidence: Confidence | None) -> Callable[[bool], Tensor]:
        """Return what measures margins, by class, for which it needs the confidence, or not."""

        def measure(by_class: bool) -> Tensor:
            if not by_class:
                return self(None)
            if confidence is None:
                raise no_margins()
            return self(confidence.rates())

        return measure

    def sums(self) -> Tensor:
        """Return the sum of p(j | x) over examples labelled j, and their number, (2, k)."""
        own = self.p.gather(self.dim, self.index).squeeze(self.dim)
        counted = own >= 0  # a NaN, which is not, would stay for ever
        if self.valid is not None:
            counted = counted & self.valid
        parts = torch.stack([own.masked_fill(~counted, 0.0), counted.to(own.dtype)])
        if own.is_cpu:
            zeros = parts.new_zeros(2, self.p.shape[self.dim])
            return zeros.index_add(1, self.index.reshape(-1), parts.reshape(2, -1))
        # By masks, because a card would add in another order each time.
        by_class = parts.unsqueeze(self.dim + 1) * self.at_label
        others = [i for i in range(1, by_class.ndim) if i != self.dim + 1]
        return by_class.sum(others) if others else by_class


class Confidence(nn.Module):
    """The class confidence (`sigua.confidence`), which the criterion keeps besides the epoch.

    Args:
        pool: the processes that share it; None for this process alone.
    """

    state: Tensor | None
    pending: Tensor | None
    """The sums of the mini-batch so far, where it comes in micro-batches."""

    def __init__(self, pool: Pool | None) -> None:
        super().__init__()
        self.pool = pool
        self.register_buffer("state", None, persistent=False)
        self.register_buffer("pending", None, persistent=False)

    def fits(self, logits: Tensor) -> bool:
        """Return whether the number of classes is the same as before."""
        return self.state is None or self.state.shape[1] == logits.shape[class_dim(logits)]

    def check(self, logits: Tensor) -> None:
        """Raise ValueError if the number of classes has changed, or a checkpoint repeats a call."""
        if is_repeated():
            raise ValueError(
                "torch.utils.checkpoint: must not repeat a criterion whose class confidence moves "
                "with each call, got a repeated call; try a checkpoint of the model alone"
            )
        if self.state is not None and not self.fits(logits):
            raise ValueError(
                f"input: must have {self.state.shape[1]} classes, whose confidence the criterion "
                f"keeps, got {logits.shape[class_dim(logits)]}; try a criterion for each output"
            )

    def rates(self) -> Tensor | None:
        """Return c, (k,), as it was before this mini-batch; None before the first."""
        return None if self.state is None else confidence.rates(self.state)

    def update(self, batch: Tensor, items: Any) -> None:
        """Add the sums of a mini-batch, or of a micro-batch.

        Args:
            batch: (2, k).
            items: the number of examples in the mini-batch, if this is a part of it: c stays the
                same until that many are counted, so that all parts are judged by the same c. None
                for a whole mini-batch.
        """
        if self.pool is not None:
            batch = self.pool.total(batch)
        state, pending = self.ready(batch.shape[1], batch), self.pending
        if items is None:
            state.copy_(confidence.moved(state, batch))
            return
        pending = torch.zeros_like(batch) if pending is None else pending
        batch = pending + batch
        done = batch[1].sum() >= items
        state.copy_(torch.where(done, confidence.moved(state, batch), state))
        self.pending = batch.masked_fill(done, 0.0)

    def ready(self, k: int, like: Tensor) -> Tensor:
        """Return the state, which starts as zeros at the first mini-batch."""
        if self.state is None:
            self.state = like.new_zeros(2, k)
        return self.state

    def get_extra_state(self) -> Tensor:
        return torch.zeros(2, 0) if self.state is None else self.state.clone()

    def set_extra_state(self, state: Tensor) -> None:
        with torch.inference_mode(False):  # whose tensors could not be counted on later
            exact = torch.promote_types(state.dtype, torch.float32)
            self.state = None if state.numel() == 0 else state.to(exact, copy=True)
        self.pending = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Confidence:
        exact = self.state, self.pending
        with torch.inference_mode(False):
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # untyped in PyTorch
        if self.state is not None and self.state.dtype in (torch.float16, torch.bfloat16):
            device = self.state.device  # half precision cannot count to 100
            self.state, self.pending = (x if x is None else x.to(device) for x in exact)
        return self
