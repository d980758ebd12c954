"""The class confidence moves once a step of the optimizer; each example is judged alone."""

import copy

import numpy as np
import pytest
import torch
from contract import Memory
from torch import nn

import sigua
from sigua import reference
from sigua_torch import SIGUALoss

METHOD = sigua.sigua_ag(warmup=4)


def batch(n, generator, k=10):
    """Return logits that know some 40 % of the labels."""
    logits = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, k, (n,), generator=generator)
    logits[: n // 2] += 5 * nn.functional.one_hot(labels[: n // 2], k)
    return logits.requires_grad_(), labels


def trained(method=METHOD, epoch=3, loss=None):
    """Return a criterion that has seen five mini-batches, and the generator."""
    generator = torch.Generator().manual_seed(0)
    criterion = SIGUALoss(method, loss)
    for _ in range(5):
        criterion(*batch(64, generator))
    criterion.set_epoch(epoch)
    return criterion, generator


def seen(criterion):
    """Return the sums and numbers of ten classes, as they are saved."""
    return criterion.get_extra_state()[:, 1:11]


@pytest.mark.parametrize("how", [{}, {"by_class": False}, {"power": 0.5}], ids=str)
@pytest.mark.parametrize("gamma", [0.0, 0.3])
@pytest.mark.parametrize("shape", [(), (3,)], ids=["examples", "pixels"])
def test_equals_the_spec_epoch_by_epoch(how, gamma, shape, names):
    method = sigua.sigua_ag(4, gamma, **how)
    criterion, memory = SIGUALoss(method).double(), Memory(10)
    generator = torch.Generator().manual_seed(0)
    for epoch in range(7):
        criterion.set_epoch(epoch)
        for n in (63, 3, 36):
            flat, labels = batch(n, generator)
            logits = flat.detach().reshape(-1, *shape, 10).movedim(-1, 1).requires_grad_()
            loss = criterion(logits, labels.reshape(-1, *shape))
            loss.backward()
            plain = flat.detach().numpy(), labels.numpy()
            want = reference.step(method, *plain, epoch, **memory.given())
            np.testing.assert_array_equal(criterion.split.good.reshape(-1), want.split.good)
            np.testing.assert_array_equal(criterion.split.bad.reshape(-1), want.split.bad)
            np.testing.assert_allclose(loss.item(), want.objective, rtol=1e-13, atol=1e-15)
            gradient = logits.grad.movedim(1, -1).reshape(-1, 10)
            np.testing.assert_allclose(gradient, want.gradient, rtol=1e-12, atol=1e-16)
            memory.add(*plain)
    assert 0.05 < want.split.good.mean() < 0.9
    if method.condition.by_class:
        want = memory.state(method)
        saved = criterion.get_extra_state()[: len(want), 1:11]
        np.testing.assert_allclose(saved, want, rtol=1e-12)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(label_smoothing=0.2),
        nn.CrossEntropyLoss(torch.linspace(1, 2, 10)),
        nn.MultiMarginLoss(),
    ],
    ids=repr,
)
def test_another_loss_is_judged_by_its_logits(loss):
    """The choice and the confidence are those of plain cross-entropy; so with a matrix T."""
    T = sigua.TransitionMatrix.pair(0.3, 10)
    corrected = sigua.custom(sigua.Agreement(4), correction="forward", T=T)
    (criterion, generator), (other, _) = trained(), trained(loss=loss)
    third, _ = trained(corrected)
    given = batch(64, generator)
    for each in (criterion, other, third):
        each(*given)
    for each in (other, third):
        assert torch.equal(each.split.good, criterion.split.good)
        torch.testing.assert_close(seen(each), seen(criterion))


def test_what_says_nothing_does_not_move_it(names):
    """Who takes no part, NaN, which reaches the user, evaluation, and another precision."""
    criterion, generator = trained()
    alone = copy.deepcopy(criterion)
    logits, labels = batch(40, generator)
    with torch.no_grad():
        logits[2] = float("nan")
    where = torch.arange(40) % 3 > 0
    labels[1] = -100
    assert criterion(logits, labels, where=where).isnan()
    assert not (criterion.split.good | criterion.split.bad)[2]
    where[1] = where[2] = False
    alone(logits[where], labels[where])
    torch.testing.assert_close(seen(criterion), seen(alone))
    before = seen(criterion)
    with torch.no_grad():
        criterion(logits, labels)
    criterion.eval()(logits, labels)
    assert torch.equal(seen(criterion.half()), before)


def test_another_number_of_classes_is_refused_before_anything_changes():
    """Also among the micro-batches of the first step."""
    (criterion, generator), fresh = trained(), SIGUALoss(METHOD)
    before = seen(criterion)
    fresh(*batch(8, generator), num_items_in_batch=16)
    for each in (criterion, fresh):
        with pytest.raises(ValueError, match=r"^input: must have the 10 classes or more"):
            each(*batch(8, generator, k=7), num_items_in_batch=16)
    assert torch.equal(seen(criterion), before)


