"""On a CUDA card: nothing waits for the device, and a step can be captured in a graph."""

from dataclasses import dataclass

import pytest
import torch
from test_torch_graph import METHODS

import sigua
from sigua_torch import SIGUALoss

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card"),
    # PyTorch says so of what the tests below make it raise.
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning"),
]


@dataclass(frozen=True)
class TenSmallest:
    """A rule of one's own, whose count is a Python number."""

    def at(self, epoch):
        return ()

    def split(self, batch):
        good = batch.losses <= batch.smallest(10)
        return sigua.Split(good, ~good)


METHODS = {name: METHODS[name] for name in ("sl", "official", "bc", "batch", "forward", "floor")}
METHODS["fixed count"] = sigua.custom(TenSmallest(), gamma=0.01)
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def batch(seed, n=128):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, 20, generator=generator)
    labels = torch.randint(0, 10, (n,), generator=generator)
    labels[:7] = -100
    return inputs.cuda(), labels.cuda()


def make_net():
    torch.manual_seed(0)
    return torch.nn.Linear(20, 10).cuda()


def gradient(net):
    return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])


@pytest.fixture
def no_synchronisation():
    """Return a function that makes PyTorch raise on any; what was set comes back."""
    before = torch.cuda.get_sync_debug_mode()
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode(before)


def test_the_debug_mode_does_raise_on_a_read(no_synchronisation):
    """Without this the test below could pass for the wrong reason."""
    value = torch.ones((), device="cuda")
    no_synchronisation()
    with pytest.raises(RuntimeError, match=r"synchronizing"):
        value.item()


@pytest.mark.parametrize("weight", [None, torch.ones(10)], ids=["plain", "weighted"])
@pytest.mark.parametrize("n", [128, 8192])  # a sort in one block, and in several passes
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("steps_per_epoch", [None, 2])
@pytest.mark.parametrize("method", [*METHODS.values(), sigua.sigua_ag()], ids=[*METHODS, "ag"])
def test_training_never_waits_for_the_device(
    method, steps_per_epoch, dtype, n, weight, no_synchronisation
):
    net, (inputs, labels) = make_net(), batch(0, n)
    loss = torch.nn.CrossEntropyLoss(weight)
    criterion = SIGUALoss(method, loss, steps_per_epoch=steps_per_epoch).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    no_synchronisation()
    for epoch in range(3):
        if steps_per_epoch is None:
            criterion.set_epoch(epoch)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            loss = criterion(net(inputs), labels)
        loss.backward()
        optimizer.step()


@each_method
def test_a_captured_step_follows_new_data_and_new_epochs(method):
    """Captured once at epoch 0, replayed at others: the gradients are an eager step's."""
    net, (inputs, labels) = make_net(), batch(0)
    criterion = SIGUALoss(method).cuda()

    def step():
        net.zero_grad(set_to_none=False)
        criterion(net(inputs), labels).backward()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    for epoch in (0, 3, 10):
        for static, new in zip((inputs, labels), batch(1 + epoch), strict=True):
            static.copy_(new)
        criterion.set_epoch(epoch)
        graph.replay()
        eager, other = SIGUALoss(method).cuda(), make_net()
        eager.set_epoch(epoch)
        eager(other(inputs), labels).backward()
        torch.testing.assert_close(gradient(net), gradient(other), rtol=1e-5, atol=1e-7)
        assert torch.equal(criterion.split.good, eager.split.good)
        assert torch.equal(criterion.split.bad, eager.split.bad)
