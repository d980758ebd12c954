"""Targets that are missing among several labels, or to regress on, take no part."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import sigua
from sigua_torch import SIGUALoss, losses

BCE = nn.BCEWithLogitsLoss(reduction="none")
SL = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0)
ROWS = sigua.TransitionMatrix([[0.9, 0.1], [0.3, 0.7]])
METHODS = [
    sigua.standard(),
    SL,
    sigua.sigua_bc(ROWS),
    sigua.forward_correction(ROWS),
    sigua.custom(sigua.SmallLoss(0.5, 0.2, 0), 0.3, "forward", ROWS),
    sigua.sigua_nf(0.1, 2),
]


def several_labels(mark, n=30, labels=4):
    """Return logits, of float64, and 0/1 targets of which a third is missing; and where."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(n, labels, generator=generator, dtype=torch.float64)
    target = torch.randint(0, 2, (n, labels), generator=generator).double()
    missing = torch.rand(n, labels, generator=generator) < 1 / 3
    return logits, target.masked_fill(missing, mark), missing


def run(criterion, logits, target):
    logits = logits.clone().requires_grad_()
    value = criterion(logits, target)
    value.sum().backward()
    return value.detach(), logits.grad


@pytest.fixture(params=["host", "device"])
def where(request, monkeypatch):
    if request.param == "device":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("mark", [-1, -100])
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_missing_labels_are_as_if_they_were_not_there(method, mark, reduction, where):
    """Value, masks and gradient are those of the labels that are there, in one column."""
    logits, target, missing = several_labels(mark)
    options = {"base": BCE, "reduction": reduction}
    criterion = SIGUALoss(method, ignore_index=mark, **options).double()
    alone = SIGUALoss(method, **options).double()
    value, gradient = run(criterion, logits, target)
    want, want_gradient = run(alone, logits[~missing], target[~missing])
    torch.testing.assert_close(value, want, rtol=1e-13, atol=0)
    torch.testing.assert_close(gradient[~missing], want_gradient, rtol=1e-12, atol=1e-16)
    assert (gradient[missing] == 0).all()
    for mask, expected in zip(criterion.split, alone.split, strict=True):
        assert torch.equal(mask[~missing], expected)
        assert not mask[missing].any()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("method", [SL, sigua.sigua_bc(ROWS)], ids=repr)
def test_in_evaluation_the_plain_loss_is_that_of_the_labels_that_are_there(method, reduction):
    logits, target, missing = several_labels(-1)
    criterion = SIGUALoss(method, ignore_index=-1, base=BCE, reduction=reduction).eval()
    each = BCE(logits, target.clamp(min=0)).masked_fill(missing, 0.0)
    want = {"none": each, "sum": each.sum(), "mean": each.sum() / (~missing).sum()}[reduction]
    torch.testing.assert_close(criterion(logits, target), want, rtol=1e-13, atol=1e-15)


def test_numbers_to_regress_on_are_missing_where_that_was_asked_for():
    """By hand: losses 1, 4 and 9, of which 4 is missing; rho = 1, so that their mean is 5."""
    mse = nn.MSELoss(reduction="none")
    logits = torch.tensor([1.0, -98.0, 3.0])
    target = torch.tensor([0.0, -100.0, 0.0])
    method = sigua.standard()
    assert run(SIGUALoss(method, base=mse), logits, target)[0].item() == pytest.approx(14 / 3)
    marked = SIGUALoss(method, base=mse, ignore_index=-1)
    assert run(marked, logits, target)[0].item() == pytest.approx(14 / 3)
    value, gradient = run(marked, logits, target.masked_fill(target < 0, -1))
    assert value.item() == 5
    assert gradient.tolist() == [1, 0, 3]


def test_a_mark_in_class_probabilities_is_refused(where):
    """Whose loss is one per row; nothing says which entry of a row would be missing."""
    base = losses.generalized_cross_entropy
    criterion = SIGUALoss(SL, base=base, ignore_index=2)
    with pytest.raises(ValueError, match=r"^ignore_index: must be left out .* got losses \(8,\)"):
        criterion(torch.zeros(8, 5, requires_grad=True), torch.full((8, 5), 0.2))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_integers_for_a_sigmoid_without_a_matrix_are_refused(dtype):
    """Where PyTorch says that a Float cannot be cast to a Long."""
    logits, target, _ = several_labels(0)
    for base in (BCE, nn.BCELoss(reduction="none")):
        for criterion in (SIGUALoss(SL, base=base), SIGUALoss(SL, base=base).eval()):
            with pytest.raises(ValueError, match=r"^target: must be float .*try target.float\(\)"):
                criterion(logits.requires_grad_(), target.to(dtype))


def test_multi_hot_integers_are_sent_to_the_loss_for_several_labels():
    with pytest.raises(ValueError, match=r"^target: .*base=nn.BCEWithLogitsLoss.* several labels"):
        SIGUALoss(SL)(torch.zeros(8, 5), torch.ones(8, 5, dtype=torch.long))


def test_integers_that_are_missing_take_no_part_under_a_base_of_ones_own():
    """Class indices of the logits' own shape: an ordinal loss, of which the last one is missing."""

    def base(logits, target):
        return (logits - target).abs()

    criterion = SIGUALoss(sigua.standard(), base=base, ignore_index=-1)
    value, gradient = run(criterion, torch.tensor([1.0, 2.0, 7.0]), torch.tensor([0, 0, -1]))
    assert value.item() == 1.5
    np.testing.assert_allclose(gradient, [0.5, 0.5, 0])


def test_float16_targets_are_missing_too():
    logits, target, missing = several_labels(-1)
    criterion = SIGUALoss(SL, base=BCE, ignore_index=-1)
    leaf = logits.half().requires_grad_()
    value = criterion(leaf, target.half())
    value.backward()
    assert value.isfinite()
    assert (leaf.grad[missing] == 0).all()
    want = F.binary_cross_entropy_with_logits(logits.half().float(), target.clamp(min=0).float())
    assert value.item() != pytest.approx(want.item())


@pytest.mark.parametrize("method", [SL, sigua.sigua_bc(ROWS), sigua.sigua_ag()], ids=repr)
@pytest.mark.parametrize("wrong", [2.0, -1.0, float("nan")])
def test_labels_that_are_no_probabilities_are_refused(method, wrong):
    """Which nn.BCEWithLogitsLoss would take, and be paid for without end."""
    logits, target, _ = several_labels(0)
    target[1, 2] = wrong
    for criterion in (SIGUALoss(method, base=BCE), SIGUALoss(method, base=BCE).eval()):
        match = rf"^target: must lie in \[0, 1\] for a sigmoid, got {wrong:g} at \[1, 2\]; try .*-1"
        with pytest.raises(ValueError, match=match):
            criterion(logits.detach().requires_grad_(), target)
        assert criterion.split is None


@pytest.mark.parametrize("method", [SL, sigua.sigua_ag()], ids=repr)
def test_a_probability_may_be_rounded_above_1(method):
    """As that of mixed labels is; exactly 1 is nearly the same."""
    logits, target, _ = several_labels(0)
    target = target.clamp(0, 1)
    values = [
        SIGUALoss(method, base=BCE)(logits.detach().requires_grad_(), y).item()
        for y in (target, target * (1 + 1e-7))
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-6)
