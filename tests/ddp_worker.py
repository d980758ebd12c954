"""Run by torchrun from test_torch_distributed.py: each process holds a part of one mini-batch."""

import gc
from itertools import product

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sigua
from sigua_torch import Pool, SIGUALoss

PAIR = sigua.TransitionMatrix.pair(0.45, 5)
ROWS = sigua.TransitionMatrix(0.6 * torch.eye(5).double().numpy() + 0.4 * torch.eye(5)[0].numpy())
WEIGHT = torch.linspace(0.5, 2.0, 5)
SL = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0)
AG = sigua.sigua_ag(warmup=0, gamma=0.1)
# A floor that some of the processes' own means are above, and some below.
FLOOR = sigua.custom(sigua.NoiseFloor(2.0), gamma=0.5)
CASES = [
    (SL, {}, {}),
    (SL, {"weight": WEIGHT}, {}),
    (SL, {"ignore_index": 3}, {}),
    (SL, {}, {"groups": "class"}),
    (SL, {}, {"groups": lambda z, y: 2**40 + y // 2}),
    (sigua.sigua_sl(0.5, 0.5, gamma=0.3, warmup=0, variant="official"), {"weight": WEIGHT}, {}),
    (sigua.sigua_bc(PAIR, gamma=0.5), {"label_smoothing": 0.1}, {}),
    (sigua.sigua_bc(PAIR, gamma=0.5, over="batch"), {"ignore_index": 3}, {}),
    (sigua.sigua_bc(ROWS, gamma=0.5, over="classes"), {}, {}),
    (sigua.forward_correction(PAIR), {"weight": WEIGHT}, {}),
    (FLOOR, {"weight": WEIGHT, "ignore_index": 3}, {}),
    (sigua.custom(sigua.Known(), gamma=0.1), {}, {}),
    (AG, {}, {}),
    (AG, {"weight": WEIGHT, "ignore_index": 3}, {}),
]


def make(method, loss, others, sync=None):
    return SIGUALoss(method, nn.CrossEntropyLoss(**loss), sync=sync, **others)


def whole_batch(dtype):
    generator = torch.Generator().manual_seed(0)
    inputs = 2 * torch.randn(24, 7, generator=generator, dtype=dtype)
    labels = torch.randint(0, 5, (24,), generator=generator)
    return inputs, labels, labels % 2 == 0


def make_net(dtype):
    torch.manual_seed(1)
    return nn.Linear(7, 5, dtype=dtype)


def gradient(net, criterion, inputs, labels, trusted, **options):
    net.zero_grad()
    if isinstance(criterion.method.condition, sigua.Known):
        options["trusted"] = trusted
    criterion(net(inputs), labels, **options).backward()
    return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])


def check_gradients(parts, pools):
    """DDP's averaged gradient is the one of a single process on the whole batch, twice."""
    rank = dist.get_rank()
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        data = whole_batch(dtype)
        mine = [part.split(parts)[rank] for part in data]
        net = make_net(dtype)
        parallel = DistributedDataParallel(make_net(dtype))
        for case in CASES:
            for pool in pools:
                plain, together = make(*case), make(*case, sync=pool)
                for _ in range(2):  # the second is judged by the confidence that the first left
                    want = gradient(net, plain, *data)
                    got = gradient(parallel, together, *mine)
                    error = (got - want).abs().max().item()
                    assert error <= tolerance, (case, parts, dtype, error)
                    good = plain.split.good.split(parts)[rank]
                    assert torch.equal(together.split.good, good), (case, parts)


def check_accumulation():
    """Each process gives its own number of examples, or all the total, as transformers' Trainer.

    The gradient is the one of a single process, and the confidence moves once a step.
    """
    inputs, labels, _ = whole_batch(torch.float64)
    labels[::4] = -100
    x, y = (part.split([17, 7])[dist.get_rank()] for part in (inputs, labels))
    net, parallel = make_net(torch.float64), DistributedDataParallel(make_net(torch.float64))
    for items, factor in ((int((y >= 0).sum()), 1), (torch.tensor(18), 2)):
        whole, parts = SIGUALoss(AG), SIGUALoss(AG, sync=True)
        for _ in range(3):
            want = gradient(net, whole, inputs, labels, None)
            micro = zip(parallel(x).tensor_split(2), y.tensor_split(2), strict=True)
            parallel.zero_grad()
            loss = sum(parts(*each, num_items_in_batch=items) for each in micro)
            (factor * loss).backward()  # as the Trainer does where it gives the total
            got = torch.cat([parameter.grad.flatten() for parameter in parallel.parameters()])
            torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)
            parts.end_step()
            torch.testing.assert_close(parts.get_extra_state(), whole.get_extra_state())


