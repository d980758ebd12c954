"""Two attempts to beat agreement with nothing known: averaged margins, and a counted T."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sigua
from sigua_torch import SIGUALoss

KEEP = 0.7  # of an example's averaged prediction, from epoch to epoch
WARM = 10  # epochs after which T is counted


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