# Gradient accumulation.


@pytest.mark.parametrize("size", [1, 7, 16])
@pytest.mark.parametrize(
    "count", ["examples", "twice as many", "with ignored ones", "on a device", "weights"]
)
def test_micro_batches_are_the_big_batch_whatever_the_number_counts(size, count):
    """Gradient, choice and confidence: it moves once a step, when the step has ended.

    With class weights of one half the total of 36 labels is 18.
    """
    halves = nn.CrossEntropyLoss(weight=torch.full((10,), 0.5))
    whole, generator = trained(loss=halves if count == "weights" else None)
    parts = copy.deepcopy(whole)
    items = {"examples": 36, "twice as many": 72, "weights": 18.0}.get(count, 48)
    items = torch.tensor(items) if count == "on a device" else items
    for _ in range(3):
        logits, labels = batch(48, generator)
        labels[::4] = -100
        whole(logits, labels, num_items_in_batch=items).backward()
        before = seen(parts)
        whole.end_step()
        want, logits.grad = logits.grad, None
        good = []
        for x, y in zip(logits.split(size), labels.split(size), strict=True):
            parts(x, y, num_items_in_batch=items).backward()
            good.append(parts.split.good)
            assert torch.equal(seen(parts), before)
        parts.end_step()
        assert torch.equal(torch.cat(good), whole.split.good)
        torch.testing.assert_close(logits.grad, want, rtol=1e-13, atol=1e-17)
        torch.testing.assert_close(seen(parts), seen(whole))


def test_a_new_epoch_ends_the_step_a_fraction_of_one_does_not_and_a_whole_mini_batch_does():
    whole, generator = trained()
    x, y = batch(32, generator)
    by_epoch, by_batch = copy.deepcopy(whole), copy.deepcopy(whole)
    whole(x, y)
    for each, items in ((by_epoch, 32), (by_batch, None)):
        before = seen(each)
        each(x[:16], y[:16], num_items_in_batch=32)
        each.set_epoch(3.5)
        assert torch.equal(seen(each), before)
        each(x[16:], y[16:], num_items_in_batch=items)
    by_epoch.set_epoch(4)
    by_batch.end_step()  # nothing is pending
    for each in (by_epoch, by_batch):
        torch.testing.assert_close(seen(each), seen(whole))
    SIGUALoss(sigua.standard()).end_step()


@pytest.mark.parametrize(
    ("items", "later", "weight"),
    [
        ((32, 32, 32), 2, 1.0),
        ((16.0, 16.0, 16.0), 2, 0.5),
        ((torch.tensor(32),) * 3, 2, 1.0),
        ((64, 60), 1, 1.0),
        ((20, 32), 1, 1.0),
    ],
    ids=["more than all", "by weight", "of a tensor", "another number", "a larger number"],
)
def test_a_forgotten_end_of_a_step_is_said_as_soon_as_it_is_certain(items, later, weight):
    """More take part than the step has, or it has another number; nothing is changed then."""
    criterion, generator = trained(loss=nn.CrossEntropyLoss(torch.full((10,), weight)))
    before = seen(criterion)
    for i, number in enumerate(items):
        logits, labels = batch(16, generator)
        if i < later:
            criterion(logits, labels, num_items_in_batch=number)
        else:
            with pytest.raises(ValueError, match=r"^num_items_in_batch: .*try criterion\.end_step"):
                criterion(logits, labels, num_items_in_batch=number)
    assert torch.equal(seen(criterion), before)


def test_on_a_device_which_is_not_read_it_is_said_after_a_thousand_calls(monkeypatch):
    monkeypatch.setattr("sigua_torch._state.MOST_PARTS", 3)
    criterion = SIGUALoss(METHOD).to("meta")
    given = [part.to("meta") for part in batch(16, torch.Generator())]
    for _ in range(3):
        criterion(*given, num_items_in_batch=torch.tensor(16, device="meta"))
    with pytest.raises(ValueError, match=r"end_step"):
        criterion(*given, num_items_in_batch=torch.tensor(16, device="meta"))


@pytest.mark.parametrize("transform", [torch.func.grad, torch.vmap])
def test_inside_a_transform_it_is_refused_for_it_cannot_move(transform):
    """From the second step on the gradient would be another; without it nothing has to move."""
    generator = torch.Generator().manual_seed(0)
    logits, labels = batch(60, generator)
    logits, labels = logits.detach().reshape(3, 20, 10), labels.reshape(3, 20)
    given = (logits, labels) if transform is torch.vmap else (logits[0], labels[0])
    with pytest.raises(ValueError, match=r"^method: must have no class conf.*by_class=False"):
        transform(SIGUALoss(METHOD))(*given)
    transform(SIGUALoss(sigua.sigua_ag(by_class=False)))(*given)
    counting = SIGUALoss(sigua.self_teaching(0.5), steps_per_epoch=5)
    with pytest.raises(ValueError, match=r"^steps_per_epoch: must be None inside a transform"):
        transform(counting)(*given)
