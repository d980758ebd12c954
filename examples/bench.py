"""What sigua costs, as a ratio to plain cross-entropy on the same tensors.

    python examples/bench.py [--quick] [--only WORD] [--threads 1] [--device cpu]
                             [--max-seconds S] [--json FILE] [--markdown FILE]

Everything runs in one process and takes turns in a random order, so that a busy machine slows all
alike; a ratio is the median of the ratios of the rounds, and the range is its quartiles. Times are
of forward + backward: the processor's with one thread (the default), else elapsed. Freed memory
stays with the process, as in one whose network is larger than its loss. Nothing is asserted: a
target says what we aim for, and whether it was met here.

Rows in brackets are not sigua: floors, what one would write without it, and what users would take
instead (bench_peers.py). Targets are judged against plain cross-entropy, or against the row named.
The column 0.2 has the ratios of that release, as results/bench_0.2.json keeps them from its run.
Needs torch, rich, a C++ compiler for the compiled rows on a CPU, and for the rows on Keras its
backends (those that are missing are left out, and so are all on a card).
"""

import argparse
import ctypes
import gc
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import bench_peers
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

import sigua
from sigua_torch import SIGUALoss

Run = Callable[[], None]
Loss = Callable[[Tensor, Tensor], Tensor]

CE, SOFT = "cross-entropy", "[cross-entropy with soft targets]"
SIZES = [(128, 10), (1024, 10), (8192, 10), (128, 1000), (1024, 1000), (256, 10_000)]
MANY_CLASSES = (64, 100_000)
MANY_EXAMPLES = (65_536, 10)
DENSE_UP_TO = 1000  # beyond, T itself is larger than everything else and takes minutes to check
MADE_PER_CALL_UP_TO = 4e8  # n * k^2 (or k^3), for those who multiply or invert T at each call
BACKENDS = ["tensorflow", "jax", "torch"]

NOTES = "## Notes\n"
BEFORE = json.loads((Path(__file__).parent / "results" / "bench_0.2.json").read_text())

TARGETS = {
    ("loss 128 x 10", "SIGUA_SL", CE): 1.7,
    ("loss 1024 x 1000", "SIGUA_SL", CE): 1.2,
    ("loss 256 x 10000", "BC symmetric", CE): 1.35,
    ("loss 256 x 10000", "SIGUA_BC symmetric", CE): 1.35,
    **{(f"loss {n} x {k}", "BC dense", SOFT): 1.05 for n, k in SIZES},
    **{(f"loss {n} x {k}", "SIGUA_BC dense", SOFT): 1.15 for n, k in SIZES},
    ("step MLP, Adam", "SIGUA_SL", CE): 1.04,
    ("step MLP, Adam, compiled", "SIGUA_SL", CE): 1.04,
    ("step CNN, 9 layers, Adam", "SIGUA_SL", CE): 1.005,
    ("step CNN, from its parts", "SIGUA_SL", CE): 1.005,
    ("Keras fit, MLP, tensorflow", "SIGUA_SL", "plain"): 1.05,
    ("Keras fit, MLP, jax", "SIGUA_SL", "plain"): 1.10,
    ("Keras fit, MLP, torch", "SIGUA_SL", "plain"): 1.20,
    **{(f"Keras fit, CNN, {backend}", "SIGUA_SL", "plain"): 1.01 for backend in BACKENDS},
}


class Row(NamedTuple):
    """One line of the table; a ratio is to `against`, and low and high are its quartiles."""

    group: str
    name: str
    against: str
    value: float
    unit: str
    ratio: float
    low: float
    high: float
    target: float | None = None

    @property
    def before(self) -> str:
        """The ratio in 0.2, if it was measured."""
        first = self.against in (CE, "plain")
        name = self.name if first else f"{self.name} against {self.against}"
        ratio = BEFORE.get(self.group, {}).get(name)
        return "" if ratio is None else f"{ratio:.3f}"

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return f"<= {self.target:g} " + ("met" if self.ratio <= self.target else "not met")


