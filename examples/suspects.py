"""Which labels are wrong, and what is gained by training without them? Ours beside cleanlab's.

    python examples/suspects.py

trains a network on labels of which some are wrong, by many kinds of noise, and none at all, and
takes lists of suspects of `sigua.rank_label_issues`:

- "untold": from margins noted in plain training, without a noise rate;
- "diagnosed": the same, or if there are none, with the lower end of what the model rejects where
  it is most confident, by `sigua.diagnose`;
- "agreement": with that rate, from margins noted in training with agreement;

and that of cleanlab's `find_label_issues`. Diagnosis and cleanlab need out-of-fold probabilities,
here of the same network. It reports the precision and recall of each list, and test accuracies,
balanced ones too: of the plain training, and of fresh ones without the suspects, or forgetting them
(`Known`, gamma 0.001).

    python examples/suspects.py --data mnist=DIR fashion=DIR --json suspects.jsonl

adds MNIST and Fashion-MNIST, 4,000 images of each. Needs torch, scikit-learn, matplotlib, rich,
cleanlab and sigua.
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from cleanlab.filter import find_label_issues
from digits import Data, load, new_file, positive_integer
from rich.box import MARKDOWN
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

import sigua
from sigua import TransitionMatrix
from sigua_torch import SIGUALoss
from sigua_torch.diagnostics import LabelHistory

IMAGES = 4_000  # of MNIST and of Fashion-MNIST
LAST = 5  # epochs whose test accuracy is averaged
FOLDS = 3
FORGET = sigua.custom(sigua.Known(), gamma=0.001)  # as in the paper's Figure 1
LISTS = ["untold", "diagnosed", "agreement", "cleanlab"]
WAYS = {  # a fresh training: whose suspects, and whether it climbs on them instead of going without
    **{f"without {name}": (name, False) for name in LISTS},
    **{f"forgetting {name}": (name, True) for name in LISTS},
    "without the wrong ones": ("wrong", False),
}


class Accuracy(NamedTuple):
    """In %, of all test examples, and the mean over the classes."""

    of_all: float
    balanced: float


class Case(NamedTuple):
    """What is trained on, and for how long; out of fold for half of that."""

    data: str
    noise: str
    epochs: int
    network: str = "MLP"


CASES = [
    Case("digits", "clean", 40),
    Case("digits", "symmetric 20", 40),
    Case("digits", "symmetric 50", 40),
    Case("digits", "pair 45", 40),
    Case("digits", "look-alikes 40", 40),
    Case("overlapping classes", "clean", 20),
    Case("overlapping classes", "symmetric 30", 20),
    Case("a rare class", "clean", 20),
    Case("breast cancer", "symmetric 20", 40),
    Case("mnist", "clean", 12),
    Case("mnist", "symmetric 50", 12),
    Case("mnist", "by looks 30", 12),
    Case("mnist", "pair 45", 12),
    Case("fashion", "clean", 12),
    Case("fashion", "clean", 10, "CNN"),
    Case("fashion", "symmetric 30", 12),
    Case("fashion", "look-alikes 27", 12),
    Case("fashion", "look-alikes 27", 10, "CNN"),
]
# T-shirt and shirt, pullover and coat, sneaker and boot; digits are confused as these are.
LOOK_ALIKES = (0, 6), (2, 4), (7, 9)


def load_case(name: str, folders: dict[str, Path], seed: int) -> Data:
    """Return a data set by name, with clean labels."""
    if name == "digits":
        return load(None)
    if name in folders:
        data = load(folders[name])
        rows = np.random.default_rng(seed).permutation(len(data.x))[:IMAGES]
        return data._replace(x=data.x[rows], y=data.y[rows])
    if name == "breast cancer":
        x, y = load_breast_cancer(return_X_y=True)
    elif name == "a rare class":
        options: dict[str, Any] = {"n_informative": 4, "weights": [0.9, 0.1], "class_sep": 0.3}
        x, y = make_classification(6000, 10, flip_y=0, random_state=seed, **options)
    else:
        options = {"n_informative": 10, "n_classes": 5, "flip_y": 0}
        x, y = make_classification(6000, 20, random_state=seed, **options)
    parts = train_test_split(x, y, test_size=0.4, stratify=y, random_state=seed)
    scaler = StandardScaler().fit(parts[0])
    x, x_test = (torch.tensor(scaler.transform(part)).float() for part in parts[:2])
    return Data(x, torch.tensor(parts[2]), x_test, torch.tensor(parts[3]))


def corrupt(noise: str, data: Data, seed: int) -> np.ndarray:
    """Return the labels with as many percent wrong as the noise's name says (not look-alikes)."""
    y, k = data.y.numpy(), int(data.y.max()) + 1
    if noise == "clean":
        return y
    kind, percent = noise.rsplit(" ", 1)
    rate = int(percent) / 100
    if kind == "by looks":
        return sigua.corrupt_labels_by_instance(data.x.numpy(), y, rate, k, seed)
    if kind == "look-alikes":
        swaps = {a: b for pair in LOOK_ALIKES for a, b in (pair, pair[::-1])}
        T = sigua.mapped_transition(swaps, rate, k)
    else:
        T = getattr(TransitionMatrix, kind)(rate, k)
    return sigua.corrupt_labels(y, T, seed)


