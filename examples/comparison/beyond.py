"""Attempts to beat agreement with nothing known.

Averaged margins, a counted T, two networks, a warm-up that the run chooses, a rule that softens,
and one that leaves room for hard examples where few labels look wrong.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sigua
from sigua import confidence
from sigua_torch import SIGUALoss

KEEP = 0.7  # of an example's averaged prediction, from epoch to epoch
WARM = 10  # epochs after which T is counted
SETTLED = 0.02  # the early phase ends when agreement rises by less than that in an epoch
RAMP = 5  # times the early phase is the warm-up
END = 20  # the epoch up to which agreement softens
ODDS = 1.5  # times the odds that a label of the class looks wrong is how much another class counts


class AveragedAgreement(nn.Module):
    """Agreement with the running average of the network's predictions for each example.

    Without the class confidence; it needs an index and n x k numbers.
    """

    averages: Tensor

    def __init__(self, examples: int, classes: int) -> None:
        super().__init__()
        self.rule = sigua.Agreement(by_class=False)
        self.set_epoch(0)
        self.register_buffer("averages", torch.full((examples, classes), 1 / classes))

    def set_epoch(self, epoch: float) -> None:
        """Raise the threshold."""
        self.threshold = self.rule.at(epoch)[0]

    def forward(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        p = KEEP * self.averages[index] + (1 - KEEP) * logits.detach().softmax(1)
        self.averages[index] = p
        at_label = F.one_hot(labels, p.shape[1]).bool()
        margins = p[at_label] - p.masked_fill(at_label, 0).amax(1)
        losses = F.cross_entropy(logits, labels, reduction="none")
        return (losses * (margins > self.threshold)).mean()


class ThenForward(nn.Module):
    """Agreement until it is warm; then forward correction by T, counted from the predictions.

    T[i, j] is the share of label j among the examples that were predicted as i in the last epoch of
    the warm-up.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.counts = torch.zeros(classes, classes)
        self.epoch = 0.0
        self.criterion = SIGUALoss(sigua.sigua_ag(WARM))

    def set_epoch(self, epoch: float) -> None:
        """Tell agreement, or change to forward correction."""
        self.epoch = epoch
        if epoch == WARM:
            counts = self.counts.numpy() + np.eye(len(self.counts))  # a class nobody predicts
            T = sigua.TransitionMatrix(counts / counts.sum(axis=1, keepdims=True))
            self.criterion = SIGUALoss(sigua.forward_correction(T))
        self.criterion.set_epoch(epoch)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.epoch == WARM - 1:
            ones = torch.ones(len(labels))
            self.counts.index_put_((logits.detach().argmax(1), labels), ones, accumulate=True)
        return self.criterion(logits, labels)


class Twins(nn.Module):
    """Two networks side by side: logits (n, k, 2)."""

    def __init__(self, one: nn.Module, other: nn.Module) -> None:
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.one(x), self.other(x)], dim=2)


class TwoNetworks(nn.Module):
    """Agreement between two networks: each trains on the examples that the other one keeps.

    Called with the logits of `Twins`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.criteria = nn.ModuleList(SIGUALoss(sigua.sigua_ag(WARM)) for _ in range(2))

    def set_epoch(self, epoch: float) -> None:
        """Raise both thresholds."""
        for criterion in self.criteria:
            criterion.set_epoch(epoch)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        pair = logits.unbind(2)
        for criterion, own in zip(self.criteria, pair, strict=True):
            criterion(own, labels)
        kept = [criterion.split.good for criterion in reversed(self.criteria)]
        losses = [F.cross_entropy(own, labels, reduction="none") for own in pair]
        return sum((loss * good).mean() for loss, good in zip(losses, kept, strict=True))


class OwnWarmup(nn.Module):
    """Agreement whose warm-up is five times as long as the early phase of this run.

    The early phase ends with the first epoch in which the share of labels that the network predicts
    before it trains on them rises by less than 0.02. Until then the threshold waits at -0.8.
    """

    def __init__(self) -> None:
        super().__init__()
        self.criterion = SIGUALoss(sigua.sigua_ag(WARM))
        self.shares: list[float] = []
        self.early: float | None = None
        self.agreed = self.seen = 0

    def set_epoch(self, epoch: float) -> None:
        """Look at the last epoch's share, and raise the threshold."""
        if self.seen:
            self.shares.append(self.agreed / self.seen)
        self.agreed = self.seen = 0
        rise = self.shares[-1] - self.shares[-2] if len(self.shares) > 1 else 1.0
        if self.early is None and rise < SETTLED:
            self.early = epoch - 1
        warmup = RAMP * (self.early or max(epoch, 1))
        self.criterion.set_epoch(WARM * min(epoch / warmup, 1))

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        self.agreed += int((logits.detach().argmax(1) == labels).sum())
        self.seen += len(labels)
        return self.criterion(logits, labels)


class Softening(nn.Module):
    """Agreement until it is warm; then its power rises to 1, so that hard examples come back.

    A method is a value: each epoch has a criterion of its own, which goes on from the last one's
    state.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_epoch(0)

    def set_epoch(self, epoch: float) -> None:
        """Change the power; a power of 0 would not count."""
        before = self.criterion.state_dict() if epoch else None
        power = float(np.clip((epoch - WARM) / (END - WARM), 1e-9, 1))
        self.criterion = SIGUALoss(sigua.sigua_ag(WARM, power=power))
        if before is not None:
            self.criterion.load_state_dict(before)
        self.criterion.set_epoch(epoch)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        if not logits.is_cpu:  # where a captured step would go on with the first criterion
            raise ValueError(
                f"device: must be cpu for a criterion that is made anew, got {logits.device}; "
                "try --device cpu"
            )
        return self.criterion(logits, labels)


class WithRoom(nn.Module):
    """Agreement that drops a label the more easily, the more labels of its class look wrong.

    A label y is kept if u_y is above min(1, ODDS * w_y) times the largest other u; w_y are the odds
    that a label y is not what the model predicts, over about 100 examples. Where 40 % of the
    labels are wrong that is agreement; on clean labels hard examples stay.
    """

    seen: Tensor
    """By class of the label: sums of p at the label, numbers, and how many were predicted."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.rule = sigua.Agreement()
        self.set_epoch(0)
        self.register_buffer("seen", torch.zeros(3, classes))

    def set_epoch(self, epoch: float) -> None:
        """Raise the threshold."""
        self.threshold = self.rule.at(epoch)[0]

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        p, column = logits.detach().softmax(1), labels[:, None]
        sums, numbers, predicted = self.seen + confidence.TINY
        u = p / (sums / numbers)
        u = u / u.sum(1, keepdim=True)
        own, other = u.gather(1, column)[:, 0], u.scatter(1, column, 0).amax(1)
        room = (ODDS * (numbers / predicted - 1)).clamp(max=1)[labels]
        good = own - room * other > self.threshold
        each = p.gather(1, column)[:, 0], torch.ones_like(own), (own > other).float()
        new = torch.zeros_like(self.seen).index_add(1, labels, torch.stack(each))
        self.seen.mul_((1 - 1 / confidence.MEMORY) ** new[1]).add_(new)
        losses = F.cross_entropy(logits, labels, reduction="none")
        return (losses * good).mean()
