"""A classifier that survives half of its labels being wrong, on real handwritten digits.

    python examples/digits.py

corrupts the training labels of scikit-learn's 1,797 digits on purpose, trains the same small
network with every method and three seeds in about a minute on a CPU, prints a table and draws
digits.png. A quarter of the digits is held out with clean labels, for the report only. `--data DIR`
does the same on MNIST or Fashion-MNIST, a second an epoch: add `--epochs 40 --seeds 1`.

The point is `train`, an everyday PyTorch loop whose criterion was swapped. Network, optimiser,
mini-batches and epochs are the same for all. Needs torch, scikit-learn, matplotlib, rich and sigua.
"""

import argparse
import gzip
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import sigua
from sigua import TransitionMatrix
from sigua_torch import SIGUALoss

CLASSES = 10
LAST = 10  # the paper reports the mean of the last ten epochs


class Noise(NamedTuple):
    """How labels are corrupted, and what the methods are told about it."""

    T: TransitionMatrix
    rate: float
    delta: float  # share that SIGUA_SL climbs on: 0.3 of the noise rate
    gamma: float  # how fast it climbs
    over: str  # what must stay non-negative for nnBC and SIGUA_BC


# Pair noise always names the same wrong class, which a network takes for a pattern, so that small
# losses tell less: climb as slowly there as the paper does (on MNIST, 0.01 ruins the training).
# Testing each example's corrected loss, as the authors do, is best for pair noise but does harm
# under strong symmetric noise; the mean over the mini-batch does not, and is tested there.
NOISES = {
    "sym-50": Noise(TransitionMatrix.symmetric(0.5, CLASSES), 0.5, 0.15, 0.01, "batch"),
    "pair-45": Noise(TransitionMatrix.pair(0.45, CLASSES), 0.45, 0.135, 0.001, "label"),
    "sym-20": Noise(TransitionMatrix.symmetric(0.2, CLASSES), 0.2, 0.06, 0.01, "batch"),
}
CEILING = "clean-labels"  # supervised on labels without noise: nothing should do better
COLORS = {  # a hue for each family, SIGUA's the darkest
    CEILING: "black",
    "standard": "#7a7a7a",
    "SIGUA_AG": "#6a2c91",
    "self-teaching": "#79b4e3",
    "SIGUA_SL": "#0a4f9e",
    "BC": "#f2b134",
    "nnBC": "#e8743b",
    "SIGUA_BC": "#b3122a",
    "forward": "#2f9e5b",
}


def make_method(name: str, noise: Noise) -> sigua.Method:
    """Return what is trained with: some know the noise rate, some the transition matrix T."""
    return {
        CEILING: sigua.standard(),
        "standard": sigua.standard(),
        "SIGUA_AG": sigua.sigua_ag(warmup=20),  # a third of the epochs; it is told nothing
        "self-teaching": sigua.self_teaching(noise.rate),
        "SIGUA_SL": sigua.sigua_sl(noise.rate, delta=noise.delta, gamma=noise.gamma),
        "BC": sigua.backward_correction(noise.T),
        "nnBC": sigua.nn_backward_correction(noise.T, over=noise.over),
        "SIGUA_BC": sigua.sigua_bc(noise.T, over=noise.over),
        "forward": sigua.forward_correction(noise.T),
    }[name]


class Data(NamedTuple):
    """Pixels in [0, 1], shape (n, pixels), and labels, shape (n,)."""

    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor


def train(method: sigua.Method, data: Data, seed: int, epochs: int) -> Iterator[float]:
    """Train on the labels in `data`, and yield the test accuracy in % after each epoch."""
    torch.manual_seed(seed)
    hidden = nn.Linear(data.x.shape[1], 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
    net = nn.Sequential(*hidden, nn.Linear(128, CLASSES))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)  # quick to memorise what is wrong
    criterion = SIGUALoss(method)  # was: nn.CrossEntropyLoss()
    for epoch in range(epochs):
        criterion.set_epoch(epoch)  # the one line more
        for batch in torch.randperm(len(data.x)).split(128):
            optimizer.zero_grad()
            loss = criterion(net(data.x[batch]), data.y[batch])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = net(data.x_test).argmax(dim=1) == data.y_test
        yield 100 * right.double().mean().item()


def run_all(args: argparse.Namespace, data: Data) -> list[dict[str, Any]]:
    """Train every method on every noise with every seed; return a row for each run."""
    rows = []
    runs = list(product(args.noise, range(args.seeds), args.methods))
    columns = "{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as progress:
        bar = progress.add_task("", total=len(runs) * args.epochs)
        for noise, seed, name in runs:
            progress.update(bar, description=f"{noise:8}{name:14}seed {seed}")
            noisy = sigua.corrupt_labels(data.y.numpy(), NOISES[noise].T, seed=seed)
            given = data if name == CEILING else data._replace(y=torch.from_numpy(noisy))
            accuracy = []
            for value in train(make_method(name, NOISES[noise]), given, seed, args.epochs):
                accuracy.append(value)
                progress.advance(bar)
            rows.append({"noise": noise, "method": name, "seed": seed, "accuracy": accuracy})
    return rows


def load(folder: Path | None) -> Data:
    """Return scikit-learn's digits with a stratified quarter held out, or the files in `folder`."""
    if folder is None:
        x, y = load_digits(return_X_y=True)
        x, x_test, y, y_test = train_test_split(x, y, test_size=0.25, stratify=y, random_state=0)
    else:
        x, y = read_idx(folder, "train-images-idx3"), read_idx(folder, "train-labels-idx1")
        x_test, y_test = read_idx(folder, "t10k-images-idx3"), read_idx(folder, "t10k-labels-idx1")
    x, x_test = (torch.tensor(pixels, dtype=torch.float32).flatten(1) for pixels in (x, x_test))
    y, y_test = (torch.tensor(labels, dtype=torch.int64) for labels in (y, y_test))
    return Data(x / x.max(), y, x_test / x.max(), y_test)


