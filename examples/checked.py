"""How many checked labels are enough to count T, to choose a method, and to train on them?

    python examples/checked.py --json checked.jsonl

trains a small network on 2,000 examples of 4, 10 and 20 classes, 40 % of each class mistaken for
the next one, or for any, or labelled by keyword rules, with 2 to 40 checked labels a class. About
twenty minutes on a CPU. `--table FILE` turns the lines into a table again without any training.
Needs torch, scikit-learn and sigua.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

import sigua
from sigua_torch import SIGUALoss

sys.path.insert(0, str(Path(__file__).parent / "real"))
from data import Data, rules, standardised

KINDS, CLASSES, PER_CLASS = ["pair-40", "sym-40", "rules"], [4, 10, 20], [2, 5, 10, 20, 40]
TRAINED, POOL, EPOCHS, BATCH, CHECKED_BATCH = 2000, 800, 30, 64, 32
COLUMNS = ["plain", "agreement", "T", "T and half", "T and half, twice", "by noisy", "by checked"]


def make(kind: str, k: int, seed: int) -> Data:
    """Return examples to train on, then a pool of others of which some are checked."""
    if kind == "rules":
        return rules(seed, 0.36, k, TRAINED + POOL)
    rng, n = np.random.default_rng(seed), TRAINED + POOL
    centres = rng.standard_normal((k, 40))
    centres *= 3.0 / np.linalg.norm(centres, axis=1, keepdims=True)
    true = rng.integers(0, k, n + 2000)
    x = centres[true] + rng.standard_normal((len(true), 40))
    noise = sigua.TransitionMatrix.pair if kind == "pair-40" else sigua.TransitionMatrix.symmetric
    given = sigua.corrupt_labels(true, noise(0.4, k), seed=seed)
    return standardised(x[:n], given[:n], true[:n], x[n:], true[n:])


class Curves(NamedTuple):
    """What is predicted in the pool after each epoch, (epochs, POOL), and test accuracies in %."""

    pool: np.ndarray
    test: np.ndarray

    def at(self, labels: np.ndarray, rows: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the test accuracy where labels of the pool choose the epoch, and who is right."""
        right = self.pool[:, rows] == labels[TRAINED:][rows]
        smooth = np.convolve(right.mean(axis=1), np.ones(3) / 3, "valid")
        epoch = int(smooth.argmax()) + 1
        return float(self.test[epoch]), right[epoch]


def train(
    data: Data,
    rows: np.ndarray,
    labels: np.ndarray,
    method: sigua.Method,
    seed: int,
    checked: np.ndarray | None = None,
) -> Curves:
    """Train on rows with these labels, and on a few of the checked in each mini-batch."""
    torch.manual_seed(seed)
    k, d = int(data.true.max()) + 1, data.x.shape[1]
    net = torch.nn.Sequential(torch.nn.Linear(d, 128), torch.nn.ReLU(), torch.nn.Linear(128, k))
    optimizer, criterion = torch.optim.Adam(net.parameters(), lr=1e-3), SIGUALoss(method)
    x, y = torch.from_numpy(data.x[rows]), torch.from_numpy(labels)
    judged = torch.from_numpy(np.concatenate([data.x[TRAINED:], data.x_test]))
    predicted = []
    for epoch in range(EPOCHS):
        criterion.set_epoch(epoch)
        for batch in torch.randperm(len(y)).split(BATCH):
            optimizer.zero_grad()
            loss = criterion(net(x[batch]), y[batch])
            if checked is not None:
                some = checked[torch.randint(len(checked), (CHECKED_BATCH,)).numpy()]
                true = torch.from_numpy(data.true[some])
                loss = loss + F.cross_entropy(net(torch.from_numpy(data.x[some])), true)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            predicted.append(net(judged).argmax(dim=1).numpy())
    all_epochs = np.array(predicted)
    test = 100 * (all_epochs[:, POOL:] == data.y_test).mean(axis=1)
    return Curves(all_epochs[:, :POOL], test)


def run(kind: str, k: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of checked labels: the error of T, and accuracies in %."""
    data, rows = make(kind, k, seed), np.arange(TRAINED)
    given, exact = data.given[rows], sigua.count_transition(data.given, data.true, k)
    plain, agreement = (
        train(data, rows, given, method, seed) for method in (sigua.standard(), sigua.sigua_ag())
    )
    for m in (per * k for per in PER_CLASS if per * k <= POOL):
        places, half = np.arange(m), np.arange(m)[1::2]
        checked = TRAINED + places
        T = sigua.count_transition(data.given[checked], data.true[checked], k)
        forward, trained = sigua.forward_correction(T), checked[::2]
        with_t = train(data, rows, given, forward, seed)
        together = train(data, rows, given, forward, seed, trained)
        both = np.concatenate([rows, trained]), np.concatenate([given, data.true[trained]])
        twice = train(data, *both, forward, seed, trained)
        found = [curves.at(data.true, places)[0] for curves in (plain, agreement, with_t)]
        found += [curves.at(data.true, half)[0] for curves in (together, twice)]
        for labels in (data.given, data.true):
            tried = [curves.at(labels, places) for curves in (plain, agreement, with_t)]
            found.append(tried[ahead([right for _, right in tried])][0])
        error = 0.5 * np.abs(T.rows - exact.rows).sum(axis=1).mean()
        place = {
            "kind": kind,
            "k": k,
            "seed": seed,
            "per class": m // k,
            "error of T": float(error),
        }
        yield place | dict(zip(COLUMNS, found, strict=True))


def ahead(right: list[np.ndarray]) -> int:
    """Return who predicts the most labels: the first unless by more than a standard error."""
    gains = [each.astype(float) - right[0] for each in right]
    best = int(np.argmax([gain.mean() for gain in gains]))
    error = gains[best].std(ddof=1) / len(gains[best]) ** 0.5
    return best if gains[best].mean() > error else 0


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table of means over the seeds."""
    heads = ["errors", "classes", "checked", "error of T", *COLUMNS]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for kind, k, per in product(KINDS, CLASSES, PER_CLASS):
        group = [row for row in rows if (row["kind"], row["k"], row["per class"]) == (kind, k, per)]
        if group:
            error = np.mean([row["error of T"] for row in group])
            means = [f"{np.mean([row[name] for row in group]):.1f}" for name in COLUMNS]
            lines.append(
                f"| {' | '.join([kind, str(k), f'{k} x {per}', f'{error:.2f}', *means])} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Read the command line, run, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--json", type=Path, metavar="FILE", default="checked.jsonl", help="%(default)s")
    add("--seeds", type=int, default=2, metavar="N", help="default: %(default)s")
    add("--table", type=Path, metavar="FILE", help="print the table of these lines, and end")
    args = parser.parse_args()
    if args.table is None:
        torch.set_num_threads(1)
        with args.json.open("w", encoding="utf-8") as lines:
            for seed, kind, k in product(range(args.seeds), KINDS, CLASSES):
                lines.writelines(json.dumps(row) + "\n" for row in run(kind, k, seed))
    text = (args.table or args.json).read_text(encoding="utf-8")
    print(table([json.loads(line) for line in text.splitlines()]))


if __name__ == "__main__":
    main()
