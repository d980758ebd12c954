"""Checked and noisy examples in one mini-batch: the guide's recipe, in two forms."""

import pytest
import torch
from torch import nn

import sigua
from sigua_torch import SIGUALoss

METHODS = [
    sigua.standard(),
    sigua.sigua_sl(noise_rate=0.4, delta=0.2, gamma=0.1, warmup=0),
    sigua.forward_correction(sigua.TransitionMatrix.pair(0.3, 4)),
    sigua.sigua_ag(warmup=0),
]
plain = nn.CrossEntropyLoss()


def by_where(criterion, z, y, checked):
    return criterion(z, y, where=~checked) + plain(z, y.masked_fill(~checked, -100))


def by_ignore_index(criterion, z, y, checked):
    noisy = criterion(z, y.masked_fill(checked, -100))
    return noisy + plain(z, y.masked_fill(~checked, -100))


def gradient(loss, logits):
    logits = logits.clone().requires_grad_()
    loss(logits).backward()
    return logits.grad


@pytest.mark.parametrize("together", [by_where, by_ignore_index])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_checked_examples_count_in_full_and_the_others_as_if_they_were_alone(method, together):
    """The gradient is the plain one here, and the method's there."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (40,), generator=generator)
    checked = torch.rand(40, generator=generator) < 0.3
    criterion = SIGUALoss(method)
    found = gradient(lambda z: together(criterion, z, labels, checked), logits)
    right = gradient(lambda z: plain(z, labels[checked]), logits[checked])
    given = gradient(lambda z: SIGUALoss(method)(z, labels[~checked]), logits[~checked])
    torch.testing.assert_close(found[checked], right, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(found[~checked], given, rtol=1e-12, atol=1e-15)
    assert not (criterion.split.good | criterion.split.bad)[checked].any()
