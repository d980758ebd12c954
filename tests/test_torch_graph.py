"""In a compiled graph and on an accelerator: one graph for all epochs, no synchronisation."""

import pytest
import torch
from contract import PAIR, SPARSE_T, SYMMETRIC, assert_same
from test_conditions import Rule
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import sigua
from sigua_torch import SIGUALoss, losses

RAMP = sigua.Knots([(0, 0.0), (8, 0.2)])
METHODS = {
    "sl": sigua.sigua_sl(0.5, delta=0.15),
    "official": sigua.sigua_sl(0.5, delta=RAMP, gamma=RAMP, variant="official"),
    "bc": sigua.sigua_bc(PAIR),
    "batch": sigua.sigua_bc(SYMMETRIC, over="batch"),
    "forward": sigua.forward_correction(PAIR),
    "floor": sigua.custom(sigua.NoiseFloor(3.0), 1.0, "forward", PAIR),
    "known": sigua.custom(sigua.Known(), gamma=0.001),
    "ag": sigua.sigua_ag(),
    "counted": sigua.sigua_ag(power=1),
    "margins": sigua.sigua_ag(by_class=False, gamma=0.1),
    "sparse": sigua.sigua_bc(SPARSE_T, gamma=0.5),
    "sparse forward": sigua.forward_correction(SPARSE_T),
}
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
SIZES = (128, 100, 64, 128, 32, 77, 600)


