"""Rules of a user's own: what they are given is theirs, and what they return is checked."""

from dataclasses import dataclass

import pytest
import torch
from torch.nn import functional as F

import sigua
from sigua_torch import SIGUALoss


@dataclass(frozen=True)
class Clipped:
    """Good is everyone, by losses that it clips in place."""

    reads = ()

    def at(self, epoch):
        return ()

    def split(self, batch):
        batch.losses.clamp_(max=0.5)
        return batch.losses < 9, batch.losses >= 9


@dataclass(frozen=True)
class AsFloats(Clipped):
    def split(self, batch):
        return (batch.losses < 1).float(), batch.losses >= 1


@dataclass(frozen=True)
class InNumPy(Clipped):
    def split(self, batch):
        return batch.losses.numpy() < 1, batch.losses.numpy() >= 1


@dataclass(frozen=True)
class TooShort(Clipped):
    def split(self, batch):
        return batch.losses[:-1] < 1, batch.losses[:-1] >= 1


@dataclass(frozen=True)
class OneForAll(Clipped):
    def split(self, batch):
        return batch.mean() >= 0, batch.mean() < 0


def batch():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 4, generator=generator, requires_grad=True)
    return logits, torch.randint(0, 4, (40,), generator=generator)


KEPT = torch.full((40,), 0.7)


def rank_by(logits, target):
    return KEPT


@pytest.mark.parametrize("options", [{}, {"per_class": True}, {"weight": torch.ones(4)}], ids=str)
def test_a_rule_that_writes_to_the_losses_does_not_change_what_is_optimised(options):
    criterion = SIGUALoss(sigua.custom(Clipped(), gamma=0.1), **options)
    torch.testing.assert_close(criterion(*batch()), F.cross_entropy(*batch()))
    logits, target = batch()
    criterion(logits, target).backward()
    want = torch.autograd.grad(F.cross_entropy(*(again := batch())), again[0])[0]
    torch.testing.assert_close(logits.grad, want)


def test_nor_what_rank_by_has_returned():
    SIGUALoss(sigua.custom(Clipped()), rank_by=rank_by)(*batch())
    assert (KEPT == 0.7).all()


@pytest.mark.parametrize(
    ("rule", "got"),
    [
        (AsFloats(), r"good as a Tensor of torch\.float32"),
        (InNumPy(), "good as a ndarray of bool"),
        (TooShort(), r"good of shape \(39,\)"),
    ],
)
def test_masks_that_are_none_of_the_batch_are_refused(rule, got):
    criterion = SIGUALoss(sigua.custom(rule))
    with pytest.raises(ValueError, match=f"^condition: must return .* got {got}; try "):
        criterion(*batch())
    assert criterion.split is None


@pytest.mark.parametrize("rule", [Clipped(), OneForAll()])
def test_a_graph_takes_a_rule_of_ones_own_whole(rule):
    criterion = SIGUALoss(sigua.custom(rule))
    compiled = torch.compile(criterion, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*batch()), F.cross_entropy(*batch()))
