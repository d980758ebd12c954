"""What wrong labels from people cost: music genres by crowd workers, twelve methods, one command.

    python examples/human.py --data DIR [--json FILE] [--folds]

`DIR` holds the three files of Rodrigues, Pereira and Ribeiro (2013), "Gaussian process
classification and active learning with multiple annotators": `music_genre_gold.csv` and
`music_genre_mturk.csv`, 700 songs with their true genre and 2,945 votes of 44 workers, and
`music_genre_test.csv`, 300 songs to test on. A label is one random vote of a song, or the majority
of its votes, ties broken at random.

All methods share network, optimiser and epochs. They, and the warm-up of SIGUA_AG, were chosen by
`--folds`: five folds of the 700 songs, scored by the votes on the songs left out, the true genres
unseen. The test songs were used once, at the end. Needs torch, joblib, rich and sigua.
"""

import argparse
import csv
import json
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from comparison.elr import EarlyLearning
from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

import sigua
from sigua_torch import SIGUALoss
from sigua_torch.losses import generalized_cross_entropy

GENRES = 10
EPOCHS = 100
LAST = 10  # epochs whose accuracy is averaged
CLEAN = "clean labels"
METHODS = {  # and what each is told
    "standard": "nothing",
    "GCE": "nothing",
    "ELR": "nothing",
    "SIGUA_AG": "nothing",
    "SIGUA_AG, by_class=False": "nothing",
    "SIGUA_AG, power=1": "nothing",
    "self-teaching": "noise rate",
    "SIGUA_SL": "noise rate",
    "forward": "T",
    "SIGUA_BC": "T",
    "floor on forward": "T",
    CLEAN: "every label",
}


class Songs(NamedTuple):
    """Features, (n, 124), genres, (n,), and the votes for each song."""

    x: np.ndarray
    y: np.ndarray
    votes: list[list[int]]
    x_test: np.ndarray
    y_test: np.ndarray


def load(folder: Path) -> Songs:
    """Return the songs, features standardised by the 700."""
    tables = {}
    for name in ("gold", "mturk", "test"):
        with (folder / f"music_genre_{name}.csv").open(newline="") as file:
            tables[name] = list(csv.DictReader(file))
    number = {genre: i for i, genre in enumerate(sorted({row["class"] for row in tables["gold"]}))}
    columns = [name for name in tables["gold"][0] if name.startswith("feature")]
    x, x_test = (
        np.array([[float(row[column]) for column in columns] for row in tables[name]], np.float32)
        for name in ("gold", "test")
    )
    y, y_test = (np.array([number[row["class"]] for row in tables[n]]) for n in ("gold", "test"))
    votes: dict[str, list[int]] = {row["id"]: [] for row in tables["gold"]}
    for row in tables["mturk"]:
        votes[row["id"]].append(number[row["class"]])
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    x, x_test = (x - mean) / deviation, (x_test - mean) / deviation
    return Songs(x, y, list(votes.values()), x_test, y_test)


def draw_labels(votes: list[list[int]], kind: str, seed: int) -> np.ndarray:
    """Return a label for each song: one random vote, or the majority of all."""
    generator = np.random.default_rng(seed)
    if kind == "majority":
        counts = [np.bincount(own, minlength=GENRES) for own in votes]
        votes = [np.flatnonzero(count == count.max()).tolist() for count in counts]
    return np.array([generator.choice(own) for own in votes])


def make_criterion(name: str, labels: np.ndarray, true: np.ndarray, warmup: float) -> nn.Module:
    """Return a criterion that is told the noise rate or T as they really are, or nothing."""
    rate = float((labels != true).mean())
    counts = np.bincount(true * GENRES + labels, minlength=GENRES**2).reshape(GENRES, GENRES)
    T = sigua.TransitionMatrix(counts / counts.sum(axis=1, keepdims=True))
    if name == "ELR":
        return EarlyLearning(len(labels), GENRES)
    loss = generalized_cross_entropy if name == "GCE" else nn.CrossEntropyLoss()
    method = {
        "SIGUA_AG": lambda: sigua.sigua_ag(warmup),
        "SIGUA_AG, by_class=False": lambda: sigua.sigua_ag(warmup, by_class=False),
        "SIGUA_AG, power=1": lambda: sigua.sigua_ag(warmup, power=1),
        "self-teaching": lambda: sigua.self_teaching(rate),
        "SIGUA_SL": lambda: sigua.sigua_sl(rate, delta=0.3 * rate),
        "forward": lambda: sigua.forward_correction(T),
        "SIGUA_BC": lambda: sigua.sigua_bc(T),
        "floor on forward": lambda: sigua.custom(
            sigua.NoiseFloor(sigua.noise_floor(T)), 1.0, "forward", T
        ),
    }.get(name, sigua.standard)()
    return SIGUALoss(method, loss)


