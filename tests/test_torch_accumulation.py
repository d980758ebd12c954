"""Gradient accumulation: the scale of one big batch, and its very gradient by two passes."""

import pytest
import torch

import sigua
from sigua_torch import SIGUALoss

METHOD = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0)
FLOOR = sigua.custom(sigua.NoiseFloor(2.45), gamma=0.5)  # of four micro-batches two are below
PAIR = sigua.TransitionMatrix.pair(0.45, 10)


def data(n=64):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(n, 7, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(0, 10, (n,), generator=generator)


def make_net():
    torch.manual_seed(1)
    return torch.nn.Linear(7, 10, dtype=torch.float64)


def gradient(net):
    return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(
    "method",
    [sigua.standard(), METHOD, sigua.sigua_bc(PAIR), FLOOR],
    ids=["standard", "sl", "bc", "floor"],
)
def test_num_items_in_batch_is_the_denominator(method, reduction):
    """Four micro-batches add up to what one criterion per micro-batch averages to."""
    inputs, labels = data()
    net, other = make_net(), make_net()
    criterion = SIGUALoss(method, reduction=reduction)
    for x, y in zip(inputs.chunk(4), labels.chunk(4), strict=True):
        criterion(net(x), y, num_items_in_batch=torch.tensor(64)).backward()
        scale = 1 if reduction == "sum" else 4
        (SIGUALoss(method, reduction=reduction)(other(x), y) / scale).backward()
    torch.testing.assert_close(gradient(net), gradient(other), rtol=1e-13, atol=1e-15)


def test_num_items_in_batch_scales_the_plain_loss_too():
    inputs, labels = data()
    logits = make_net()(inputs).detach()
    got = SIGUALoss(METHOD).eval()(logits, labels, num_items_in_batch=128)
    want = torch.nn.functional.cross_entropy(logits, labels) / 2
    torch.testing.assert_close(got, want, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("method", "correction"),
    [
        (METHOD, ("none", None)),
        (FLOOR, ("none", None)),
        (sigua.sigua_fc(PAIR, gamma=0.5, floor=9.0), ("forward", PAIR)),
    ],
    ids=["sl", "floor", "fc"],
)
def test_two_passes_give_the_gradient_of_the_whole_batch(method, correction):
    """First the losses of all micro-batches and one choice among them, then the gradients."""
    inputs, labels = data()
    whole, net = make_net(), make_net()
    SIGUALoss(method)(whole(inputs), labels).backward()

    chooser = SIGUALoss(method)
    with torch.no_grad():
        logits = torch.cat([net(x) for x in inputs.chunk(4)])
    chooser(logits.requires_grad_(), labels)
    criterion = SIGUALoss(sigua.custom(sigua.Known(), method.gamma, *correction))
    parts = zip(*(mask.chunk(4) for mask in chooser.split), strict=True)
    masks = [sigua.Split(*part) for part in parts]
    for x, y, split in zip(inputs.chunk(4), labels.chunk(4), masks, strict=True):
        criterion(net(x), y, split, num_items_in_batch=len(inputs)).backward()
    torch.testing.assert_close(gradient(net), gradient(whole), rtol=1e-12, atol=1e-12)


def test_two_passes_of_the_official_variant_divide_by_the_good_and_the_bad_of_the_whole_batch():
    """Its good and bad losses are averaged apart; a micro-batch's own numbers would not do."""
    method = sigua.sigua_sl(0.5, delta=0.4, gamma=0.3, warmup=0, variant="official")
    inputs, labels = data()
    whole, net, wrong = make_net(), make_net(), make_net()
    SIGUALoss(method)(whole(inputs), labels).backward()

    chooser = SIGUALoss(method)
    with torch.no_grad():
        logits = net(inputs)
    chooser(logits.requires_grad_(), labels)
    shares = sum(mask.double() / mask.sum() for mask in chooser.split)
    criterion = SIGUALoss(sigua.custom(sigua.Known(), method.gamma), reduction="none")
    separate = SIGUALoss(sigua.custom(sigua.Known(), method.gamma, separate=True))
    parts = (part.chunk(4) for part in (inputs, labels, shares, *chooser.split))
    for x, y, share, *masks in zip(*parts, strict=True):
        (criterion(net(x), y, sigua.Split(*masks)) * share).sum().backward()
        separate(wrong(x), y, sigua.Split(*masks), num_items_in_batch=len(inputs)).backward()
    torch.testing.assert_close(gradient(net), gradient(whole), rtol=1e-12, atol=1e-12)
    assert (gradient(wrong) - gradient(whole)).norm() > 0.05 * gradient(whole).norm()