def compare(group: str, times: dict[str, np.ndarray]) -> Iterator[Row]:
    """Yield a row for everything that was timed, against the first and where a target says so."""
    first = next(iter(times))
    for name, values in times.items():
        named = [a for g, n, a in TARGETS if (g, n) == (group, name) and a != first and a in times]
        for against in [first, *named]:
            ratios = values / times[against]
            low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75]).tolist()
            target = TARGETS.get((group, name, against))
            ms = 1e3 * float(np.median(values))
            yield Row(group, name, against, ms, "ms", middle, low, high, target)


class Bench:
    """Times what takes turns, on one device."""

    def __init__(self, device: torch.device, seconds: float) -> None:
        self.device, self.seconds = device, seconds
        # Elapsed time has whole time slices of other programs in it on a busy machine.
        alone = device.type == "cpu" and torch.get_num_threads() == 1
        self.clock = time.process_time if alone else time.perf_counter
        self.repeats = 20 if device.type == "cuda" else 1

    def race(self, runs: dict[str, Run]) -> dict[str, np.ndarray]:
        """Return seconds per run, an entry per round."""
        gc.collect()
        gc.disable()  # its pauses would hit whoever is running
        seconds = sum(min(self._slot(run) for _ in range(2)) for run in runs.values())
        warm = seconds < 1  # what takes longer warms itself
        rounds = round(self.seconds / ((self.repeats + warm) * seconds))
        times: dict[str, list[float]] = {name: [] for name in runs}
        order, shuffle = list(runs), random.Random(0).shuffle
        for _ in range(min(max(rounds, 9), 2000)):
            shuffle(order)
            for name in order:
                times[name].append(self._slot(runs[name], warm))
        gc.enable()
        return {name: np.array(values) for name, values in times.items()}

    def _slot(self, run: Run, warm: bool = True) -> float:
        """Return seconds per run; short on a CPU, so that the system seldom interrupts it."""
        if warm:
            run()
        self._wait()
        start = self.clock()
        for _ in range(self.repeats):
            run()
        self._wait()
        return (self.clock() - start) / self.repeats

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def peak(self, run: Run) -> int:
        """Return the most bytes that a run holds at a time, beyond what was there before it."""
        run()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            run()
            return torch.cuda.max_memory_allocated() - before
        with torch.profiler.profile(profile_memory=True) as profile:
            run()
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            profile.export_chrome_trace(str(trace))
            events = json.loads(trace.read_text())["traceEvents"]
        sizes = [event["args"]["Bytes"] for event in events if event["name"] == "[memory]"]
        return max(np.cumsum(sizes).tolist())

    def batch(self, n: int, k: int, *rest: int) -> tuple[Tensor, Tensor]:
        """Return a leaf of logits, (n, k, *rest), and labels."""
        logits = torch.randn(n, k, *rest, device=self.device, requires_grad=True)
        return logits, torch.randint(0, k, (n, *rest), device=self.device)


def make_method(name: str, k: int) -> sigua.Method:
    """Return a method in the state that lasts: after the warm-up."""
    rule, _, kind = name.partition(" ")
    if rule == "SIGUA_AG":
        return sigua.sigua_ag(warmup=0)
    if rule == "self-teaching":
        return sigua.self_teaching(0.5, warmup=0)
    if rule == "SIGUA_SL":
        return sigua.sigua_sl(0.5, delta=0.15, gamma=0.01, warmup=0)
    T = sigua.TransitionMatrix
    T = T.symmetric(0.5, k) if kind == "symmetric" else T.pair(0.45, k)
    kinds = {
        "BC": sigua.backward_correction,
        "SIGUA_BC": sigua.sigua_bc,
        "forward": sigua.forward_correction,
    }
    return kinds[rule](T)