def read_idx(folder: Path, name: str) -> np.ndarray:
    """Return the array in an idx file, gzipped or not: 4 bytes, big-endian sizes, then bytes."""
    path = folder / f"{name}-ubyte"
    path = path if path.is_file() else folder / f"{name}-ubyte.gz"
    if not path.is_file():
        advice = "put the four idx files of MNIST or Fashion-MNIST there, gzipped or not"
        raise SystemExit(f"--data: {folder} must hold {name}-ubyte or {path.name}; {advice}")
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    dimensions = int(name[-1])
    if raw[:4] != bytes([0, 0, 8, dimensions]):
        raise SystemExit(f"--data: {path} does not begin as an idx file does; download it again")
    shape = np.frombuffer(raw, ">u4", dimensions, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def curves(rows: list[dict[str, Any]], noise: str, name: str) -> np.ndarray:
    """Return the accuracies of one method on one noise, shape (seeds, epochs)."""
    return np.array([r["accuracy"] for r in rows if (r["noise"], r["method"]) == (noise, name)])


def table(rows: list[dict[str, Any]], noises: list[str], methods: list[str]) -> Table:
    """Return the last epochs' mean accuracy, and its standard deviation over the seeds."""
    grid = Table("method", *noises, title=f"Test accuracy (%), last {LAST} epochs")
    for name in methods:
        ends = [curves(rows, noise, name)[:, -LAST:].mean(axis=1) for noise in noises]
        style = "bold" if name.startswith("SIGUA") else None
        grid.add_row(name, *(f"{end.mean():.1f} ± {end.std():.1f}" for end in ends), style=style)
    return grid


def draw(rows: list[dict[str, Any]], noises: list[str], methods: list[str]) -> Figure:
    """Return a panel for each noise with each method's mean curve and band, named at its end."""
    figure = Figure(figsize=(5 * len(noises), 5), layout="constrained", dpi=120)
    panels = figure.subplots(1, len(noises), sharey=True, squeeze=False)[0]
    panels[0].set_ylabel("accuracy on clean test data (%)", fontsize=12)
    panels[0].set_ylim(min(min(row["accuracy"]) for row in rows) // 10 * 10, 100)
    for panel, noise in zip(panels, noises, strict=True):
        for name in methods:
            mean, std = (f(curves(rows, noise, name), axis=0) for f in (np.mean, np.std))
            width, dash = 2.8 if name.startswith("SIGUA") else 1.6, "--" if name == CEILING else "-"
            panel.plot(mean, dash, color=COLORS[name], linewidth=width)
            band = range(len(mean)), mean - std, mean + std
            panel.fill_between(*band, color=COLORS[name], alpha=0.15, linewidth=0)
        name_ends(panel, {name: curves(rows, noise, name)[:, -LAST:].mean() for name in methods})
        panel.set_title(f"{noise}: {NOISES[noise].rate:.0%} of the labels wrong", fontsize=13)
        panel.set_xlabel("epoch", fontsize=12)
        panel.margins(x=0)
        panel.grid(alpha=0.3)
    return figure


def name_ends(panel: Any, ends: dict[str, float]) -> None:
    """Write names and values beside the curves, in their order and without overlap."""
    bottom, top = panel.get_ylim()
    names = sorted(ends, key=ends.__getitem__)
    steps = 0.053 * (top - bottom) * np.arange(len(names))
    heights = np.maximum.accumulate([ends[name] for name in names] - steps) + steps
    for name, height in zip(names, np.minimum(heights, top - 1 - steps[::-1]), strict=True):
        weight = "bold" if name.startswith("SIGUA") else "normal"
        where = panel.get_yaxis_transform()  # x in widths of the panel, y in data
        look = {"color": COLORS[name], "weight": weight, "fontsize": 11.5, "va": "center"}
        panel.text(1.02, height, f"{name} {ends[name]:.0f}", transform=where, **look)


def positive_integer(text: str) -> int:
    """Read an argument such as --epochs."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def new_file(text: str) -> Path:
    """Read an argument such as --json, and refuse before the training what cannot be written."""
    if Path(text).is_dir() or not Path(text).parent.is_dir():
        raise argparse.ArgumentTypeError(f"must be a file in a folder that exists, got {text}")
    return Path(text)


def main() -> None:
    """Read the command line, train, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="a folder with (Fashion-)MNIST's four files")
    add("--json", type=new_file, metavar="FILE", help="write every run's accuracies here")
    add("--png", type=new_file, metavar="FILE", default="digits.png", help="default: %(default)s")
    for option, known in {"--methods": list(COLORS), "--noise": list(NOISES)}.items():
        add(option, nargs="+", choices=known, default=known, metavar="NAME", help=", ".join(known))
    add("--epochs", type=positive_integer, metavar="N", default=60, help="default: %(default)s")
    add("--seeds", type=positive_integer, metavar="N", default=3, help="default: %(default)s")
    args = parser.parse_args()

    torch.set_num_threads(1)  # more make such small matrices slower
    rows = run_all(args, load(args.data))
    if args.json:
        args.json.write_text(json.dumps(rows))
    Console().print(table(rows, args.noise, args.methods))
    draw(rows, args.noise, args.methods).savefig(args.png, format="png")
    print(f"The curves are in {args.png}.")


if __name__ == "__main__":
    main()
