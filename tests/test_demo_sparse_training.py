"""PyTorch trains by a sparse T on 100,000 classes, where a dense one cannot be."""

import pytest
import scipy.sparse as sp
import torch
from test_demo_sparse import confusions
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import sigua
from sigua import TransitionMatrix
from sigua_torch import SIGUALoss

METHODS = {"label": lambda T: sigua.sigua_bc(T, gamma=0.5), "forward": sigua.forward_correction}


def run(criterion, logits, target):
    logits = logits.detach().requires_grad_()
    value = criterion(logits, target)
    value.sum().backward()
    return value.detach(), logits.grad


@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
def test_a_class_that_has_no_part_in_the_label_may_be_impossible(make):
    """Masked logits make the losses of other groups infinite and leave this group's as they are."""
    rows, generator = confusions(10), torch.Generator().manual_seed(10)
    logits = 3 * torch.randn(60, 10, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 5, (60,), generator=generator)
    logits[:, 5:] = -torch.inf
    value, gradient = run(SIGUALoss(make(TransitionMatrix(rows))), logits, labels)
    alone = TransitionMatrix(sp.csr_array(rows.toarray()[:5, :5]))
    want, slopes = run(SIGUALoss(make(alone)), logits[:, :5], labels)
    assert abs(value - want) <= 1e-13
    assert (gradient[:, :5] - slopes).abs().max() <= 1e-14
    assert (gradient[:, 5:] == 0).all()


K = 100_000


class Largest(TorchDispatchMode):
    """Notes the number of entries of the largest tensor that anything makes."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.entries = max(self.entries, *sizes, 0)
        return result


MANY = {
    "symmetric": lambda: sigua.sigua_bc(TransitionMatrix.symmetric(0.5, K)),
    "groups": lambda: sigua.forward_correction(TransitionMatrix(confusions(K))),
}


@pytest.mark.parametrize("kind", MANY)
def test_a_network_trains_on_a_hundred_thousand_classes_without_an_array_of_k_by_k(kind):
    """That would have 10^10 entries; the largest has fewer than 2 * 10^7, and the loss falls."""
    torch.manual_seed(0)
    y = torch.randint(0, K, (16,))
    with Largest() as largest:
        method = MANY[kind]()
        net = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, K))
        criterion = SIGUALoss(method)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = criterion(net(torch.arange(16)), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0] - 1
    assert not {"rows", "inverse"} & vars(method.T).keys()
    assert 16 * K <= largest.entries < 2e7


def test_a_matrix_that_fills_a_column_is_refused():
    """Each class is called the first one for 30 %: a table of columns would have k x k."""
    T = sigua.mapped_transition(dict.fromkeys(range(1, K), 0), 0.3, K)
    with pytest.raises(ValueError, match=r"^T: .* class 0, which is observed for 100000 of"):
        SIGUALoss(sigua.forward_correction(T))(torch.zeros(4, K), torch.arange(4))
