"""The paper's two robust losses (Section 4): a regression of the scores f on the one-hot label y.

The scores are used as they are, without a softmax. The paper gives neither delta nor epsilon.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def huber(scores: Tensor, labels: Tensor, delta: float = 1.0) -> Tensor:
    """Return sum_j H(f_j - y_j), (n,): r^2 / 2 up to delta, then delta (|r| - delta / 2)."""
    return F.huber_loss(scores, one_hot(scores, labels), "none", delta).sum(1)


def log_sum(scores: Tensor, labels: Tensor, epsilon: float = 0.1) -> Tensor:
    """Return sum_j log(1 + |f_j - y_j| / epsilon), (n,), which is 0 where f = y.

    Candes et al. 2008, "Enhancing sparsity by reweighted l1 minimization".
    """
    return ((scores - one_hot(scores, labels)).abs() / epsilon).log1p().sum(1)


def one_hot(scores: Tensor, labels: Tensor) -> Tensor:
    return torch.zeros_like(scores).scatter(1, labels.unsqueeze(1), 1.0)
