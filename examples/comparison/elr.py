"""Early-learning regularisation (Liu et al., NeurIPS 2020), the peer that remembers every example.

    loss = cross-entropy + strength * mean_i log(1 - <p_i, t_i>)
    t_i <- decay * t_i + (1 - decay) * p_i

t_i is the running average of the network's own predictions for example i: n x k numbers, and an
index with each mini-batch. `decay` and `strength` are the paper's for CIFAR-10.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DECAY, STRENGTH = 0.7, 3.0
LEAST = 1e-4  # probabilities are kept that far from 0 and 1


class EarlyLearning(nn.Module):
    """The criterion, called with the examples' indices, too."""

    targets: Tensor

    def __init__(self, examples: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("targets", torch.zeros(examples, classes))

    def set_epoch(self, epoch: float) -> None:
        """Nothing changes with the epoch."""

    def forward(self, logits: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        p = logits.softmax(1).clamp(LEAST, 1 - LEAST)
        now = p.detach()
        averages = DECAY * self.targets[index] + (1 - DECAY) * now / now.sum(1, keepdim=True)
        self.targets[index] = averages
        penalty = (1 - (averages * p).sum(1)).log().mean()
        return F.cross_entropy(logits, labels) + STRENGTH * penalty
