"""Run by torchrun from test_torch_distributed.py: each process holds a part of one mini-batch."""

import gc
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sigua
from sigua_torch import Pool, SIGUALoss

PAIR = sigua.TransitionMatrix.pair(0.45, 5)
ROWS = sigua.TransitionMatrix(0.6 * torch.eye(5).double().numpy() + 0.4 * torch.eye(5)[0].numpy())
WEIGHT = torch.linspace(0.5, 2.0, 5)
CASES = [
    (sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0), {}),
    (sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0), {"weight": WEIGHT}),
    (sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0), {"ignore_index": 3}),
    (sigua.sigua_sl(0.5, delta=0.5, gamma=0.3, warmup=0, variant="official"), {"weight": WEIGHT}),
    (sigua.sigua_bc(PAIR, gamma=0.5), {"label_smoothing": 0.1}),
    (sigua.sigua_bc(PAIR, gamma=0.5, over="batch"), {"ignore_index": 3}),
    (sigua.sigua_bc(ROWS, gamma=0.5, over="classes"), {}),
    (sigua.forward_correction(PAIR), {"weight": WEIGHT}),
    # A floor that some of the processes' own means are above, and some below.
    (sigua.custom(sigua.NoiseFloor(2.0), gamma=0.5), {}),
    (sigua.sigua_fc(PAIR, gamma=0.5, floor=1.9), {"weight": WEIGHT, "ignore_index": 3}),
    (sigua.custom(sigua.Known(), gamma=0.1), {}),
    (sigua.sigua_ag(warmup=0, gamma=0.1), {}),
    (sigua.sigua_ag(warmup=0, gamma=0.1), {"weight": WEIGHT, "ignore_index": 3}),
]


def whole_batch(dtype):
    generator = torch.Generator().manual_seed(0)
    inputs = 2 * torch.randn(24, 7, generator=generator, dtype=dtype)
    labels = torch.randint(0, 5, (24,), generator=generator)
    return inputs, labels, labels % 2 == 0


def make_net(dtype):
    torch.manual_seed(1)
    return nn.Linear(7, 5, dtype=dtype)


def gradient(net, criterion, method, inputs, labels, trusted):
    net.zero_grad()
    extra = (trusted,) if isinstance(method.condition, sigua.Known) else ()
    criterion(net(inputs), labels, *extra).backward()
    return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])


def check_gradients(parts, pools):
    """DDP's averaged gradient is the one of a single process on the whole batch."""
    rank = dist.get_rank()
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        data = whole_batch(dtype)
        mine = [part.split(parts)[rank] for part in data]
        net = make_net(dtype)
        parallel = DistributedDataParallel(make_net(dtype))
        for method, options in CASES:
            plain = SIGUALoss(method, **options)
            want = gradient(net, plain, method, *data)
            good = plain.split.good.split(parts)[rank]
            for pool in pools:
                together = SIGUALoss(method, sync=pool, **options)
                if plain.confidence is not None:  # each from what the whole batch left behind
                    gradient(net, plain, method, *data)
                    want = gradient(net, plain, method, *data)
                    good = plain.split.good.split(parts)[rank]
                    gradient(parallel, together, method, *mine)
                    gradient(parallel, together, method, *mine)
                got = gradient(parallel, together, method, *mine)
                error = (got - want).abs().max().item()
                assert error <= tolerance, (method, options, parts, dtype, error)
                assert torch.equal(together.split.good, good), (method, options, parts)


def check_local_differs(parts):
    """Without sync the choice is each process's own: the check above can fail."""
    method, _ = CASES[0]
    data = whole_batch(torch.float64)
    mine = [part.split(parts)[dist.get_rank()] for part in data]
    want = gradient(make_net(torch.float64), SIGUALoss(method), method, *data)
    parallel = DistributedDataParallel(make_net(torch.float64))
    got = gradient(parallel, SIGUALoss(method), method, *mine)
    assert (got - want).abs().max() > 1e-3


def check_compiled(parts):
    """With an upper bound of the parts, the collective stays in one compiled graph."""
    method, options = CASES[0]
    inputs, labels, _ = whole_batch(torch.float32)
    logits = inputs[:, :5].split(parts)[dist.get_rank()].clone().requires_grad_()
    mine = labels.split(parts)[dist.get_rank()]
    eager = SIGUALoss(method, sync=True, **options)
    want = torch.autograd.grad(eager(logits, mine), logits)[0]
    compiled = SIGUALoss(method, sync=Pool(largest=max(parts)), **options)
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
        criterion = SIGUALoss(CASES[0][0], sync=True)
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
    if dist.get_world_size() == 2:
        check_gradients([12, 12], [True, Pool(largest=12), dist.group.WORLD])
        check_gradients([17, 7], [True, Pool(largest=20)])
        check_local_differs([17, 7])
        check_compiled([17, 7])
        check_fsdp()
    else:
        check_gradients([15, 0, 9], [True, Pool(largest=15)])
    print(f"rank {dist.get_rank()} passed", file=sys.stderr)
    gc.collect()  # DDP's reducers live in cycles, and abort the process if they outlive the group
    dist.barrier()
    dist.destroy_process_group()


main()