def our_losses(k: int, device: torch.device) -> dict[str, Loss]:
    """Return a criterion for each method."""
    names = ["SIGUA_SL", "self-teaching", "SIGUA_AG"]
    for kind in ["dense", "symmetric"] if k <= DENSE_UP_TO else ["symmetric"]:
        names += [f"{rule} {kind}" for rule in ("BC", "SIGUA_BC", "forward")]
    return {name: SIGUALoss(make_method(name, k)).to(device) for name in names}


def other_losses(n: int, k: int, device: torch.device) -> dict[str, Loss]:
    """Return floors, and what one would write: for the eye, not for use."""
    keep, forget = n // 2 + 1, int(0.65 * n) + 1
    signs = torch.tensor([1.0] * keep + [-0.01] * (forget - keep), device=device)
    weights = torch.full((n,), 1 / n, device=device)

    def weighted(logits: Tensor, labels: Tensor) -> Tensor:
        return torch.dot(F.cross_entropy(logits, labels, reduction="none"), weights)

    def by_topk(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, reduction="none").topk(keep, largest=False)[0].mean()

    def by_argsort(logits: Tensor, labels: Tensor) -> Tensor:
        losses = F.cross_entropy(logits, labels, reduction="none")
        chosen = losses.detach().argsort()[:forget]
        return (losses[chosen] * signs).sum() / len(losses)

    others: dict[str, Loss] = {
        "[weights given: the floor of a selection]": weighted,
        "[small loss by topk]": by_topk,
        "[SIGUA_SL by argsort and indexing]": by_argsort,
    }
    if k > DENSE_UP_TO:
        return others
    T = torch.tensor(sigua.TransitionMatrix.pair(0.45, k).rows, dtype=torch.float32, device=device)
    inverse = T.inverse()
    soft = inverse[torch.arange(n, device=device) % k]

    def every_class(logits: Tensor, inverse: Tensor, labels: Tensor) -> Tensor:
        corrected = -logits.log_softmax(1) @ inverse.T
        return corrected.gather(1, labels.unsqueeze(1)).mean()

    others[SOFT] = lambda logits, labels: F.cross_entropy(logits, soft)
    others["[soft targets, gathered]"] = lambda x, labels: F.cross_entropy(x, inverse[labels])
    if n * k * k <= MADE_PER_CALL_UP_TO:
        others["[BC by a product with T^-1]"] = lambda x, y: every_class(x, inverse, y)
    if k**3 <= MADE_PER_CALL_UP_TO or n <= 128:
        others["[BC, T inverted at each call]"] = lambda x, y: every_class(x, T.inverse(), y)
    return others


def compile_alone(loss: Loss) -> Loss:
    """Return it compiled, with graphs of its own: criteria share their code, and 8 is the limit."""
    return torch.compile(loss, fullgraph=True, dynamic=False, isolate_recompiles=True)


def both_ways(loss: Loss, logits: Tensor, labels: Tensor) -> Run:
    """Return forward + backward."""

    def run() -> None:
        logits.grad = None
        loss(logits, labels).backward()

    return run


def loss_rows(bench: Bench, n: int, k: int, compiled: bool) -> Iterator[Row]:
    """Time the losses alone."""
    data = bench.batch(n, k)
    losses: dict[str, Loss] = {CE: nn.CrossEntropyLoss(), **our_losses(k, bench.device)}
    losses |= bench_peers.peer_losses(n, k, bench.device)
    if compiled:
        torch.compiler.reset()
        losses = {name: compile_alone(loss) for name, loss in losses.items()}
    else:
        losses |= other_losses(n, k, bench.device)
    runs = {name: both_ways(loss, *data) for name, loss in losses.items()}
    yield from compare(f"loss {n} x {k}" + ", compiled" * compiled, bench.race(runs))


