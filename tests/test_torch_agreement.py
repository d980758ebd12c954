"""Agreement in PyTorch: the spec's choice, each example alone, the confidence as a state."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import sigua
from sigua import reference
from sigua_torch import SIGUALoss
from sigua_torch._margins import Margins

METHOD = sigua.sigua_ag(warmup=4)
BCE = nn.BCEWithLogitsLoss(reduction="none")


def batch(n, generator, k=10):
    """Return logits that know some 40 % of the labels."""
    logits = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, k, (n,), generator=generator)
    logits[: n // 2] += 5 * nn.functional.one_hot(labels[: n // 2], k)
    return logits.requires_grad_(), labels


def trained(method=METHOD, epoch=3, **options):
    """Return a criterion that has seen five mini-batches, and the generator."""
    generator = torch.Generator().manual_seed(0)
    criterion = SIGUALoss(method, **options)
    for _ in range(5):
        criterion(*batch(64, generator))
    criterion.set_epoch(epoch)
    return criterion, generator


@pytest.mark.parametrize("by_class", [True, False])
@pytest.mark.parametrize("gamma", [0.0, 0.3])
def test_equals_the_spec_epoch_by_epoch(by_class, gamma):
    method = sigua.sigua_ag(4, gamma, by_class)
    criterion, state = SIGUALoss(method), np.zeros((2, 10))
    generator = torch.Generator().manual_seed(0)
    for epoch in range(7):
        criterion.set_epoch(epoch)
        for n in (64, 1, 37):
            logits, labels = batch(n, generator)
            loss = criterion(logits, labels)
            loss.backward()
            plain = logits.detach().numpy(), labels.numpy()
            want = reference.step(method, *plain, epoch, confidence=sigua.confidence.rates(state))
            np.testing.assert_array_equal(criterion.split.good, want.split.good)
            np.testing.assert_array_equal(criterion.split.bad, want.split.bad)
            np.testing.assert_allclose(loss.item(), want.objective, rtol=1e-13)
            np.testing.assert_allclose(logits.grad, want.gradient, rtol=1e-12, atol=1e-16)
            state = sigua.confidence.moved(state, reference.confidence_sums(*plain))
    assert 0.05 < want.split.good.mean() < 0.9
    if by_class:
        np.testing.assert_allclose(criterion.confidence.state, state, rtol=1e-12)


@pytest.mark.parametrize("epoch", [0, 2, 10])
@pytest.mark.parametrize("by_class", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_short_way_is_the_general_one(epoch, by_class, dtype):
    """`num_items_in_batch` takes the general one."""
    short, generator = trained(sigua.sigua_ag(4, 0.1, by_class), epoch)
    general = copy.deepcopy(short)
    for n in (64, 1, 33):
        logits, labels = batch(n, generator)
        with torch.no_grad():
            logits[0, (labels[0] + 1) % 10] = -float("inf")
        logits = logits.detach().to(dtype)
        got, want = logits.clone().requires_grad_(), logits.clone().requires_grad_()
        short(got, labels).backward()
        general(want, labels, num_items_in_batch=n).backward()
        assert torch.equal(short.split.good, general.split.good)
        assert torch.equal(short.split.bad, general.split.bad)
        torch.testing.assert_close(got.grad, want.grad)
    if by_class:
        states = (criterion.confidence.state.to(dtype) for criterion in (short, general))
        torch.testing.assert_close(*states)


def test_a_mini_batch_of_one_is_judged_as_in_a_large_one():
    criterion, generator = trained()
    logits, labels = batch(40, generator)
    alone = copy.deepcopy(criterion)
    criterion(logits, labels)
    frozen = alone.confidence.state.clone()
    for i in range(40):
        alone.confidence.state.copy_(frozen)
        alone(logits[i : i + 1], labels[i : i + 1])
        assert alone.split.good.item() == criterion.split.good[i].item()


@pytest.mark.parametrize("size", [1, 7, 16])
def test_micro_batches_with_the_denominator_are_the_big_batch(size):
    """Gradient, choice and confidence; the micro-batches of the next one are judged by the new."""
    whole, generator = trained()
    parts = copy.deepcopy(whole)
    for _ in range(3):
        logits, labels = batch(48, generator)
        whole(logits, labels).backward()
        want, logits.grad = logits.grad, None
        good = []
        for x, y in zip(logits.split(size), labels.split(size), strict=True):
            parts(x, y, num_items_in_batch=48).backward()
            good.append(parts.split.good)
        assert torch.equal(torch.cat(good), whole.split.good)
        torch.testing.assert_close(logits.grad, want, rtol=1e-13, atol=1e-17)
        torch.testing.assert_close(parts.confidence.state, whole.confidence.state)


@pytest.mark.parametrize("shape", [(4, 10, 6), (2, 10, 3, 5)], ids=["tokens", "pixels"])
def test_tokens_and_pixels_are_examples(shape):
    """As the same examples in a row, ignored ones left out of the confidence, too."""
    criterion, generator = trained()
    row = copy.deepcopy(criterion)
    logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 10, (shape[0], *shape[2:]), generator=generator)
    labels[0, 0] = -100
    criterion(logits.requires_grad_(), labels)
    kept = labels.reshape(-1) != -100
    flat = logits.detach().movedim(1, -1).reshape(-1, 10)[kept].requires_grad_()
    row(flat, labels.reshape(-1)[kept])
    assert torch.equal(criterion.split.good.reshape(-1)[kept], row.split.good)
    assert not criterion.split.good.reshape(-1)[~kept].any()
    assert not criterion.split.bad.reshape(-1)[~kept].any()
    torch.testing.assert_close(criterion.confidence.state, row.confidence.state)


class OnCard(torch.Tensor):
    """Says that it is not on the CPU, as a card's tensors do."""

    is_cpu = False