def make_network(kind: str, inputs: int, classes: int) -> nn.Module:
    """Return a network that can memorise: two hidden layers, or two convolutions."""
    if kind == "MLP":
        hidden = nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
        return nn.Sequential(*hidden, nn.Linear(128, classes))
    first = nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.ReLU()
    second = nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*first, *second, nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, classes))


def train(
    case: Case,
    data: Data,
    seed: int,
    epochs: int,
    *,
    history: LabelHistory | None = None,
    forget: np.ndarray | None = None,
    method: sigua.Method | None = None,
) -> tuple[nn.Module, Accuracy]:
    """Return a network trained on the labels in `data`, and its test accuracy.

    Plainly, unless with a method; labels to forget are climbed on, slowly. A history records all.
    """
    torch.manual_seed(seed)
    net = make_network(case.network, data.x.shape[1], int(data.y_test.max()) + 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    criterion = SIGUALoss(method or (sigua.standard() if forget is None else FORGET))
    trusted = None if forget is None else torch.from_numpy(~forget)
    accuracies = []
    size = 128 if len(data.x) > 1000 else 32
    for epoch in range(epochs):
        criterion.set_epoch(epoch)
        for index in torch.randperm(len(data.x)).split(size):
            logits, y = net(data.x[index]), data.y[index]
            optimizer.zero_grad()
            criterion(logits, y, trusted=None if trusted is None else trusted[index]).backward()
            optimizer.step()
            if history is not None:
                history.update(index, logits, y)
        if history is not None:
            history.end_epoch()
        if epoch >= epochs - LAST:
            predicted, y_test = probabilities(net, data.x_test).argmax(axis=1), data.y_test.numpy()
            right = (predicted == y_test).mean(), balanced_accuracy_score(y_test, predicted)
            accuracies.append(right)
    return net, Accuracy(*(100 * np.mean(accuracies, axis=0)).tolist())


def probabilities(net: nn.Module, x: torch.Tensor) -> np.ndarray:
    """Return float64, (n, k)."""
    with torch.no_grad():
        return net(x).double().softmax(dim=1).numpy()


def out_of_fold(case: Case, data: Data, seed: int) -> np.ndarray:
    """Return probabilities of networks that have not seen the label, stopped at half time."""
    p = np.zeros((len(data.x), int(data.y_test.max()) + 1))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    for seen, unseen in folds.split(data.x, data.y):
        part = data._replace(x=data.x[seen], y=data.y[seen])
        net, _ = train(case, part, seed, max(case.epochs // 2, 1))
        p[unseen] = probabilities(net, data.x[unseen])
    return p


def find_suspects(
    case: Case, data: Data, seed: int
) -> tuple[dict[str, np.ndarray], sigua.LabelIssues, Accuracy]:
    """Return the lists by name, the issues without a rate, and plain training's accuracy."""
    n, noisy = len(data.y), data.y.numpy()
    p = out_of_fold(case, data, seed)
    rate = sigua.diagnose(p, noisy).surest.low
    plainly, agreeing = LabelHistory(n), LabelHistory(n)
    _, plain = train(case, data, seed, case.epochs, history=plainly)
    agreement = sigua.sigua_ag(warmup=case.epochs / 2)
    train(case, data, seed, case.epochs, history=agreeing, method=agreement)

    def by_rate(history: LabelHistory) -> np.ndarray:
        return sigua.rank_label_issues(margins=history.margins, noise_rate=rate).suspects

    issues = sigua.rank_label_issues(margins=plainly.margins, labels=noisy)
    lists = {
        "untold": issues.suspects,
        "diagnosed": issues.suspects if issues.count else by_rate(plainly),
        "agreement": by_rate(agreeing),
        "cleanlab": find_label_issues(noisy, p, n_jobs=1),
    }
    return lists, issues, plain


def study(case: Case, seed: int, folders: dict[str, Path]) -> dict[str, Any]:
    """Return the numbers of one case and seed: shares, and a pair of accuracies for each way."""
    clean = load_case(case.data, folders, seed)
    noisy = corrupt(case.noise, clean, seed)
    data = clean._replace(y=torch.from_numpy(noisy))
    lists, issues, plain = find_suspects(case, data, seed)
    lists["wrong"] = wrong = noisy != clean.y.numpy()
    row: dict[str, Any] = case._asdict() | {"seed": seed, "wrong": float(wrong.mean())}
    row["said"] = issues.precision if issues.count else None
    row["plain"] = plain
    for name in LISTS:
        right = int((wrong & lists[name]).sum())
        row[name] = [int(lists[name].sum()), right, int(wrong.sum()), len(wrong)]
    for way, (name, climb) in WAYS.items():
        suspects = lists[name]
        if not suspects.any():  # the very same training
            row[way] = plain
        elif climb:
            _, row[way] = train(case, data, seed, case.epochs, forget=suspects)
        else:
            kept = data._replace(x=data.x[~suspects], y=data.y[~suspects])
            _, row[way] = train(case, kept, seed, case.epochs)
    return row


def lists_table(groups: list[list[dict[str, Any]]]) -> Table:
    """Return how many were named, precision and recall, over all seeds, in %."""
    columns = [f"{of}: {what}" for of in LISTS for what in ("named", "P", "R")]
    columns.insert(2, "untold: P said")
    title = "Suspects: their share, precision P and recall R (%)"
    grid = Table("labels", "wrong", *columns, box=MARKDOWN, title=title)
    for group in groups:
        cells = [f"{100 * np.mean([row['wrong'] for row in group]):.0f}"]
        for of in LISTS:
            named, found, wrong, n = np.sum([row[of] for row in group], axis=0)
            cells.append(f"{100 * named / n:.1f}")
            cells.append(f"{100 * found / named:.0f}" if named else "-")
            if of == "untold":
                said = [row["said"] for row in group if row["said"] is not None]
                cells.append(f"{100 * np.mean(said):.0f}" if said else "-")
            cells.append(f"{100 * found / wrong:.0f}" if wrong else "-")
        grid.add_row(name_of(group[0]), *cells)
    return grid


def accuracies_table(groups: list[list[dict[str, Any]]]) -> Table:
    """Return the mean accuracies, and the largest loss against plain training with one seed."""
    title = f"Test accuracy, balanced accuracy (%), mean of the last {LAST} epochs and of the seeds"
    ways = ["plain", *WAYS]
    grid = Table("labels", *ways, box=MARKDOWN, title=title)
    for group in groups:
        means = (np.mean([row[way] for row in group], axis=0) for way in ways)
        grid.add_row(name_of(group[0]), *(f"{of_all:.1f}, {each:.1f}" for of_all, each in means))
    lost = {
        way: np.array([np.subtract(row[way], row["plain"]) for group in groups for row in group])
        for way in ways
    }
    worst = (
        f"{of_all:.1f}, {each:.1f}" for of_all, each in (lost[way].min(axis=0) for way in ways)
    )
    grid.add_row("most lost against plain, one seed", *worst)
    return grid


def name_of(row: dict[str, Any]) -> str:
    """Return a case in words."""
    network = f", {row['network']}" if row["network"] != "MLP" else ""
    return f"{row['data']}, {row['noise']}{network}"


def grouped(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the rows of each case."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(name_of(row), []).append(row)
    return list(groups.values())


def run_all(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for each case of data at hand, and seed."""
    torch.set_num_threads(1)
    folders = dict(args.data)
    cases = [
        case for case in CASES if case.data not in ("mnist", "fashion") or case.data in folders
    ]
    todo = list(product(cases, range(args.seeds)))
    for case, seed in track(todo, "training", console=Console(stderr=True)):
        if args.epochs:
            case = case._replace(epochs=args.epochs)
        yield study(case, seed, folders)


def named_folder(text: str) -> tuple[str, Path]:
    """Read an argument such as mnist=DIR."""
    name, _, folder = text.partition("=")
    if name not in ("mnist", "fashion") or not Path(folder).is_dir():
        raise argparse.ArgumentTypeError(f"must be mnist=DIR or fashion=DIR, got {text}")
    return name, Path(folder)


def main() -> None:
    """Read the command line, run, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=named_folder, nargs="+", default=[], metavar="NAME=DIR", help="mnist=DIR")
    add("--seeds", type=positive_integer, metavar="N", default=3, help="default: %(default)s")
    add("--epochs", type=positive_integer, metavar="N", help="10 to 40, by the data")
    add("--json", type=new_file, metavar="FILE", help="write a line for each run here")
    add("--table", type=Path, metavar="FILE", help="print the tables of these lines, and end")
    args = parser.parse_args()

    if args.table is None:
        rows = []
        for row in run_all(args):
            rows.append(row)
            if args.json:
                lines = (json.dumps(row) + "\n" for row in rows)
                args.json.write_text("".join(lines), encoding="utf-8")
    else:
        rows = [json.loads(line) for line in args.table.read_text(encoding="utf-8").splitlines()]
    console = Console(width=300)  # Markdown tables, in one piece
    console.print(lists_table(grouped(rows)))
    console.print(accuracies_table(grouped(rows)))
    if args.table is None:
        print(f"{time.process_time():.0f} seconds of CPU time.")


if __name__ == "__main__":
    main()