def check_refused_together():
    """What one process refuses ends the step in all, and the next step goes on."""
    rank, (inputs, labels, _) = dist.get_rank(), whole_batch(torch.float32)
    logits, right = inputs[:12, :5].clone().requires_grad_(), labels[:12]
    spoiled = right.clone()
    spoiled[3] = 99
    wrong = [((logits, spoiled), "target: must be class"), (({}, right), "input: must have 'log")]
    for method in (SL, AG, sigua.custom(sigua.Known(), gamma=0.1)):
        marks = {"trusted": right > 2} if method not in (SL, AG) else {}
        for pool, (refused, said), by in product((True, Pool(largest=12)), wrong, (0, 1)):
            criterion = SIGUALoss(method, sync=pool, groups="class" if method is SL else None)
            match = f"^{said}" if rank == by else "another process"
            with pytest.raises(ValueError, match=match):
                criterion(*(refused if rank == by else (logits, right)), **marks)
            some = {"num_items_in_batch": 24} if rank == by else {}
            with pytest.raises(ValueError, match=r"^num_items_in_batch: must be given by every"):
                criterion(logits, right, **marks, **some)
            assert criterion.split is None
            criterion(logits, right, **marks).backward()


def check_each_process_keeps_its_own():
    """DistributedDataParallel broadcasts buffers; what a criterion keeps is none."""
    rank, (inputs, labels, _) = dist.get_rank(), whole_batch(torch.float32)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.criterion = make_net(torch.float32), SIGUALoss(AG)

        def forward(self, x, y):
            return self.criterion(self.net(x), y)

    model, alone = DistributedDataParallel(Model()), Model()
    for _ in range(3):
        part = slice(12 * rank, 12 * rank + 12)
        model(inputs[part], labels[part])
        alone(inputs[part], labels[part])
    kept = model.module.criterion.get_extra_state()
    assert torch.equal(kept, alone.criterion.get_extra_state())
    states = [torch.empty_like(kept) for _ in range(2)]
    dist.all_gather(states, kept)
    assert not torch.equal(*states)


def check_compiled(parts):
    """With an upper bound of the parts, the collective stays in one compiled graph."""
    inputs, labels, _ = whole_batch(torch.float32)
    logits = inputs[:, :5].split(parts)[dist.get_rank()].clone().requires_grad_()
    mine = labels.split(parts)[dist.get_rank()]
    eager = SIGUALoss(SL, sync=True)
    want = torch.autograd.grad(eager(logits, mine), logits)[0]
    compiled = SIGUALoss(SL, sync=Pool(largest=max(parts)))
    step = torch.compile(compiled, backend="aot_eager", fullgraph=True)
    got = torch.autograd.grad(step(logits, mine), logits)[0]
    torch.testing.assert_close(got, want)
    assert torch.equal(compiled.split.good, eager.split.good)


def check_fsdp():
    """Under fully_shard, whose parameters are sharded, training goes down as it does with DDP."""
    from torch.distributed import fsdp
    from torch.distributed.device_mesh import init_device_mesh

    if not hasattr(fsdp, "fully_shard"):  # public from PyTorch 2.6 on
        return
    inputs, labels, _ = whole_batch(torch.float32)
    mine = [part.chunk(dist.get_world_size())[dist.get_rank()] for part in (inputs, labels)]
    nets = [make_net(torch.float32), DistributedDataParallel(make_net(torch.float32))]
    fsdp.fully_shard(nets[0], mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    curves = []
    for net in nets:
        criterion = SIGUALoss(SL, sync=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = criterion(net(mine[0]), mine[1])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        curves.append(losses)
    torch.testing.assert_close(*map(torch.tensor, curves))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    check_gradients([12, 12], [True, Pool(largest=12), dist.group.WORLD])
    check_gradients([17, 7], [True, Pool(largest=20)])
    check_gradients([24, 0], [True, Pool(largest=24)])
    check_accumulation()
    check_refused_together()
    check_each_process_keeps_its_own()
    check_compiled([17, 7])
    check_fsdp()
    print(f"rank {dist.get_rank()} passed", flush=True)
    gc.collect()  # DDP's reducers live in cycles, and abort the process if they outlive the group
    dist.barrier()
    dist.destroy_process_group()


main()
