"""Find the labels that look wrong after a plain training, and go on to forget them.

    python examples/find_and_forget.py

trains a network on scikit-learn's digits with half of the labels wrong until it has memorised
many, ranks the labels by what the network made of them epoch by epoch, takes for suspects those
that stand out, if any do, and goes on training with `sigua.Known`: descend on the rest, climb on
the suspects. It prints test accuracies before and after, beside plain training for as long, and
draws find_and_forget.png.

    python examples/find_and_forget.py --data DIR --noise sym-20 sym-50 pair-45 --seeds 3 --cleanlab

is the benchmark on MNIST: the average precision at finding the flipped labels of our rankings and
of cleanlab's `find_label_issues` on the same networks' probabilities. Needs torch, scikit-learn,
matplotlib, rich and sigua; cleanlab for `--cleanlab`.
"""

import argparse
import copy
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from digits import CLASSES, NOISES, Data, load, new_file, positive_integer
from matplotlib.figure import Figure
from rich.box import MARKDOWN
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.metrics import average_precision_score
from torch import nn

import sigua
from sigua import plot
from sigua.diagnostics import EpochReport
from sigua_torch import SIGUALoss
from sigua_torch.diagnostics import LabelHistory, SelectionMeter

FORGET = sigua.custom(sigua.Known(), gamma=0.001)  # as in the paper's Figure 1

TOLD = {
    "flipped": "wrong labels",
    "suspects": "suspects",
    "of them flipped": "wrong labels among the suspects",
    "before": "test accuracy before",
    "after": "test accuracy after forgetting the suspects",
    "plain": "test accuracy after plain training instead",
    "memorised before": "wrong labels memorised before",
    "memorised after": "wrong labels memorised after forgetting",
}


