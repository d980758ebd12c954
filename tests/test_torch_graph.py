"""The selection of a graph compiled for the CPU, and how many operators a step takes on a card."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import sigua
from sigua_torch import SIGUALoss, _graph
from sigua_torch._batch import DeviceBatch

INF, NAN = float("inf"), float("nan")
METHOD = sigua.sigua_sl(0.5, delta=0.25, gamma=0.5, warmup=0)
LOSSES = {
    "apart": [8, 1, 5, 2, 7, 3, 6, 4],
    "ties": [1, 2, 2, 2, 2, 3, 3, 4],
    "infinite": [INF, 1, INF, 2, INF, INF, INF, 3],
    "NaN": [1, NAN, 2, 3, NAN, NAN, 4, 5],
    "NaN and infinite": [NAN, INF, NAN, INF, NAN, INF, 1, NAN],
    "one": [3],
    "none": [],
}


@pytest.fixture
def graph():
    torch._dynamo.reset()
    return lambda f: torch.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)


@pytest.mark.parametrize("most", [0, 512], ids=["operator", "counted"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", ["all", "half"])
@pytest.mark.parametrize("losses", LOSSES.values(), ids=LOSSES)
def test_a_graph_selects_as_the_reference_does(losses, size, dtype, most, monkeypatch):
    """Counts of all, and counts of half that take part, where the others are +inf."""
    monkeypatch.setattr(_graph, "COUNTED", most)
    values = torch.tensor(losses, dtype=dtype)
    if size == "half":
        values[1::2] = INF
    n = torch.tensor(len(values[::2] if size == "half" else values))
    numbers = tuple(map(torch.tensor, METHOD.at(0)))
    split, signs = _graph.small_loss(METHOD.condition, values, n, numbers)
    taking_part = values[::2] if size == "half" else values
    want = sigua.reference.split(METHOD, taking_part.double().numpy(), epoch=0)
    found = [mask[::2] if size == "half" else mask for mask in split]
    np.testing.assert_array_equal(found[0], want.good)
    np.testing.assert_array_equal(found[1], want.bad)
    assert signs.dtype == dtype
    assert signs.tolist() == (split.good.double() - 0.5 * split.bad.double()).tolist()


@pytest.mark.parametrize("size", ["all", "half"])
@pytest.mark.parametrize("losses", list(LOSSES.values())[:-1], ids=list(LOSSES)[:-1])
@pytest.mark.parametrize("variant", ["paper", "official"])
def test_the_selection_on_a_device_is_that_of_the_reference(losses, size, variant):
    method = sigua.sigua_sl(0.5, delta=0.25, gamma=0.5, warmup=0, variant=variant)
    values = torch.tensor(losses, dtype=torch.float32)
    if size == "half":
        values[1::2] = INF
    taking_part = values[::2] if size == "half" else values
    n = torch.tensor(len(taking_part))
    rates = map(torch.tensor, method.condition.at(0))
    found = DeviceBatch(values, n, None, None).between(method.condition.counts(n, *rates))
    want = sigua.reference.split(method, taking_part.double().numpy(), epoch=0)
    for mask, right in zip(found, want, strict=True):
        np.testing.assert_array_equal(mask[::2] if size == "half" else mask, right)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("option", [{}, {"ignore_index": 0}, {"weight": torch.ones(3)}], ids=str)
def test_a_graph_equals_the_eager_step_with_infinite_losses_and_missing_labels(
    graph, option, reduction
):
    logits = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    logits[0, 1], labels = -INF, torch.tensor([1, 2, 0, 1] * 3)
    labels[3] = option.get("ignore_index", -100)
    criterion = SIGUALoss(METHOD, reduction=reduction, **option)
    for rows in (12, 7):
        results = []
        for each in (criterion, graph(criterion)):
            x = logits[:rows].clone().requires_grad_()
            value = each(x, labels[:rows])
            value.sum().backward()
            results.append((value.detach(), x.grad, *criterion.split))
        torch.testing.assert_close(*results)
        assert results[1][1].isfinite().all()


def test_a_graph_selects_alike_where_it_counts_and_where_it_sorts():
    """And two graphs are enough for all sizes."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(_graph.small_loss, backend=counter, fullgraph=True, dynamic=True)
    numbers = tuple(map(torch.tensor, METHOD.at(0)))
    rng = np.random.default_rng(0)
    for n in (_graph.COUNTED - 1, _graph.COUNTED, _graph.COUNTED + 1, 2 * _graph.COUNTED):
        losses = rng.integers(0, 99, n).astype(np.float32)
        split, _ = compiled(METHOD.condition, torch.tensor(losses), torch.tensor(n), numbers)
        for mask, right in zip(split, sigua.reference.split(METHOD, losses, epoch=0), strict=True):
            np.testing.assert_array_equal(mask, right)
    assert counter.frame_count == 2


class Count(TorchDispatchMode):
    """Counts operators that do something on the device, which views and empty memory do not."""

    NOTHING = ("empty", "empty_like", "new_empty", "detach", "_unsafe_view", "reshape")

    def __init__(self):
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        name = operator.overloadpacket.__name__
        self.number += not (operator.is_view or name in self.NOTHING)
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("method", "most"),
    [
        (METHOD, 36),
        (sigua.sigua_ag(), 57),
        (sigua.sigua_ag(by_class=False), 40),
        (sigua.standard(), 27),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_step_on_a_device_takes_few_operators(method, most):
    """Forward and backward on the meta device, which is where a card's path is taken."""
    criterion = SIGUALoss(method).to("meta")
    logits = torch.randn(32, 10, device="meta", requires_grad=True)
    labels = torch.zeros(32, dtype=torch.int64, device="meta")
    criterion(logits, labels).backward()  # the class confidence begins
    logits.grad = None
    with Count() as forward:
        loss = criterion(logits, labels)
    with Count() as backward:
        loss.backward()
    assert 0 < forward.number + backward.number <= most
