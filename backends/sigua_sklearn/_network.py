"""The default network, and what any network reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor, nn

from sigua import checks

Factory = Callable[[int, int], nn.Module]
CHUNK = 4096
"""Rows that are predicted at once."""


def mlp(n_features: int, n_classes: int) -> nn.Module:
    """Return two hidden layers of 128 with dropout, which slows memorising down."""
    return nn.Sequential(
        *(nn.Linear(n_features, 128), nn.ReLU(), nn.Dropout(0.2)),
        *(nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.2)),
        nn.Linear(128, n_classes),
    )


@torch.no_grad()
def make(module: Factory | None, n_features: int, n_classes: int) -> nn.Module:
    """Return a fresh network, or raise ValueError if `module` does not make one."""
    rule = "module: must be a function (n_features, n_classes) that makes a torch.nn.Module"
    advice = "try lambda n_features, n_classes: torch.nn.Linear(n_features, n_classes)"
    if isinstance(module, nn.Module):  # which each fit would go on with
        raise ValueError(f"{rule}, got a {type(module).__name__} itself; {advice}")
    if module is not None and not (callable(module) and checks.takes(module, 1, 1)):
        raise ValueError(f"{rule}, got {module!r}; {advice}")
    network = (module or mlp)(n_features, n_classes)
    if not isinstance(network, nn.Module):
        raise ValueError(f"{rule}, got one that makes a {type(network).__name__}; {advice}")
    rule += f" from (N, {n_features}) to logits (N, {n_classes})"
    try:
        made = network.eval()(torch.zeros(2, n_features))  # and lazy layers are made
    except Exception as error:
        raise ValueError(f"{rule}, got one that refuses such rows ({error}); {advice}") from error
    if not isinstance(made, Tensor) or made.shape != (2, n_classes):
        shape = getattr(made, "shape", None)
        got = f"a {type(made).__name__}" if shape is None else f"shape {tuple(shape)}"
        raise ValueError(f"{rule}, got {got} for N = 2; {advice}")
    if (made >= 0).all() and ((made.sum(1) - 1).abs() < 1e-5).all():
        raise ValueError(f"{rule}, got probabilities; try leaving out its last layer, a softmax")
    return network


def factory(module: Factory | None, n_features: int, n_classes: int) -> Callable[[], nn.Module]:
    """Return what makes a fresh network; raise ValueError if `module` makes the same each time."""
    fresh = partial(make, module, n_features, n_classes)
    with torch.random.fork_rng([]):
        if module is not None and fresh() is fresh():
            raise ValueError(
                "module: must make a new network at each call, got the same one twice, which every "
                "training would go on with; try making it inside the function"
            )
    return fresh


class Rows:
    """Rows of a dense or sparse matrix as float32 tensors on a device, by their indices."""

    def __init__(self, X: Any, device: str) -> None:
        self._sparse, self._device = issparse(X), device
        self._X: Any = X if self._sparse else self._tensor(X)

    def _tensor(self, X: Any) -> Tensor:
        return torch.as_tensor(np.asarray(X, dtype=np.float32), device=self._device)

    def __len__(self) -> int:
        return int(self._X.shape[0])

    def __getitem__(self, rows: Any) -> Tensor:
        return self._tensor(self._X[rows].toarray()) if self._sparse else self._X[rows]


@torch.no_grad()
def probabilities(network: nn.Module, rows: Rows) -> NDArray[np.float32]:
    """Return p(class | x), (n, k)."""
    network.eval()
    starts = range(0, len(rows), CHUNK)
    parts = [network(rows[start : start + CHUNK]).softmax(1).cpu().numpy() for start in starts]
    return np.concatenate(parts)