def train(
    criterion: nn.Module,
    x: np.ndarray,
    labels: np.ndarray,
    x_test: np.ndarray,
    seed: int,
    width: int,
    dropout: float,
) -> np.ndarray:
    """Return the genres predicted for `x_test` after each of the last epochs, (LAST, n)."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    hidden = nn.Linear(x.shape[1], width), nn.ReLU(), nn.Dropout(dropout)
    hidden += nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout)
    net = nn.Sequential(*hidden, nn.Linear(width, GENRES))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    inputs, targets, unseen = torch.tensor(x), torch.tensor(labels), torch.tensor(x_test)
    predicted = []
    for epoch in range(EPOCHS):
        criterion.set_epoch(epoch)
        net.train()
        for batch in torch.randperm(len(inputs)).split(64):
            index = (batch,) if isinstance(criterion, EarlyLearning) else ()
            optimizer.zero_grad()
            criterion(net(inputs[batch]), targets[batch], *index).backward()
            optimizer.step()
        if epoch >= EPOCHS - LAST:
            net.eval()
            with torch.no_grad():
                predicted.append(net(unseen).argmax(dim=1).numpy())
    return np.array(predicted)


def test(songs: Songs, args: argparse.Namespace, kind: str, seed: int, name: str) -> dict[str, Any]:
    """Train on all 700 songs and return the accuracy on the 300 test songs, in %."""
    labels = songs.y if name == CLEAN else draw_labels(songs.votes, kind, seed)
    criterion = make_criterion(name, labels, songs.y, args.warmup)
    knobs = args.width, args.dropout
    predicted = train(criterion, songs.x, labels, songs.x_test, seed, *knobs)
    accuracy = 100 * float((predicted == songs.y_test).mean())
    return {"labels": kind, "seed": seed, "method": name, "accuracy": accuracy}


def fold(songs: Songs, args: argparse.Namespace, kind: str, seed: int, name: str) -> dict[str, Any]:
    """Return the accuracy, by votes, on each fifth of the songs after training on the others."""
    labels = draw_labels(songs.votes, kind, seed)
    order = np.random.default_rng(seed).permutation(len(labels))
    shares = []
    for part in np.array_split(order, 5):
        rest = np.setdiff1d(order, part)
        criterion = make_criterion(name, labels[rest], songs.y[rest], args.warmup)
        knobs = args.width, args.dropout
        predicted = train(criterion, songs.x[rest], labels[rest], songs.x[part], seed, *knobs)
        shares.append((predicted == labels[part]).mean())
    return {"labels": kind, "seed": seed, "method": name, "accuracy": 100 * float(np.mean(shares))}


def table(rows: list[dict[str, Any]]) -> Table:
    """Return mean accuracies and their standard deviations over the seeds."""
    kinds = list(dict.fromkeys(row["labels"] for row in rows))
    grid = Table("method", "told", *kinds, title="Accuracy (%)")
    for name, told in METHODS.items():
        cells = []
        for kind in kinds:
            own = [r["accuracy"] for r in rows if (r["labels"], r["method"]) == (kind, name)]
            cells.append(f"{np.mean(own):.1f} ± {np.std(own):.1f}" if own else "-")
        if any(cell != "-" for cell in cells):
            grid.add_row(name, told, *cells)
    return grid


def main() -> None:
    """Read the command line, train, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", required=True)
    add("--json", type=Path, metavar="FILE", help="write every run's accuracy here")
    add("--folds", action="store_true", help="score by folds of the 700 and their votes")
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME")
    add("--seeds", type=int, default=5)
    add("--jobs", type=int, default=1, help="processes")
    add("--warmup", type=float, default=20, help="of SIGUA_AG, in epochs; default: %(default)s")
    add("--width", type=int, default=256, help="of the network; default: %(default)s")
    add("--dropout", type=float, default=0.5, help="default: %(default)s")
    args = parser.parse_args()
    songs = load(args.data)
    runs = list(product(["one vote", "majority"], range(args.seeds), args.methods))
    pool = Parallel(n_jobs=args.jobs, return_as="generator")
    score = fold if args.folds else test
    work = pool(delayed(score)(songs, args, *run) for run in runs)
    rows = list(track(work, "train", total=len(runs)))
    if args.json:
        args.json.write_text("".join(json.dumps(row) + "\n" for row in rows))
    Console().print(table(rows))


if __name__ == "__main__":
    main()
