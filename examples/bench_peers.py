"""What users would take instead of sigua, rewritten in a few lines, and the picture of the costs.

bench.py times them beside our rows. Each follows its paper's equation, without its options: small
loss by indexing and Co-teaching (Han et al. 2018), generalised cross-entropy (Zhang and Sabuncu
2018), early-learning regularisation (Liu et al. 2020), focal loss (Lin et al. 2017).
"""

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Loss = Callable[[Tensor, Tensor], Tensor]
DRAWN = ["cross-entropy", "SIGUA_SL", "SIGUA_AG", "BC symmetric", "forward symmetric"]


def kept(n: int) -> int:
    """Return how many small losses are kept at a noise rate of one half."""
    return n // 2 + 1


def by_indexing(logits: Tensor, labels: Tensor) -> Tensor:
    losses = F.cross_entropy(logits, labels, reduction="none")
    return losses[losses.detach().topk(kept(len(losses)), largest=False).indices].mean()


def generalised(logits: Tensor, labels: Tensor) -> Tensor:
    p = logits.softmax(1).gather(1, labels.unsqueeze(1))
    return ((1 - p**0.7) / 0.7).mean()


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    losses = F.cross_entropy(logits, labels, reduction="none")
    return ((1 - (-losses).exp()) ** 2 * losses).mean()


class EarlyLearning(nn.Module):
    """Remembers a prediction for each example of a data set, of which a mini-batch is a part."""

    def __init__(self, n: int, k: int) -> None:
        super().__init__()
        self.register_buffer("memory", torch.zeros(10 * n, k))
        self.register_buffer("index", torch.randperm(10 * n)[:n])

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        p = logits.softmax(1).clamp(1e-4, 1 - 1e-4)
        seen = p.detach() / p.detach().sum(1, keepdim=True)
        target = 0.7 * self.memory[self.index] + 0.3 * seen
        self.memory[self.index] = target
        return F.cross_entropy(logits, labels) + 3 * (1 - (target * p).sum(1)).log().mean()


def peer_losses(n: int, k: int, device: torch.device) -> dict[str, Loss]:
    peers: dict[str, Loss] = {
        "[label smoothing]": nn.CrossEntropyLoss(label_smoothing=0.1),
        "[focal]": focal,
        "[generalised cross-entropy]": generalised,
        "[small loss by topk and indexing]": by_indexing,
    }
    if n * k <= 1e6:  # beyond, the memory is larger than everything else
        peers["[early-learning regularisation]"] = EarlyLearning(n, k).to(device)
    return peers


def co_teaching(net: nn.Module, x: Tensor, labels: Tensor, kind: str) -> Callable[[], None]:
    """Return a step of two networks, each of which learns from the small losses of the other."""
    nets = net, copy.deepcopy(net)
    parameters = [parameter for each in nets for parameter in each.parameters()]
    optimizer = getattr(torch.optim, kind)(parameters, lr=0.0)

    def run() -> None:
        optimizer.zero_grad()
        losses = [F.cross_entropy(each(x), labels, reduction="none") for each in nets]
        small = [each.detach().topk(kept(len(x)), largest=False).indices for each in losses]
        (losses[0][small[1]].mean() + losses[1][small[0]].mean()).backward()
        optimizer.step()

    return run


def draw(rows: Iterable[Any], path: Path) -> None:
    """Draw the costs of the rows of losses: against n for 10 classes, and against k."""
    import matplotlib.pyplot as plt

    found: dict[str, list[tuple[int, int, float]]] = {name: [] for name in DRAWN}
    for row in rows:
        sizes = row.group.removeprefix("loss ").split(" x ")
        if row.name in found and len(sizes) == 2 and all(size.isdigit() for size in sizes):
            found[row.name].append((int(sizes[0]), int(sizes[1]), row.value))
    figure, (by_n, by_k) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for name, points in found.items():
        style = {"marker": ".", "color": "black" if name == DRAWN[0] else None, "label": name}
        at_ten = sorted({n: ms for n, k, ms in points if k == 10}.items())
        by_n.loglog(*zip(*at_ten or [(1, float("nan"))], strict=True), **style)
        each = sorted({k: 1e3 * ms / n for n, k, ms in points if n <= 1024}.items())
        by_k.loglog(*zip(*each or [(1, float("nan"))], strict=True), **style)
    by_n.set(xlabel="examples, 10 classes", ylabel="ms, forward and backward")
    by_k.set(xlabel="classes", ylabel="us per example, up to 1,024 examples")
    by_n.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
