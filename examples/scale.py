"""What sigua costs with many processes, and with many examples.

    python examples/scale.py [--processes 2 4 8] [--examples 100000 1000000 ...] [--markdown FILE]

Processes talk by gloo on this machine, whose cores they share: criteria take turns at one training
step of an MLP with 128 examples in each process, and a row is the median. What more processes cost
is worked out, not measured: the bytes are exact, the time is that of a network you can change with
`--gigabits` and `--latency`. Memory is the most that NumPy holds beyond what it is given: with 10
classes, 40 bytes an example of probabilities in float32, and 12 of margins.
"""

import argparse
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

import sigua
from sigua_torch import Pool, SIGUALoss
from sigua_torch.diagnostics import LabelHistory

BATCH, CLASSES = 128, 10
COLUMNS = 2  # the loss, and whether the example takes part
GATHER = "all_gather alone"
NOTES = [
    """\
`sync=True` first asks how large each part is; `Pool(largest=...)` spares that call. Then one
`all_gather` of the losses selects over all, and every process sorts them. Agreement judges each
example alone: it sends nothing, however many processes there are.""",
    """\
Three sizes show what grows with n alone: seconds by the sizes' ratio, the same bytes an example.
`LabelHistory` is fed in mini-batches and keeps 8 bytes an example and epoch. `count_transition`
needs labels alone. The others read probabilities in blocks, float32 and a `numpy.memmap`, too, and
hold a few numbers an example, however many classes there are.""",
]


def make_criteria() -> dict[str, SIGUALoss | nn.Module]:
    small_loss = sigua.sigua_sl(0.5, delta=0.15, gamma=0.01, warmup=0)
    return {
        "cross-entropy": nn.CrossEntropyLoss(),
        "SIGUA_SL, each process its own": SIGUALoss(small_loss),
        "SIGUA_SL, sync=True": SIGUALoss(small_loss, sync=True),
        "SIGUA_SL, Pool(largest=128)": SIGUALoss(small_loss, sync=Pool(largest=BATCH)),
        "agreement": SIGUALoss(sigua.sigua_ag(warmup=0)),
    }


def train(rank: int, processes: int, folder: str, rounds: int) -> None:
    """Be one process; the first writes the milliseconds of each criterion's step."""
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=processes)
    torch.manual_seed(rank)
    layers = nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    net = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.0)
    x, y = torch.rand(BATCH, 784), torch.randint(0, CLASSES, (BATCH,))
    part, whole = torch.zeros(COLUMNS * BATCH), torch.zeros(processes * COLUMNS * BATCH)

    def step_with(criterion: nn.Module) -> Callable[[], None]:
        def step() -> None:
            optimizer.zero_grad()
            criterion(net(x), y).backward()
            optimizer.step()

        return step

    # First, not last: if gloo still holds a tensor of ours when Python ends, the process aborts.
    steps = {GATHER: lambda: dist.all_gather_single(whole, part)}
    steps |= {name: step_with(criterion) for name, criterion in make_criteria().items()}
    times = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            dist.barrier()
            start = time.perf_counter()
            step()
            times[name].append(1e3 * (time.perf_counter() - start))
    if rank == 0:
        rows = [f"{median(values[1:])}" for values in times.values()]
        Path(folder, "times").write_text("\n".join(rows))
    dist.barrier()
    dist.destroy_process_group()


def measured_processes(counts: list[int], rounds: int) -> dict[int, dict[str, float]]:
    """Return the milliseconds of each step by the number of processes."""
    found = {}
    for processes in counts:
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.spawn(train, (processes, folder, rounds), processes)
            values = map(float, Path(folder, "times").read_text().split())
            found[processes] = dict(zip([GATHER, *make_criteria()], values, strict=True))
    return found