@pytest.mark.parametrize("shape", [(5,), (12, 5), (4, 5, 3)])
def test_a_card_counts_by_masks_what_a_cpu_adds(shape):
    """By hand: p at each label that counts, added up by class, and how many there are."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator).double()
    labels = torch.randint(0, 5, (*shape[:1], *shape[2:])[len(shape) == 1 :], generator=generator)
    valid = labels != 3
    p = logits.softmax(0 if logits.ndim == 1 else 1).movedim(0 if logits.ndim == 1 else 1, -1)
    expected = np.zeros((2, 5))
    for each, label in zip(p.reshape(-1, 5).tolist(), labels.flatten().tolist(), strict=True):
        expected[:, label] += (label != 3) * np.array([each[label], 1])
    for place in (torch.Tensor, OnCard):
        sums = Margins(logits.as_subclass(place), labels, valid).sums()
        np.testing.assert_allclose(sums.as_subclass(torch.Tensor).numpy(), expected, rtol=1e-12)


def test_of_class_probabilities_the_largest_is_the_label():
    criterion, generator = trained()
    soft = copy.deepcopy(criterion)
    logits, labels = batch(64, generator)
    criterion(logits, labels)
    target = 0.8 * nn.functional.one_hot(labels, 10).double() + 0.02
    soft(logits, target)
    assert torch.equal(soft.split.good, criterion.split.good)
    torch.testing.assert_close(soft.confidence.state, criterion.confidence.state)


def test_a_sigmoid_is_two_classes():
    """One logit per label, as the softmax of (0, z); the loss is BCE's."""
    generator = torch.Generator().manual_seed(0)
    sigmoid, softmax = SIGUALoss(METHOD, base=BCE), SIGUALoss(METHOD)
    for epoch in range(6):
        logits = 2 * torch.randn(30, 3, generator=generator, dtype=torch.float64)
        labels = torch.randint(0, 2, (30, 3), generator=generator)
        for criterion in (sigmoid, softmax):
            criterion.set_epoch(epoch)
        got = sigmoid(logits.requires_grad_(), labels.double())
        pair = torch.stack([torch.zeros_like(logits), logits], 1)
        torch.testing.assert_close(got, softmax(pair, labels))
        assert torch.equal(sigmoid.split.good, softmax.split.good)
        mean = (BCE(logits, labels.double()) * sigmoid.split.good).sum() / 90
        torch.testing.assert_close(got, mean)


