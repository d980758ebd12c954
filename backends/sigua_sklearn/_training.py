"""One training of a network with a method: the loop, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import sigua
from sigua import Split
from sigua_sklearn._network import Rows, probabilities
from sigua_torch import LabelHistory, SelectionMeter, SIGUALoss

Seen = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """Examples: features, dense or sparse, class indices, and who was checked, bool."""

    X: Any
    given: NDArray[np.int64]
    checked: NDArray[np.bool_]

    def of(self, mask: NDArray[np.bool_]) -> Part:
        return Part(self.X[mask], self.given[mask], self.checked[mask])


@dataclass(frozen=True)
class Settings:
    """What all trainings of a fit have in common."""

    network: Callable[[], nn.Module]
    epochs: int
    batch_size: int | None
    share: float
    """Of each mini-batch that is checked; 0 if nobody is."""
    learning_rate: float
    device: str
    seed: int
    tell: Callable[[Seen], None]


@dataclass
class Run:
    """A trained network, what each epoch saw, the margins by epoch, p held out and what it says."""

    network: nn.Module
    history: list[Seen] = field(default_factory=list)
    margins: Any = None
    predicted: Any = None
    diagnosis: sigua.Diagnosis | None = None


def train(
    method: sigua.Method, part: Part, settings: Settings, held_out: Part | None = None
) -> Run:
    """Train a fresh network, always the same at first and with the same mini-batches."""
    cuda = [settings.device] if settings.device.startswith("cuda") else []
    with torch.random.fork_rng(cuda):
        torch.manual_seed(settings.seed)
        run = Run(settings.network().to(settings.device))
        _train(run, method, part, settings, held_out)
    return run


def _accuracy(margins: NDArray[Any]) -> float:
    """Return the share of the labels seen in an epoch that the network predicted."""
    return float((margins[~np.isnan(margins)] > 0).mean())


def _train(
    run: Run, method: sigua.Method, part: Part, settings: Settings, held_out: Part | None
) -> None:
    """Train by Adam, whose rate decays to 0.

    The loss is the method's on labels as given, plus plain cross-entropy on checked ones.
    """
    network, device = run.network, settings.device
    rows, y = Rows(part.X, device), torch.as_tensor(part.given, device=device)
    loader = _batches(part.checked, settings)
    criterion, plain = SIGUALoss(method, steps_per_epoch=len(loader)), nn.CrossEntropyLoss()
    criterion.to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    steps = settings.epochs * len(loader)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    meter, history, m = SelectionMeter(), LabelHistory(len(y)), loader.num_checked
    unseen = None if held_out is None else Rows(held_out.X, device)
    for epoch in range(settings.epochs):
        network.train()
        total: Any = 0.0
        for batch in loader:
            index = torch.tensor(batch, device=device)
            logits, target = network(rows[batch]), y[index]
            loss = criterion(logits[m:], target[m:])
            if m:
                loss = loss + plain(logits[:m], target[:m])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            decay.step()
            total = total + loss.detach()
            meter.update(cast(Split, criterion.split))
            history.update(index, logits, target)
        history.end_epoch()
        if not np.isfinite(float(total)):
            raise ValueError(
                "learning_rate: must be small enough for the training to converge, got "
                f"{settings.learning_rate} and a loss of {float(total)} in epoch {epoch}; "
                "try a tenth of it, or a scaler before the network"
            )
        seen = {
            "method": method,
            "epoch": epoch,
            "loss": float(total) / len(loader),
            "accuracy": _accuracy(history.margins[-1]),
            "dropped": meter.report().dropped,
        }
        if held_out is not None and unseen is not None:
            run.predicted = probabilities(network, unseen)
            seen["held_out_accuracy"] = float((run.predicted.argmax(1) == held_out.given).mean())
        run.history.append(seen)
        settings.tell(seen)
    run.margins = np.array(history.margins)


def _batches(checked: NDArray[np.bool_], settings: Settings) -> sigua.CheckedBatches:
    """Return the mini-batches, of which a share is checked."""
    size = settings.batch_size or min(max(len(checked) // 10, 16), 128)
    return sigua.CheckedBatches(checked, size, share=settings.share, seed=settings.seed)