def process_lines(found: dict[int, dict[str, float]]) -> Iterator[str]:
    counts = list(found)
    yield "| ms per step | " + " | ".join(f"{p} processes" for p in counts) + " |"
    yield "|---|" + "---:|" * len(counts)
    for name in found[counts[0]]:
        yield f"| {name} | " + " | ".join(f"{found[p][name]:.2f}" for p in counts) + " |"


def paper_lines(counts: list[int], gigabits: float, latency: float) -> Iterator[str]:
    """Yield what one all_gather in a ring costs: each process receives everybody else's part."""
    network = f"{gigabits:g} Gbit/s, {latency:g} us a hop"
    yield f"| processes of {BATCH} | received by each | at {network} |"
    yield "|---:|---:|---:|"
    for processes in counts:
        size = (processes - 1) * COLUMNS * BATCH * 4
        microseconds = (processes - 1) * latency + size * 8 / (gigabits * 1e3)
        yield f"| {processes} | {size / 1e3:.1f} kB | {microseconds / 1e3:.2f} ms |"


def jobs(n: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what one does with n examples of 10 classes after training."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, n)
    logits = rng.standard_normal((n, CLASSES), dtype=np.float32)
    logits[np.arange(n), labels] += 4 * (rng.random(n) < 0.7)
    parts = np.arange(n), logits, labels
    chunks = list(zip(*(torch.from_numpy(part).split(8192) for part in parts), strict=True))

    def history() -> None:
        recorder = LabelHistory(n)
        for chunk in chunks:
            recorder.update(*chunk)
        recorder.end_epoch()

    yield "`LabelHistory`, an epoch in chunks of 8,192", history
    p = np.exp(logits, out=logits)
    p /= p.sum(1, keepdims=True)
    table = np.stack([sigua.label_margins(p, labels).astype(np.float32)] * 3)
    yield "`label_margins`", lambda: sigua.label_margins(p, labels)
    yield "`rank_label_issues`, 3 epochs of margins", lambda: sigua.rank_label_issues(margins=table)
    for method in ("surest", "confident"):
        yield (
            f"`estimate_transition`, {method}",
            lambda method=method: sigua.estimate_transition(p, labels, method=method),
        )
    yield "`estimate_noise_rate`, surest", lambda: sigua.estimate_noise_rate(p, labels)
    true = np.where(rng.random(n) < 0.7, labels, rng.integers(0, CLASSES, n))
    yield "`count_transition`", lambda: sigua.count_transition(labels, true, CLASSES)


def example_lines(sizes: list[int]) -> Iterator[str]:
    yield "| | " + " | ".join(f"n = {n:,} | bytes an example" for n in sizes) + " |"
    yield "|---|" + "---:|" * (2 * len(sizes))
    rows: dict[str, list[str]] = {}
    for n in sizes:
        for name, job in jobs(n):
            start = time.process_time()
            job()
            seconds = time.process_time() - start
            tracemalloc.start()
            job()
            held = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            rows.setdefault(name, []).extend([f"{seconds:.2f} s", f"{held / n:.0f}"])
    for name, cells in rows.items():
        yield f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=60, help="steps of each criterion")
    parser.add_argument("--examples", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--gigabits", type=float, default=10.0)
    parser.add_argument("--latency", type=float, default=10.0, help="microseconds a hop")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    command = f"    python examples/scale.py --markdown {args.markdown}"
    load = f"The machine's load was {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    lines = ["# What scale costs", "", command, "", __doc__.split("\n\n")[2].strip(), load, ""]
    lines += ["## Many processes", ""]
    lines += [*process_lines(measured_processes(args.processes, args.rounds)), ""]
    lines += [*paper_lines([*args.processes, 64, 512], args.gigabits, args.latency), ""]
    lines += [NOTES[0], "", "## Many examples", "", *example_lines(args.examples), "", NOTES[1]]
    page = "\n".join(lines) + "\n"
    print(page)
    if args.markdown:
        args.markdown.write_text(page)


if __name__ == "__main__":
    main()