def segmentation_rows(bench: Bench) -> Iterator[Row]:
    data = bench.batch(2, 21, 256, 256)
    losses: dict[str, Loss] = {CE: nn.CrossEntropyLoss(), **our_losses(21, bench.device)}
    runs = {name: both_ways(loss, *data) for name, loss in losses.items()}
    yield from compare("loss 2 x 21 x 256 x 256", bench.race(runs))


def mlp() -> nn.Module:
    """Return the network of the paper's MNIST experiments with an MLP."""
    hidden = nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(256, 10))


def cnn() -> nn.Module:
    """Return the paper's 9-layer CNN (its Table 4), for grey images."""

    def block(*channels: int) -> Iterator[nn.Module]:
        for i, o in pairwise(channels):
            yield from (nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.LeakyReLU(0.01))

    def pool() -> Iterator[nn.Module]:
        yield from (nn.MaxPool2d(2), nn.Dropout(0.25))

    convolutions = [*block(1, 128, 128, 128), *pool(), *block(128, 256, 256, 256), *pool()]
    convolutions += [*block(256, 512, 256, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*convolutions, nn.Linear(128, 10))


def step_runs(bench: Bench, net: nn.Module, x: Tensor, kind: str, compiled: bool) -> dict[str, Run]:
    """Return whole training steps of one net, which differ in nothing but the criterion."""
    net, labels = net.to(bench.device), torch.randint(0, 10, (len(x),), device=bench.device)
    # A rate of 0 is the same arithmetic, but no net that learns its batch by heart, whose vanishing
    # gradients are denormal numbers and several times as slow.
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.0)

    def step_with(criterion: Loss) -> Run:
        def loss(x: Tensor, labels: Tensor) -> Tensor:
            return criterion(net(x), labels)

        loss = compile_alone(loss) if compiled else loss

        def run() -> None:
            optimizer.zero_grad()
            loss(x, labels).backward()
            optimizer.step()

        return run

    losses: dict[str, Loss] = {CE: nn.CrossEntropyLoss(), **our_losses(10, bench.device)}
    losses |= bench_peers.peer_losses(len(x), 10, bench.device)
    runs = {name: step_with(criterion) for name, criterion in losses.items()}
    if not compiled:
        runs["[Co-teaching, two networks]"] = bench_peers.co_teaching(net, x, labels, kind)
    return runs


def mlp_rows(bench: Bench, kind: str, compiled: bool) -> Iterator[Row]:
    torch.compiler.reset()
    x = torch.rand(128, 784, device=bench.device)
    runs = step_runs(bench, mlp(), x, kind, compiled)
    yield from compare(f"step MLP, {kind}" + ", compiled" * compiled, bench.race(runs))


def cnn_rows(bench: Bench) -> Iterator[Row]:
    """Time the big step, whose noise exceeds the loss's cost by far; and its parts apart."""
    runs = step_runs(bench, cnn(), torch.rand(32, 1, 28, 28, device=bench.device), "Adam", False)
    names = [CE, "SIGUA_SL", "SIGUA_BC dense"]
    steps = bench.race({name: runs[name] for name in names})
    yield from compare("step CNN, 9 layers, Adam", steps)
    data = bench.batch(32, 10)
    losses = {CE: nn.CrossEntropyLoss(), **our_losses(10, bench.device)}
    times = bench.race({name: both_ways(losses[name], *data) for name in names})
    rest = np.median(steps[CE]) - np.median(times[CE])
    parts = {name: rest + values for name, values in times.items()}
    yield from compare("step CNN, from its parts", parts)


def memory_rows(bench: Bench, n: int, k: int) -> Iterator[Row]:
    """Compare peaks of memory, beyond the logits and labels; a (n, k) array is one "x"."""
    data = bench.batch(n, k)
    losses = {CE: nn.CrossEntropyLoss(), **our_losses(k, bench.device)}

    def run_of(loss: Loss) -> Run:
        def run() -> None:
            torch.autograd.grad(loss(*data), data[0])  # leaves nothing for the next to free

        return run

    peaks = {name: bench.peak(run_of(loss)) for name, loss in losses.items()}
    for name, peak in peaks.items():
        ratio = peak / peaks[CE]
        yield Row(f"memory {n} x {k}", name, CE, peak / 1e6, "MB", ratio, ratio, ratio)


