"""Agreement's everyday call in few operators, on NumPy's view of the logits (see `_flat`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigua import Agreement, Method, confidence
from sigua_torch._flat import Array
from sigua_torch._margins import Confidence

INF = float("inf")


class FlatAgreement:
    """Judges by differences of logits where the threshold is 0, as it is after the warm-up.

    Args:
        mean: divide by n.
        state: of the class confidence, which moves; None if margins are those of p.
    """

    def __init__(self, mean: bool, state: Confidence | None) -> None:
        self.mean, self.state = mean, state

    @staticmethod
    def applies(method: Method, smoothing: float) -> bool:
        """Return whether the rule is ours, and the loss minus the logarithm of p at the label."""
        return type(method.condition) is Agreement and method.T is None and not smoothing

    def __call__(
        self, losses: Tensor, numbers: tuple[Any, ...], logits: Tensor, target: Tensor
    ) -> tuple[Tensor, Array] | None:
        """Return the weights and the codes 0 good, 1 bad, as `FlatRule` does.

        Args:
            losses: float, (n,), n > 0, without gradient.
            numbers: gamma and the threshold.
            logits: float, (n, k).
            target: class indices, (n,).

        Returns None if a loss is not finite, if classes are not those before, or if there is no
        memory to look at.
        """
        if self.state is not None and not self.state.fits(logits):
            return None
        try:
            values, x, labels = losses.numpy(), logits.detach().numpy(), target.numpy()
        except RuntimeError:  # inside a transform of torch.func
            return None
        if not values.max() < INF:  # NaN is every maximum
            return None
        gamma, threshold = numbers
        codes = (~_agrees(x - self._log_c(x), labels, threshold)).view(np.int8)
        if self.state is not None:
            self._count(values, labels, x.shape[1])
        scale = 1 / len(values) if self.mean else 1.0
        table = np.array([scale, -gamma * scale], values.dtype)
        return torch.from_numpy(table[codes]), codes

    def _log_c(self, x: Array) -> Any:
        if self.state is None or self.state.state is None:
            return 0.0
        return np.log(confidence.rates(self.state.state.numpy()), dtype=x.dtype)

    def _count(self, losses: Array, labels: Array, k: int) -> None:
        sums = np.bincount(labels, np.exp(-losses), k), np.bincount(labels, minlength=k)
        assert self.state is not None
        self.state.update(torch.from_numpy(np.array(sums, losses.dtype)), None)


def _agrees(scores: Array, labels: Array, threshold: float) -> Array:
    """Return whether the margin of u = softmax(scores) is above the threshold; spoils scores."""
    place = np.arange(len(labels)), labels
    own = scores[place]
    scores[place] = -INF
    other = scores.max(axis=1)
    if threshold == 0:
        return np.asarray(own > other)
    top = np.maximum(own, other)
    own, other = np.exp(own - top), np.exp(other - top)
    total = own + np.exp(scores - top[:, None]).sum(axis=1)
    return np.asarray(own - other > threshold * total)
