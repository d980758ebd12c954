"""One criterion called again, or at once: checkpoints, closures and threads."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import sigua
from sigua_torch import SIGUALoss

METHOD = sigua.sigua_sl(0.5, delta=0.2, gamma=0.1, warmup=1)


def mini_batches(steps, n=60):
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        inputs = torch.randn(n, 7, generator=generator, dtype=torch.float64)
        yield inputs.requires_grad_(), torch.randint(0, 5, (n,), generator=generator)


def make_net():
    torch.manual_seed(1)
    return torch.nn.Linear(7, 5, dtype=torch.float64)


@pytest.fixture(params=["short", "general", "device"])
def way(request, monkeypatch):
    """Each way through the criterion, by options for its calls."""
    if request.param == "device":  # where the criterion is asked, and not the checkpoint
        monkeypatch.setattr("sigua_torch._examples.is_visible", lambda tensor: False)
        monkeypatch.setattr("sigua_torch.loss.is_transformed", lambda: True)
    return {} if request.param == "short" else {"num_items_in_batch": torch.tensor(60)}


@pytest.mark.parametrize(("reentrant", "parts"), [(False, 1), (False, 3), (True, 1)])
def test_a_step_that_a_checkpoint_repeats_counts_once_and_chooses_as_before(reentrant, parts, way):
    """The gradients and the epoch are those without it, also of several parts in a backward."""
    nets, criteria = (make_net(), make_net()), [SIGUALoss(METHOD, steps_per_epoch=20)]
    criteria.append(SIGUALoss(METHOD, steps_per_epoch=20))
    for inputs, labels in mini_batches(8):
        total = [0.0, 0.0]
        for x, y in zip(inputs.chunk(parts), labels.chunk(parts), strict=True):

            def step(x, i, y=y):
                return criteria[i](nets[i](x), y, **way)

            total[0] += checkpoint(step, x, 0, use_reentrant=reentrant)
            total[1] += step(x, 1)
        for net, loss in zip(nets, total, strict=True):
            net.zero_grad()
            loss.backward()
        assert torch.equal(nets[0].weight.grad, nets[1].weight.grad)
        assert criteria[0].epoch == criteria[1].epoch
        with torch.no_grad():
            for net in nets:
                net.weight -= 0.1 * net.weight.grad
    assert criteria[0].epoch == 8 * parts / 20


def test_a_class_confidence_that_a_checkpoint_would_move_twice_is_refused():
    net, criterion = make_net(), SIGUALoss(sigua.sigua_ag())
    ((inputs, labels),) = mini_batches(1)
    loss = checkpoint(lambda x: criterion(net(x), labels), inputs, use_reentrant=False)
    state = criterion.confidence.state.clone()
    with pytest.raises(ValueError, match=r"^torch.utils.checkpoint: must not repeat"):
        loss.backward()
    assert torch.equal(criterion.confidence.state, state)


def test_lbfgs_is_refused_where_steps_are_counted():
    """It calls its closure up to 25 times a step; an optimiser that calls it once is counted."""
    net, criterion = make_net(), SIGUALoss(METHOD, steps_per_epoch=20)
    ((inputs, labels),) = mini_batches(1)

    def closure():
        net.zero_grad()
        loss = criterion(net(inputs), labels)
        loss.backward()
        return loss

    with pytest.raises(ValueError, match=r"^steps_per_epoch: must be left out under .*LBFGS"):
        torch.optim.LBFGS(net.parameters()).step(closure)
    assert criterion.epoch == 0
    torch.optim.SGD(net.parameters(), lr=0.1).step(closure)
    assert criterion.epoch == 1 / 20


def test_under_lbfgs_the_epoch_that_is_set_stays():
    net, criterion = make_net(), SIGUALoss(METHOD)
    ((inputs, labels),) = mini_batches(1)

    def closure():
        net.zero_grad()
        loss = criterion(net(inputs), labels)
        loss.backward()
        return loss

    criterion.set_epoch(2)
    torch.optim.LBFGS(net.parameters()).step(closure)
    assert criterion.epoch == 2


@pytest.mark.parametrize(
    "method", [METHOD, sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.4, 5))], ids=repr
)
def test_threads_share_a_criterion(method):
    """Of mini-batches with their own sizes and precisions each loss is the one of a loop."""
    criterion = SIGUALoss(method, reduction="none")
    criterion.set_epoch(3)
    generator = torch.Generator().manual_seed(0)
    data = []
    for i in range(40):
        n, dtype = (40, 300, 900)[i % 3], (torch.float64, torch.float32)[i % 2]
        logits = torch.randn(n, 5, generator=generator, dtype=dtype).requires_grad_()
        data.append((logits, torch.randint(0, 5, (n,), generator=generator)))
    expected = [criterion(*each).detach() for each in data]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in range(20):
                for got, want in zip(
                    threads.map(lambda a: criterion(*a), data), expected, strict=True
                ):
                    assert torch.equal(got, want)
    finally:
        sys.setswitchinterval(before)