class Run:
    """A network in training, and what is noted on the way.

    Args:
        data: with the labels as given.
        intact: bool, (n,): whose label is right, for the report only.
        seed: of the network and its mini-batches.
    """

    def __init__(self, data: Data, intact: torch.Tensor, seed: int) -> None:
        torch.manual_seed(seed)
        hidden = nn.Linear(data.x.shape[1], 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
        self.net = nn.Sequential(*hidden, nn.Linear(128, CLASSES))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.data, self.intact = data, intact
        self.history, self.meter = LabelHistory(len(data.x)), SelectionMeter()
        self.reports: list[EpochReport] = []
        self.test: list[float] = []

    def train(self, epochs: int, trusted: torch.Tensor | None = None) -> float:
        """Train plainly, or forgetting what is not trusted; return the last test accuracy."""
        criterion = SIGUALoss(sigua.standard() if trusted is None else FORGET)
        for _ in range(epochs):
            for index in torch.randperm(len(self.data.x)).split(128):
                logits, y = self.net(self.data.x[index]), self.data.y[index]
                self.optimizer.zero_grad()
                marks = None if trusted is None else trusted[index]
                loss = criterion(logits, y, trusted=marks)
                loss.backward()
                self.optimizer.step()
                self.history.update(index, logits, y)
                intact = self.intact[index]
                self.meter.update(criterion.split, intact=intact, logits=logits, target=y)
            self.history.end_epoch()
            self.reports.append(self.meter.report())
            right = self.probabilities(self.data.x_test).argmax(axis=1) == self.data.y_test.numpy()
            self.test.append(float(right.mean()))
        return self.test[-1]

    def probabilities(self, x: torch.Tensor) -> np.ndarray:
        """Return what a pass after the training gives, float64, (n, k)."""
        with torch.no_grad():
            return self.net(x).double().softmax(dim=1).numpy()


def rankings(run: Run, with_cleanlab: bool) -> dict[str, sigua.LabelIssues | np.ndarray]:
    """Return by name ours, and the order of cleanlab's, most suspicious first."""
    p, y = run.probabilities(run.data.x), run.data.y.numpy()
    found: dict[str, Any] = {
        "margins, epochs": sigua.rank_label_issues(margins=run.history.margins, labels=y),
        "losses, epochs": sigua.rank_label_issues(run.history.losses),
        "margins, last pass": sigua.rank_label_issues(margins=sigua.label_margins(p, y)),
        "losses, last pass": sigua.rank_label_issues(sigua.label_losses(p, y)),
    }
    for by in ("normalized_margin", "self_confidence") if with_cleanlab else ():
        found[f"cleanlab, {by}"] = cleanlab_order(y, p, by)
    return found


def cleanlab_order(y: np.ndarray, p: np.ndarray, by: str) -> np.ndarray:
    """Return the order of `find_label_issues`, and of what it does not return by the same score."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    issues = find_label_issues(y, p, return_indices_ranked_by=by, n_jobs=1)
    rest = get_label_quality_scores(y, p, method=by).argsort(kind="stable")
    return np.concatenate([issues, rest[~np.isin(rest, issues)]])


def precision_of(order: np.ndarray, flipped: np.ndarray) -> float:
    """Return the average precision, in [0, 1], at finding what was flipped."""
    return float(average_precision_score(flipped[order], -np.arange(len(order))))


def find_and_forget(
    noise: str, seed: int, data: Data, args: argparse.Namespace
) -> tuple[Run, dict[str, Any]]:
    """Train, rank, and go on in two ways; return the run that forgot, and all numbers."""
    noisy = sigua.corrupt_labels(data.y.numpy(), NOISES[noise].T, seed=seed)
    flipped = noisy != data.y.numpy()
    run = Run(data._replace(y=torch.from_numpy(noisy)), torch.from_numpy(~flipped), seed)
    row: dict[str, Any] = {"noise": noise, "seed": seed, "flipped": float(flipped.mean())}
    row["before"] = run.train(args.epochs)
    found = rankings(run, args.cleanlab)
    orders = {name: getattr(ranked, "order", ranked) for name, ranked in found.items()}
    row["average precision"] = {
        name: precision_of(order, flipped) for name, order in orders.items()
    }
    suspects = found["margins, epochs"].suspects
    row["suspects"] = float(suspects.mean())
    row["of them flipped"] = float(flipped[suspects].mean()) if suspects.any() else None
    plain = copy.deepcopy(run)
    torch.manual_seed(seed)  # the same mini-batches for both
    row["plain"] = plain.train(args.forget)
    torch.manual_seed(seed)
    row["after"] = run.train(args.forget, torch.from_numpy(~suspects))
    row["memorised before"], row["memorised after"] = (
        run.reports[epoch].accuracy_flipped for epoch in (args.epochs - 1, -1)
    )
    return run, row


def accuracies(rows: list[dict[str, Any]]) -> Table:
    """Return the story as a table: means over the seeds, in %."""
    grid = Table("", *dict(by_noise(rows)), box=MARKDOWN, title="Shares and test accuracies (%)")
    for key in TOLD:
        columns = [[row[key] for row in group] for _, group in by_noise(rows)]
        grid.add_row(TOLD[key], *map(percent, columns))
    return grid


def percent(shares: list[float | None]) -> str:
    """Return their mean in %; a dash where a share is of nobody."""
    return "-" if None in shares else f"{100 * np.mean(shares):.1f}"


def precisions(rows: list[dict[str, Any]]) -> Table:
    """Return the average precisions as a table: mean and range over the seeds, in %."""
    names = list(rows[0]["average precision"])
    title = "Average precision (%) at finding the wrong labels"
    grid = Table("ranking", *dict(by_noise(rows)), box=MARKDOWN, title=title)
    for name in names:
        cells = []
        for _, group in by_noise(rows):
            values = [100 * row["average precision"][name] for row in group]
            cells.append(f"{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})")
        grid.add_row(name, *cells)
    return grid


def by_noise(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each noise and its rows."""
    for noise in dict.fromkeys(row["noise"] for row in rows):
        yield noise, [row for row in rows if row["noise"] == noise]


def draw(run: Run, epochs: int) -> Figure:
    """Return the three curves over the whole run, and the losses at the end of the first part."""
    figure = Figure(figsize=(12, 4.6), layout="constrained", dpi=120)
    left, right = figure.subplots(1, 2)
    intact, flipped = (
        [getattr(report, name) for report in run.reports]
        for name in ("accuracy_intact", "accuracy_flipped")
    )
    plot.memorisation(intact=intact, flipped=flipped, test=run.test, ax=left)
    left.axvline(epochs - 0.5, color="black", linewidth=1)
    left.set_title("plain training, and then forgetting the suspects")
    losses = run.history.losses[:epochs].mean(axis=0)
    plot.loss_histogram(losses, ~run.intact.numpy(), ax=right)
    right.set_title("losses, mean over the plain epochs")
    return figure


def run_all(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run each noise with each seed, write a line for each, and draw the first."""
    torch.set_num_threads(1)
    data, rows = load(args.data), []
    for noise, seed in track(list(product(args.noise, range(args.seeds))), "training"):
        run, row = find_and_forget(noise, seed, data, args)
        rows.append(row)
        if len(rows) == 1:
            draw(run, args.epochs).savefig(args.png, format="png")
        if args.json:
            lines = (json.dumps(row) + "\n" for row in rows)
            args.json.write_text("".join(lines), encoding="utf-8")
    return rows


def main() -> None:
    """Read the command line, run, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="a folder with MNIST's four files")
    add("--noise", nargs="+", choices=list(NOISES), default=["sym-50"], metavar="NAME")
    add("--epochs", type=positive_integer, metavar="N", help="before: 60, or 10 on MNIST")
    add("--forget", type=positive_integer, metavar="N", help="after: 30, or 5 on MNIST")
    add("--seeds", type=positive_integer, metavar="N", default=1, help="default: %(default)s")
    add("--cleanlab", action="store_true", help="compare with cleanlab's rankings")
    add("--json", type=new_file, metavar="FILE", help="write a line for each run here")
    add("--table", type=Path, metavar="FILE", help="print the tables of these lines, and end")
    add("--png", type=new_file, metavar="FILE", default="find_and_forget.png")
    args = parser.parse_args()
    args.epochs = args.epochs or (10 if args.data else 60)
    args.forget = args.forget or (5 if args.data else 30)

    if args.table is None:
        rows = run_all(args)
    else:
        rows = [json.loads(line) for line in args.table.read_text(encoding="utf-8").splitlines()]
    console = Console(width=120)  # Markdown tables, in one piece
    console.print(accuracies(rows))
    console.print(precisions(rows))


if __name__ == "__main__":
    main()