def test_another_base_loss_is_judged_by_its_logits():
    criterion, generator = trained()
    other, _ = trained(base=nn.MultiMarginLoss(reduction="none"))
    logits, labels = batch(64, generator)
    criterion(logits, labels)
    value = other(logits, labels)
    assert torch.equal(other.split.good, criterion.split.good)
    losses = nn.MultiMarginLoss(reduction="none")(logits, labels)
    torch.testing.assert_close(value, (losses * criterion.split.good).mean())


def test_forward_correction_is_judged_by_what_the_model_says_of_the_true_class():
    criterion, generator = trained()
    T = sigua.TransitionMatrix.pair(0.3, 10)
    other, _ = trained(sigua.custom(sigua.Agreement(4), correction="forward", T=T))
    logits, labels = batch(64, generator)
    criterion(logits, labels)
    other(logits, labels)
    assert torch.equal(other.split.good, criterion.split.good)


def test_nan_is_neither_and_reaches_the_user_but_not_the_confidence():
    criterion, generator = trained()
    logits, labels = batch(8, generator)
    with torch.no_grad():
        logits[3] = float("nan")
    assert criterion(logits, labels).isnan()
    assert not criterion.split.good[3]
    assert not criterion.split.bad[3]
    assert criterion.confidence.state.isfinite().all()


def test_the_state_is_saved_and_resumed():
    criterion, generator = trained()
    again = SIGUALoss(METHOD)
    again.load_state_dict(criterion.state_dict())
    assert again.epoch == 3
    for _ in range(2):
        given = batch(64, generator)
        torch.testing.assert_close(again(*given), criterion(*given), rtol=0, atol=0)
    fresh = SIGUALoss(METHOD)
    fresh.load_state_dict(SIGUALoss(METHOD).state_dict())
    assert fresh.confidence.state is None


def test_half_precision_keeps_the_confidence_exact():
    criterion, generator = trained()
    exact = criterion.confidence.state.clone()
    assert torch.equal(criterion.half().confidence.state, exact)
    logits, labels = batch(64, generator)
    loss = criterion(logits.detach().half().requires_grad_(), labels)
    assert loss.dtype == torch.float32


def test_evaluation_leaves_the_confidence_alone():
    criterion, generator = trained()
    before = criterion.confidence.state.clone()
    logits, labels = batch(64, generator)
    with torch.no_grad():
        torch.testing.assert_close(
            criterion(logits, labels), nn.functional.cross_entropy(logits, labels)
        )
    assert torch.equal(criterion.confidence.state, before)


def test_under_vmap_each_example_is_judged_as_in_a_batch():
    """Per-example gradients; a transform reads the confidence and does not move it."""
    criterion, generator = trained()
    logits, labels = batch(16, generator)
    before = criterion.confidence.state.clone()
    one = torch.func.grad(lambda x, y: criterion(x[None], y[None]))
    got = torch.func.vmap(one)(logits.detach(), labels)
    assert torch.equal(criterion.confidence.state, before)
    (16 * criterion(logits, labels)).backward()
    torch.testing.assert_close(got, logits.grad)


@pytest.mark.parametrize("option", ["per_class", "per_image"])
def test_scopes_are_refused_for_each_example_is_judged_alone(option):
    with pytest.raises(ValueError, match=f"{option}: must be left out"):
        SIGUALoss(METHOD, **{option: True})


def test_a_ranking_loss_is_refused_for_margins_are_judged():
    with pytest.raises(ValueError, match="rank_by: must be left out"):
        SIGUALoss(METHOD, rank_by=nn.CrossEntropyLoss(reduction="none"))


@pytest.mark.parametrize("shape", [(8, 1), (8, 3)])
def test_regression_is_refused_for_it_predicts_no_class(shape):
    criterion = SIGUALoss(METHOD, base=nn.MSELoss(reduction="none"))
    with pytest.raises(ValueError, match="class"):
        criterion(torch.randn(shape, requires_grad=True), torch.randn(shape))
    assert criterion.confidence.state is None


def test_another_number_of_classes_is_refused_before_anything_changes():
    criterion, generator = trained()
    before = criterion.confidence.state.clone()
    with pytest.raises(ValueError, match="input: must have 10 classes"):
        criterion(*batch(8, generator, k=7))
    assert torch.equal(criterion.confidence.state, before)
