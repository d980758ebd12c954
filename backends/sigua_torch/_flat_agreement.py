"""A fast path for the everyday call of Agreement, on NumPy's view of the logits (see `_flat`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigua import Agreement, Method, confidence
from sigua_torch._flat import INF, Array
from sigua_torch._margins import Confidence
from sigua_torch._schedule import is_repeated
from sigua_torch._tables import FEW_CLASSES


class FlatAgreement:
    """Agreement, by comparing logits where the threshold is 0, as it is after the warm-up.

    Args:
        state: the class confidence, which moves; None if margins are those of p.
    """

    def __init__(self, state: Confidence | None) -> None:
        self.state = state
        self._each: Array = np.arange(0)

    @staticmethod
    def applies(method: Method) -> bool:
        """Return whether the rule is Agreement itself, and the loss not corrected."""
        return type(method.condition) is Agreement and method.T is None

    def __call__(
        self,
        losses: Tensor,
        numbers: tuple[Any, ...],
        mean: bool,
        logits: Tensor,
        target: Tensor,
    ) -> tuple[Tensor, Array] | None:
        """Return the weights and the codes 0 good, 1 bad, as `FlatRule` does.

        None if a loss is not finite, or if the general path must refuse the call.

        Args:
            losses: -log p(label), float, (n,), n > 0, without gradient.
            numbers: gamma and the threshold.
            mean: whether to divide by n.
            logits: float, (n, k).
            target: class indices, (n,).
        """
        if self.state is not None and (is_repeated() or not self.state.fits(logits)):
            return None
        values, x, labels = losses.numpy(), logits.detach().numpy(), target.numpy()
        if not values.max() < INF:  # the maximum is NaN if any value is
            return None
        n, k = x.shape
        each = self._each  # read once, because another thread may have another batch size
        if n != len(each):
            self._each = each = np.arange(n)
        gamma, threshold = numbers
        # NumPy is several times as fast if the longer axis comes last.
        few = k <= FEW_CLASSES
        place = labels * n + each if few else each * k + labels
        agrees = _agrees(self._scores(x, few), place, threshold, axis=0 if few else 1)
        if self.state is not None:
            self._count(values, labels, k)
        scale = 1 / n if mean else 1.0
        table = np.array([scale, -gamma * scale], values.dtype)
        codes = (~agrees).view(np.int8)
        return torch.from_numpy(table[codes]), codes

    def _scores(self, x: Array, few: bool) -> Array:
        """Return log u up to a constant, as a new array: (k, n) for few classes, else (n, k)."""
        scores = x.T.copy(order="C") if few else x.copy()
        if self.state is not None and self.state.state is not None:
            log_c = np.log(confidence.rates(self.state.state.numpy()))
            scores -= log_c[:, None] if few else log_c
        return scores

    def _count(self, losses: Array, labels: Array, k: int) -> None:
        """Do what `Confidence.update` does, in place."""
        assert self.state is not None
        state = self.state.ready(k, torch.from_numpy(losses)).numpy()
        sums = np.stack([np.bincount(labels, np.exp(-losses), k), np.bincount(labels, minlength=k)])
        state[...] = confidence.moved(state, sums)


def _agrees(scores: Array, place: Array, threshold: float, axis: int) -> Array:
    """Return whether the margin of u = softmax(scores) is above the threshold; overwrites scores.

    Args:
        scores: float, with the classes along `axis`, in C order.
        place: where each label is in the flattened scores, (n,).
        threshold: a margin.
        axis: the dimension of the classes.
    """
    flat = scores.reshape(-1)
    own = flat.take(place)
    flat[place] = -INF
    other = scores.max(axis)
    if threshold == 0:
        return np.asarray(own > other)
    top = np.maximum(own, other)
    own, other = np.exp(own - top), np.exp(other - top)
    total = own + np.exp(scores - np.expand_dims(top, axis)).sum(axis)
    return np.asarray(own - other > threshold * total)
