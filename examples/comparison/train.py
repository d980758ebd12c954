"""Training many small networks on the same images: one by one on a CPU, side by side on a GPU.

The loop is an everyday one. On a GPU its step, criterion included, is captured once as a CUDA graph
and replayed, each network on a stream of its own; that needs fixed shapes and no synchronisation,
which is why the order of the examples and the place in it live on the device.
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from zlib import compress

import torch
from beyond import AveragedAgreement, Twins, TwoNetworks
from elr import EarlyLearning
from torch import Tensor, nn

import sigua

CLASSES = 10
RATE = 1e-3  # Adam's learning rate, where it begins
TESTED = 2000  # images at a time, which a CPU's caches hold
EAGER = 3  # steps before the graph is captured, in which libraries choose their kernels


class Images(NamedTuple):
    """Pixels in [0, 1], (n, 1, 28, 28), labels (n,), and clean ones to test on; on the device."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor


class Settings(NamedTuple):
    """What networks trained side by side have in common."""

    net: str = "mlp"
    epochs: int = 20
    batch: int = 128
    decay: bool = True  # of the learning rate, linearly to zero
    images: int = 20_000  # the first ones, to train on; all take three times as long


def packed(classes: Tensor) -> str:
    """Return classes up to 255 as text; `choice.unpacked` reads it."""
    return b64encode(compress(classes.byte().cpu().numpy().tobytes(), 9)).decode()


def make_net(name: str) -> nn.Module:
    """Return an MLP 784-256-256-10, or a CNN of two strided convolutions and two linear layers."""
    if name == "mlp":
        hidden = nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(256, CLASSES))
    convolutions = nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2), nn.ReLU()
    dense = nn.Flatten(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    return nn.Sequential(*convolutions, *dense)


class Training:
    """One network, its criterion, its optimiser, and its own order of the examples.

    Args:
        images: on the device.
        criterion: there, too.
        seed: of the weights and the order.
        settings: shared by those trained side by side.
        held_out: how many examples, the last ones, are not trained on.
        after_epoch: is told the network's logits on those that are held out, and their labels.
    """

    def __init__(
        self,
        images: Images,
        criterion: nn.Module,
        seed: int,
        settings: Settings,
        held_out: int = 0,
        after_epoch: Callable[[Tensor, Tensor], None] | None = None,
    ) -> None:
        device = images.x.device
        torch.manual_seed(seed)
        self.images, self.criterion, self.settings = images, criterion, settings
        net = make_net(settings.net)
        if isinstance(criterion, TwoNetworks):
            net = Twins(net, make_net(settings.net))
        self.net = net.to(device)
        self.rate = torch.tensor(RATE, device=device)
        on_card = device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            self.net.parameters(), lr=self.rate, fused=True, capturable=on_card
        )
        self.used = len(images.y) - held_out
        self.after_epoch = after_epoch
        self.generator = torch.Generator().manual_seed(seed)
        self.order = torch.empty(self.used, dtype=torch.int64, device=device)
        self.place = torch.arange(settings.batch, device=device)
        self.stream = torch.cuda.Stream() if on_card else None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.correct: list[Tensor] = []
        self.by_index = isinstance(criterion, (AveragedAgreement, EarlyLearning))
        rule = getattr(getattr(criterion, "method", None), "condition", None)
        self.drops = isinstance(rule, sigua.Agreement)  # whose share is an estimate
        self.bad = torch.zeros((), device=device)
        self.dropped: list[Tensor] = []
        self.held_out: list[Tensor] = []

    @property
    def steps(self) -> int:
        return self.used // self.settings.batch

    def begin(self, epoch: int) -> None:
        """Say which epoch it is, lower the learning rate, and shuffle."""
        self.criterion.set_epoch(epoch)
        left = 1 - epoch / self.settings.epochs
        self.rate.fill_(RATE * (left if self.settings.decay else 1.0))
        self.order.copy_(torch.randperm(self.used, generator=self.generator))
        self.place.copy_(torch.arange(self.settings.batch))
        self.bad.zero_()

    def step(self) -> None:
        """Train on the next mini-batch, by the graph once there is one."""
        if self.graph is not None:
            self.graph.replay()
        else:
            self._step()

    def capture(self) -> None:
        """Record the step; nothing runs."""
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad()
        with torch.cuda.graph(graph, stream=self.stream):
            self._step()
        self.graph = graph

    def _step(self) -> None:
        batch = self.order.index_select(0, self.place)
        self.place.add_(len(self.place))
        self.optimizer.zero_grad()
        index = (batch,) if self.by_index else ()
        loss = self.criterion(self.net(self.images.x[batch]), self.images.y[batch], *index)
        loss.backward()
        self.optimizer.step()
        if self.drops:
            self.bad.add_(self.criterion.split.bad.sum())

    @torch.no_grad()
    def end(self) -> None:
        """Test, without waiting for the device; then tell what was held out."""
        parts = self.images.x_test.split(TESTED)
        logits = torch.cat([self.net(part) for part in parts])
        if logits.ndim == 3:  # of two networks, which vote
            logits = logits.softmax(dim=1).sum(dim=2)
        predicted = logits.argmax(dim=1)
        self.correct.append((predicted == self.images.y_test).double().mean())
        if self.drops:
            self.dropped.append(self.bad / (self.steps * self.settings.batch))
        labels = self.images.y[self.used :]
        if len(labels):
            logits = self.net(self.images.x[self.used :])
            self.held_out.append(logits.argmax(dim=1))
            if self.after_epoch is not None:
                self.after_epoch(logits, labels)

    def accuracy(self) -> list[float]:
        """Return the test accuracy after each epoch, in %."""
        return [round(100 * share.item(), 2) for share in self.correct]  # of 10,000 images

    def shares_dropped(self) -> dict[str, list[float]]:
        """Return the share of the examples that each epoch dropped, if the rule judges alone."""
        return {"dropped": [round(d.item(), 4) for d in self.dropped]} if self.drops else {}

    def held_out_predictions(self) -> dict[str, Any]:
        """Return the accuracy on the labels that are held out after each epoch, in %.

        And these labels, and what the last epoch predicts, so that runs can be compared example by
        example.
        """
        if not self.held_out:
            return {}
        labels = self.images.y[self.used :]
        shares = [100 * (found == labels).double().mean().item() for found in self.held_out]
        texts = {"given": packed(labels), "predicted": packed(self.held_out[-1])}
        return {"held_out": [round(share, 2) for share in shares], **texts}


def train(group: Sequence[Training]) -> None:
    """Train networks with the same settings and as many examples side by side."""
    on_card = group[0].stream is not None
    for epoch in range(group[0].settings.epochs):
        for training in group:
            with torch.cuda.stream(training.stream):
                training.begin(epoch)
        for step in range(group[0].steps):
            if on_card and epoch == 0 and step == EAGER:
                torch.cuda.synchronize()
                for training in group:
                    training.capture()
            for training in group:
                with torch.cuda.stream(training.stream):
                    training.step()
        for training in group:
            with torch.cuda.stream(training.stream):
                training.end()