def batch(n, generator, device="cpu", soft=False):
    logits = 3 * torch.randn(n, 10, generator=generator)
    labels = torch.randint(0, 10, (n,), generator=generator)
    if soft:
        return logits, (0.8 * nn.functional.one_hot(labels, 10) + 0.02).to(device), None
    labels[: n // 10] = -100
    return logits.to(device), labels.to(device), (labels % 2 == 0).to(device)


def call(criterion, method, logits, labels, trusted, **options):
    if isinstance(method.condition, sigua.Known):
        options["trusted"] = trusted
    return criterion(logits, labels, **options)


def train(method, epochs, soft=False, **options):
    """Compare a compiled criterion with an eager one, and return how many graphs there were."""
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled, eager = (SIGUALoss(method, **options) for _ in range(2))
    step = torch.compile(compiled, backend=counter, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for epoch in range(epochs):
        if "steps_per_epoch" not in options:
            compiled.set_epoch(epoch), eager.set_epoch(epoch)
        for n in SIZES:
            logits, *rest = batch(n, generator, soft=soft)
            got, want = logits.clone().requires_grad_(), logits.clone().requires_grad_()
            call(step, method, got, *rest).backward()
            call(eager, method, want, *rest).backward()
            assert_same(compiled.split, eager.split)
            torch.testing.assert_close(got.grad, want.grad, rtol=1e-5, atol=1e-6 / n)
    assert compiled.epoch == eager.epoch
    # Once more where the first call finds out how many classes the confidence is for.
    return counter.frame_count - 1 - sigua.conditions.reads(method.condition, "confidence")


@each_method
def test_one_graph_serves_all_epochs_and_another_all_sizes(method):
    """Over 14 epochs and 6 batch sizes: masks equal an eager run's, gradients to rounding.

    More than 512 losses are sorted, by a graph of their own.
    """
    sorts = isinstance(method.condition, sigua.SmallLoss)
    assert train(method, 14) <= 1 + sorts


@pytest.mark.parametrize("kind", ["sl", "official", "floor", "ag"])
def test_so_it_does_where_steps_tell_the_epoch(kind):
    assert train(METHODS[kind], 14, steps_per_epoch=len(SIZES)) <= 2


OPTIONS = {
    "plain": {},
    "weight": {"loss": nn.CrossEntropyLoss(torch.linspace(1, 2, 10), label_smoothing=0.1)},
    "groups": {"groups": "class"},
    "loss": {"loss": losses.generalized_cross_entropy},
}


@pytest.mark.parametrize("kind", ["sl", "bc", "ag"])
@pytest.mark.parametrize("options", ["soft", "weight", "groups", "loss"])
def test_so_it_does_with_options(kind, options):
    """Class probabilities of several sizes, as mixup makes them, among them."""
    if kind == "ag" and options == "groups":
        return  # which judges each example alone
    given = {"soft": True} if options == "soft" else OPTIONS[options]
    assert train(METHODS[kind], 2, **given) <= 2


def test_a_module_with_another_loss_compiles_and_obeys_a_changed_reduction():
    torch._dynamo.reset()
    logits, target = torch.randn(40, 3), torch.rand(40, 3)
    criterion = SIGUALoss(METHODS["sl"], nn.BCEWithLogitsLoss())
    step = torch.compile(criterion, backend="eager", fullgraph=True)
    where = torch.rand(40, 3) < 0.7
    mean = step(logits.requires_grad_(), target, where=where)
    torch.testing.assert_close(mean, criterion(logits, target, where=where))
    criterion.loss.reduction = "sum"
    torch.testing.assert_close(step(logits, target, where=where), mean * where.sum())


def test_a_graph_takes_a_rule_of_ones_own_whole():
    torch._dynamo.reset()
    rule = Rule(lambda batch: sigua.Split(batch.losses >= 0, batch.mean() < 0))
    criterion = SIGUALoss(sigua.custom(rule))
    compiled = torch.compile(criterion, backend="eager", fullgraph=True)
    logits, labels, _ = batch(40, torch.Generator())
    want = nn.functional.cross_entropy(logits, labels)
    torch.testing.assert_close(compiled(logits.requires_grad_(), labels), want)


# On a device.


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("steps_per_epoch", [None, 5])
@each_method
def test_never_waits_for_the_device(method, steps_per_epoch, options):
    """On the meta device, which has no values, any read of one raises."""
    if "groups" in options and isinstance(method.condition, sigua.Agreement):
        return
    criterion = SIGUALoss(method, steps_per_epoch=steps_per_epoch, **options).to("meta")
    logits, labels, mask = batch(32, torch.Generator().manual_seed(0), "meta")
    asked = {"where": mask, "num_items_in_batch": torch.zeros((), device="meta")}
    for of_the_call in ({}, {}, asked, asked):
        loss = call(criterion, method, logits.requires_grad_(), labels, mask, **of_the_call)
        loss.backward()
    criterion.end_step()
    assert loss.shape == ()
    assert criterion.split.good.shape == (32,)
    with torch.no_grad():
        assert criterion(logits, labels).is_meta
    assert criterion.eval()(logits, labels, **asked).is_meta


class NothingFromTheHost(TorchDispatchMode):
    """Raises where an operator takes a tensor of the host's, as a copy to the device does."""

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        given = tree_leaves((args, kwargs))
        assert all(each.is_meta for each in given if isinstance(each, torch.Tensor)), operator
        return operator(*args, **(kwargs or {}))


@each_method
def test_never_copies_to_the_device(method):
    """A copy waits, too; in the first step, where the class confidence begins, as in the others."""
    criterion = SIGUALoss(method).to("meta")
    logits, labels, mask = batch(32, torch.Generator().manual_seed(0), "meta")
    with NothingFromTheHost():
        for _ in range(2):
            call(criterion, method, logits.requires_grad_(), labels, mask).backward()


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
    ("kind", "most"), [("sl", 44), ("ag", 65), ("margins", 46), ("standard", 32)]
)
def test_a_step_on_a_device_takes_few_operators(kind, most):
    """Forward and backward on the meta device, which is where a card's path is taken."""
    criterion = SIGUALoss((METHODS | {"standard": sigua.standard()})[kind]).to("meta")
    logits = torch.randn(32, 10, device="meta", requires_grad=True)
    labels = torch.zeros(32, dtype=torch.int64, device="meta")
    criterion(logits, labels).backward()  # the class confidence begins
    logits.grad = None
    with Count() as forward:
        loss = criterion(logits, labels)
    with Count() as backward:
        loss.backward()
    assert 0 < forward.number + backward.number <= most


def test_compile_in_place_keeps_the_state_dict_keys():
    criterion = SIGUALoss(METHODS["sl"], nn.CrossEntropyLoss(torch.ones(10)))
    keys = list(criterion.state_dict())
    criterion.compile(backend="eager", fullgraph=True)
    logits, labels, _ = batch(32, torch.Generator().manual_seed(0))
    criterion(logits.requires_grad_(), labels).backward()
    assert list(criterion.state_dict()) == keys


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_grad_scaler_take_negative_losses(dtype):
    """A corrected loss goes below zero; scaled steps equal unscaled ones and stay finite."""
    torch.manual_seed(0)
    net, criterion = nn.Linear(20, 10), SIGUALoss(sigua.backward_correction(PAIR))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    inputs, labels = torch.randn(64, 20), torch.randint(0, 10, (64,))
    values = []
    for _ in range(200):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = criterion(net(inputs), labels)
        assert loss.dtype == torch.float32
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        values.append(loss.item())
    assert min(values) < 0
    assert all(parameter.isfinite().all() for parameter in net.parameters())
    assert scaler.get_scale() >= 2.0**10  # no step was skipped