def keras_rows(backend: str, net: str, quick: bool) -> Iterator[Row]:
    """Run bench_keras.py, a process per backend; nothing where the backend is missing."""
    if not find_spec(backend):
        return
    script = Path(__file__).with_name("bench_keras.py")
    amount = ["--rounds", "3", "--epochs", "2"] if quick else []
    amount += ["--net", net]
    env = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, script, *amount], env=env, stdout=subprocess.PIPE, text=True
    )
    if done.returncode == 0:
        times = json.loads(done.stdout.splitlines()[-1])
        arrays = {name: np.array(values) for name, values in times.items()}
        yield from compare(f"Keras fit, {net.upper()}, {backend}", arrays)


def parts(bench: Bench, quick: bool) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    """Yield every part of the benchmark by name."""
    for compiled in [False, True]:  # those that compile come later, should time run out
        for n, k in [(128, 10), (1024, 1000)] if quick else SIZES:
            name = f"loss {n} x {k}" + ", compiled" * compiled
            yield name, lambda n=n, k=k, compiled=compiled: loss_rows(bench, n, k, compiled)
    if not quick:
        yield "loss, many examples", lambda: loss_rows(bench, *MANY_EXAMPLES, compiled=False)
    yield "loss, many classes", lambda: loss_rows(bench, *MANY_CLASSES, compiled=False)
    yield "loss of segmentation", lambda: segmentation_rows(bench)
    for kind, compiled in [("Adam", False), ("SGD", False), ("Adam", True)]:
        name = f"step MLP, {kind}" + ", compiled" * compiled
        yield name, lambda kind=kind, compiled=compiled: mlp_rows(bench, kind, compiled)
    if not quick:
        yield "step CNN", lambda: cnn_rows(bench)
    for backend in BACKENDS if bench.device.type == "cpu" and find_spec("keras") else []:
        for net in ["mlp"] if quick else ["mlp", "cnn"]:
            name = f"Keras fit, {net.upper()}, {backend}"
            yield name, lambda net=net, backend=backend: keras_rows(backend, net, quick)
    for n, k in [(1024, 1000), MANY_CLASSES]:
        yield f"memory {n} x {k}", lambda n=n, k=k: memory_rows(bench, n, k)


def machine(device: torch.device) -> dict[str, Any]:
    """Return what ran where."""
    info = Path("/proc/cpuinfo")
    models = info.read_text().split("model name\t: ")[1:] if info.exists() else []
    processor = models[0].split("\n")[0] if models else platform.processor() or platform.machine()
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "card": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "versions": {"python": platform.python_version(), **versions()},
    }


def versions() -> dict[str, str]:
    """Return the versions of what is installed, which sigua itself need not be."""
    found = {}
    for name in ["sigua", "torch", "numpy", "keras", "tensorflow", "tensorflow-cpu", "jax"]:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def make_table(rows: list[Row], about: dict[str, Any]) -> Table:
    """Return the rows, the ratio in front."""
    title, caption = describe(about)
    table = Table(title=title, caption=caption, pad_edge=False)
    table.add_column("")
    for heading in ("", "ratio", "0.2", "quartiles"):
        table.add_column(heading, justify="right")
    table.add_column("target")
    for i, row in enumerate(rows):
        if i == 0 or row.group != rows[i - 1].group:
            table.add_section()
            table.add_row(f"[bold]{row.group}")
        style = "red" if row.verdict.endswith("not met") else ""
        table.add_row(*(cell.replace("[", r"\[") for cell in cells(row)), style=style)
    return table


