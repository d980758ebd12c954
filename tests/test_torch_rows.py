"""The everyday loss of backward correction is one function of autograd: its derivatives."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import sigua
from sigua_torch import SIGUALoss

MATRICES = {
    "pair": sigua.TransitionMatrix.pair(0.3, 3),
    "dense": sigua.TransitionMatrix([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.1, 0.2, 0.7]]),
    "symmetric": sigua.TransitionMatrix.symmetric(0.3, 3),
}
each_matrix = pytest.mark.parametrize("T", MATRICES.values(), ids=MATRICES)


def batch():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.tensor([0, 1, 2, 0, 2])


@each_matrix
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_its_derivatives_are_those_of_its_values(T, reduction):
    """The first and the second, and of a batch of directions at a time."""
    criterion = SIGUALoss(sigua.sigua_bc(T), reduction=reduction).double()
    logits, labels = batch()
    assert gradcheck(lambda x: criterion(x, labels), logits, check_batched_grad=True)
    assert gradgradcheck(lambda x: criterion(x, labels), logits, check_batched_grad=True)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # PyTorch's own, of duals
@each_matrix
def test_its_derivative_forwards_is_that_backwards(T):
    criterion = SIGUALoss(sigua.backward_correction(T)).double()
    logits, labels = batch()
    along = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3)
    (gradient,) = torch.autograd.grad(criterion(logits, labels), logits)
    with forward_ad.dual_level():
        loss = criterion(forward_ad.make_dual(logits.detach().requires_grad_(), along), labels)
        tangent = forward_ad.unpack_dual(loss).tangent
    torch.testing.assert_close(tangent, (gradient * along).sum(), rtol=1e-12, atol=1e-14)


@each_matrix
def test_labels_and_logits_may_be_overwritten_before_the_backward_pass(T):
    """As those of `F.cross_entropy` may: the first derivative and the second are the same."""
    results = []
    for overwrite in (False, True):
        logits, labels = batch()
        x = logits * 2
        loss = SIGUALoss(sigua.sigua_bc(T)).double()(x, labels)
        if overwrite:
            labels.zero_()
            with torch.no_grad():
                x.zero_()
        (first,) = torch.autograd.grad(loss, logits, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), logits)
        results.append((first.detach(), second))
    torch.testing.assert_close(*results, rtol=0, atol=0)
