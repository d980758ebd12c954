"""In a compiled graph and on an accelerator: no break, no recompilation, no synchronisation."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import sigua
from sigua_torch import SIGUALoss, losses

PAIR = sigua.TransitionMatrix.pair(0.45, 10)
SYMMETRIC = sigua.TransitionMatrix.symmetric(0.5, 10)
RAMP = sigua.Knots([(0, 0.0), (8, 0.2)])
METHODS = [
    sigua.sigua_sl(0.5, delta=0.15),
    sigua.sigua_sl(0.5, delta=RAMP, gamma=RAMP, variant="official"),
    sigua.sigua_bc(PAIR),
    sigua.sigua_bc(SYMMETRIC, over="batch"),
    sigua.forward_correction(PAIR),
    sigua.custom(sigua.NoiseFloor(3.0), 1.0, "forward", PAIR),
    sigua.custom(sigua.Known(), gamma=0.001),
    sigua.sigua_ag(),
    sigua.sigua_ag(by_class=False, gamma=0.1),
]
SIZES = (128, 100, 64, 128, 32, 77)


def name(value):
    return repr(value)[:40]


def batch(n, generator, device="cpu"):
    logits = 3 * torch.randn(n, 10, generator=generator)
    labels = torch.randint(0, 10, (n,), generator=generator)
    labels[: n // 10] = -100
    return logits.to(device), labels.to(device), (labels % 2 == 0).to(device)


def call(criterion, method, logits, labels, trusted):
    if isinstance(method.condition, sigua.Known):
        return criterion(logits, labels, trusted)
    return criterion(logits, labels)


@pytest.mark.parametrize("counting", ["set_epoch", "steps_per_epoch"])
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_compiles_at_most_twice_and_equals_eager(method, counting):
    """Over 14 epochs and 6 batch sizes, as one graph: masks equal, gradients to rounding."""
    torch._dynamo.reset()
    steps = len(SIZES) if counting == "steps_per_epoch" else None
    counter = CompileCounter()
    compiled, eager = (SIGUALoss(method, steps_per_epoch=steps) for _ in range(2))
    step = torch.compile(compiled, backend=counter, fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    for epoch in range(14):
        for criterion in (compiled, eager):
            if steps is None:
                criterion.set_epoch(epoch)
        for n in SIZES:
            logits, *rest = batch(n, generator)
            got, want = logits.clone().requires_grad_(), logits.clone().requires_grad_()
            call(step, method, got, *rest).backward()
            call(eager, method, want, *rest).backward()
            assert torch.equal(compiled.split.good, eager.split.good)
            assert torch.equal(compiled.split.bad, eager.split.bad)
            torch.testing.assert_close(got.grad, want.grad, rtol=1e-5, atol=1e-6 / n)
    # Once more where the first call finds out how many classes the confidence is for.
    assert counter.frame_count <= (
        3 if sigua.conditions.reads(method.condition, "confidence") else 2
    )
    assert compiled.epoch == eager.epoch == (13 if steps is None else 14)


def test_compile_in_place_keeps_the_state_dict_keys():
    criterion = SIGUALoss(METHODS[0], weight=torch.ones(10))
    keys = list(criterion.state_dict())
    criterion.compile(backend="eager", fullgraph=True)
    logits, labels, _ = batch(32, torch.Generator().manual_seed(0))
    criterion(logits.requires_grad_(), labels).backward()
    assert list(criterion.state_dict()) == keys


@pytest.mark.parametrize("options", [{}, {"weight": True}, {"label_smoothing": 0.1}], ids=str)
@pytest.mark.parametrize("steps_per_epoch", [None, 5])
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_never_waits_for_the_device(method, steps_per_epoch, options):
    """On the meta device, which has no values, any read of one raises."""
    options = {**options, "weight": torch.ones(10)} if "weight" in options else options
    criterion = SIGUALoss(method, steps_per_epoch=steps_per_epoch, **options).to("meta")
    logits, *rest = batch(32, torch.Generator().manual_seed(0), "meta")
    loss = call(criterion, method, logits.requires_grad_(), *rest)
    loss.backward()
    assert loss.shape == ()
    assert criterion.split.good.shape == (32,)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_evaluation_of_another_loss_never_waits_for_the_device(reduction):
    """With ignored class indices, and with labels that are missing."""
    several, index = torch.nn.BCEWithLogitsLoss(reduction="none"), losses.generalized_cross_entropy
    logits = torch.zeros(8, 3, device="meta")
    for base, target in ((index, torch.zeros(8).long()), (several, torch.zeros(8, 3))):
        criterion = SIGUALoss(METHODS[0], base=base, reduction=reduction).to("meta").eval()
        assert criterion(logits, target.to("meta")).is_meta


def test_the_meta_device_does_raise_on_a_read():
    """Without this the test above could pass for the wrong reason."""
    with pytest.raises(RuntimeError, match=r"meta"):
        torch.ones(3, device="meta").sum().item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_grad_scaler_take_negative_losses(dtype):
    """A corrected loss goes below zero; scaled steps equal unscaled ones and stay finite."""
    torch.manual_seed(0)
    net = torch.nn.Linear(20, 10)
    criterion = SIGUALoss(sigua.backward_correction(PAIR))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    inputs, labels = torch.randn(64, 20), torch.randint(0, 10, (64,))
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = criterion(net(inputs), labels)
        assert loss.dtype == torch.float32
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert min(losses) < 0
    assert all(parameter.isfinite().all() for parameter in net.parameters())
    assert scaler.get_scale() >= 2.0**10  # no step was skipped


@pytest.mark.parametrize("make", [sigua.forward_correction, sigua.sigua_bc], ids=["T'", "T^-1"])
def test_rows_of_tables_are_in_one_piece(make):
    """Gathering them takes four times as long for 1,000 classes where they are columns."""
    T = sigua.TransitionMatrix([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    tables = [table for table in SIGUALoss(make(T)).buffers() if table.shape == (3, 3)]
    assert tables
    assert all(table.is_contiguous() for table in tables)