def describe(about: dict[str, Any]) -> tuple[str, str]:
    """Return the machine, and the versions, in a line each."""
    machine = f"{about['card'] or about['processor']}, {about['threads']} of {about['cores']} cores"
    return machine, ", ".join(f"{name} {version}" for name, version in about["versions"].items())


def cells(row: Row) -> tuple[str, ...]:
    """Return a line of the table."""
    first = row.against in (CE, "plain")
    name = row.name if first else f"  against {row.against}"
    spread = f"{row.low:.3f} {row.high:.3f}" if row.unit == "ms" else ""
    return name, f"{row.value:.3g} {row.unit}", f"{row.ratio:.3f}", row.before, spread, row.verdict


def make_page(rows: list[Row], about: dict[str, Any], notes: str) -> str:
    """Return the table as a page in Markdown, with the notes that were written under the last."""
    lines = ["# What sigua costs", "", ". ".join(describe(about)) + ".", ""]
    lines += ["    python examples/bench.py", "", *__doc__.split("\n\n")[2:4], ""]
    lines += ["| | | ratio | 0.2 | quartiles | target |", "|---|---:|---:|---:|---:|---|"]
    for i, row in enumerate(rows):
        if i == 0 or row.group != rows[i - 1].group:
            lines.append(f"| **{row.group}** | | | | | |")
        lines.append(f"| {' | '.join(cell.strip() for cell in cells(row))} |")
    return "\n".join([*lines, "", NOTES, *([notes.strip(), ""] if notes.strip() else [])])


def write(rows: list[Row], about: dict[str, Any], data: Path | None, page: Path | None) -> None:
    """Write the files; after each part, so that an interruption costs nothing."""
    if data:
        records = [row._asdict() for row in rows]
        data.write_text(json.dumps({"machine": about, "rows": records}, indent=1) + "\n")
    if page:
        old = page.read_text() if page.exists() else ""
        page.write_text(make_page(rows, about, old.partition(NOTES)[2]))


def keep_memory() -> None:
    """Have glibc keep what is freed.

    By default it returns large blocks to the system after some calls and not after others, and
    pages that are then new cost more than a loss: times would double at random.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda name, value: 0)
        mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
        mallopt(-4, 0)  # M_MMAP_MAX
    os.environ |= {"MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_MMAP_MAX_": "0"}  # of children


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes, shorter races")
    parser.add_argument("--only", default="", help="parts whose name has this in it")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--max-seconds", type=float, default=float("inf"), help="for all parts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="and there, for reading")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the losses' costs there")
    args = parser.parse_args()
    keep_memory()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    os.environ["OMP_NUM_THREADS"] = os.environ["TF_NUM_INTRAOP_THREADS"] = str(args.threads)
    console = Console(width=None if sys.stdout.isatty() else 110)
    about, rows = machine(args.device), []
    bench = Bench(args.device, seconds=1.5 if args.quick else 5)
    todo = [(name, part) for name, part in parts(bench, args.quick) if args.only in name]
    usual, end = bench.seconds, time.monotonic() + args.max_seconds
    for i, (name, part) in enumerate(todo):
        left = end - time.monotonic()
        if left < 0:
            console.print("[dim]out of time: " + ", ".join(name for name, _ in todo[i:]))
            break
        # Half of a part's share is for compiling and warming up.
        bench.seconds = min(usual, left / (len(todo) - i) / 2)
        console.print(f"[dim]{name}")  # no spinner: its thread would take turns, too
        rows += part()
        write(rows, about, args.json, args.markdown)
    console.print(make_table(rows, about))
    if args.picture:
        bench_peers.draw(rows, args.picture)
    missed = sum(row.verdict.endswith("not met") for row in rows)
    judged = sum(row.target is not None for row in rows)
    console.print(f"{judged - missed} of {judged} targets met on this machine")


if __name__ == "__main__":
    main()
