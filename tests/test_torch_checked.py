"""Checked and noisy examples in one mini-batch: the guide's recipe, in its two forms."""

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


def mini_batch(n=40, checked=12):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    mask = torch.zeros(n, dtype=torch.bool)
    mask[torch.randperm(n, generator=generator)[:checked]] = True
    return logits, torch.randint(0, 4, (n,), generator=generator), mask


def gradient(loss, logits):
    logits = logits.clone().requires_grad_()
    loss(logits).backward()
    return logits.grad


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_checked_examples_count_in_full_and_the_others_as_if_they_were_alone(method):
    """By a mask and ignore_index: the gradient is the plain one here, and the method's there."""
    logits, labels, checked = mini_batch()
    plain, criterion = nn.CrossEntropyLoss(), SIGUALoss(method)

    def together(z):
        noisy = criterion(z, labels.masked_fill(checked, -100))
        return noisy + plain(z, labels.masked_fill(~checked, -100))

    found = gradient(together, logits)
    right = gradient(lambda z: plain(z, labels[checked]), logits[checked])
    given = gradient(lambda z: SIGUALoss(method)(z, labels[~checked]), logits[~checked])
    torch.testing.assert_close(found[checked], right, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(found[~checked], given, rtol=1e-12, atol=1e-15)
    assert not criterion.split.good[checked].any()
    assert not criterion.split.bad[checked].any()


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_parts_of_one_forward_pass_are_the_same_as_a_mask(method):
    logits, labels, checked = mini_batch()
    order = torch.cat([torch.where(~checked)[0], torch.where(checked)[0]])
    plain, criterion = nn.CrossEntropyLoss(), SIGUALoss(method)
    n = int((~checked).sum())
    noisy, known = logits[order].split([n, len(order) - n])
    parts = criterion(noisy.requires_grad_(), labels[order][:n]) + plain(known, labels[order][n:])
    mask = SIGUALoss(method)(logits.requires_grad_(), labels.masked_fill(checked, -100))
    mask = mask + plain(logits, labels.masked_fill(~checked, -100))
    assert parts.item() == pytest.approx(mask.item(), rel=1e-12)
