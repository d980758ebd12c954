"""Choose gamma and delta of SIGUA_SL on validation data whose labels are wrong, too.

    python examples/tune.py

The paper says that gamma should be tuned carefully on validation data, and real validation data
have the noise of the training data. Half of the labels of scikit-learn's digits are corrupted; a
quarter of those digits is set aside, noisy labels and all; Optuna tries gammas and deltas by the
accuracy on it and gives up early on the hopeless. Noisy accuracy is lower than the clean one, but
for noise that depends on the class alone it ranks models alike, as long as T's diagonal dominates.
Where errors follow from the input (`sigua.diagnose` says whether) it prefers models that learnt
them: there, and wherever 100 labels can be checked, pass those instead, as "clean" does here.

It prints what was chosen, what would have been with clean labels for the validation data, what the
paper takes, and self-teaching, with the accuracy of each on clean test data, which chose nothing.
About a minute on a CPU. Needs torch, scikit-learn, matplotlib, rich, optuna and sigua.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optuna
import torch
from digits import CLASSES, NOISES, load, positive_integer
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import train_test_split
from torch import nn

import sigua
from sigua_torch import SIGUALoss

LAST = 10  # epochs whose accuracy is averaged, for one epoch's is a matter of luck


class Part(NamedTuple):
    """Inputs, their labels as given, and the right ones."""

    x: torch.Tensor
    noisy: torch.Tensor
    clean: torch.Tensor


class Scores(NamedTuple):
    """Accuracies in % after an epoch."""

    noisy: float
    clean: float
    test: float


def split(noise: str, seed: int, folder: Path | None) -> tuple[Part, Part, Part]:
    """Return a part to train on, one to choose by, and one to report; its labels are clean."""
    data = load(folder)
    noisy = torch.from_numpy(sigua.corrupt_labels(data.y.numpy(), NOISES[noise].T, seed=seed))
    rows = np.arange(len(data.x))
    fit, choose = train_test_split(rows, test_size=0.25, stratify=noisy, random_state=seed)
    parts = (Part(data.x[rows], noisy[rows], data.y[rows]) for rows in (fit, choose))
    return *parts, Part(data.x_test, data.y_test, data.y_test)


def train(
    method: sigua.Method, parts: tuple[Part, Part, Part], seed: int, epochs: int
) -> Iterator[Scores]:
    """Train on the first part, and yield the accuracies on the others after each epoch."""
    fit, choose, test = parts
    torch.manual_seed(seed)
    hidden = nn.Linear(fit.x.shape[1], 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
    net = nn.Sequential(*hidden, nn.Linear(128, CLASSES))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    criterion = SIGUALoss(method)
    for epoch in range(epochs):
        criterion.set_epoch(epoch)
        for batch in torch.randperm(len(fit.x)).split(128):
            optimizer.zero_grad()
            criterion(net(fit.x[batch]), fit.noisy[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            chosen, tested = net(choose.x).argmax(dim=1), net(test.x).argmax(dim=1)
        pairs = (chosen, choose.noisy), (chosen, choose.clean), (tested, test.clean)
        yield Scores(*(100 * (guess == y).double().mean().item() for guess, y in pairs))


def end(scores: list[Scores]) -> Scores:
    """Return the mean of the last epochs."""
    return Scores(*np.mean(scores[-LAST:], axis=0).tolist())


def make_objective(
    by: str, rate: float, parts: tuple[Part, Part, Part], seed: int, epochs: int
) -> Callable[[optuna.Trial], float]:
    """Return what Optuna maximises: accuracy on the validation part, by its noisy or clean labels.

    The test part is carried along in the trial's attributes and decides nothing.
    """

    def objective(trial: optuna.Trial) -> float:
        gamma = trial.suggest_float("gamma", 1e-4, 1.0, log=True)
        delta = trial.suggest_float("delta", 0.1 * rate, rate)
        scores = []
        for epoch, score in enumerate(
            train(sigua.sigua_sl(rate, delta, gamma), parts, seed, epochs)
        ):
            scores.append(score)
            trial.report(getattr(end(scores), by), epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        trial.set_user_attr("end", tuple(end(scores)))
        return float(getattr(end(scores), by))

    return objective


def search(by: str, args: argparse.Namespace, parts: tuple[Part, Part, Part]) -> optuna.Study:
    """Return a finished study; trials below the others' median halfway are given up."""
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=args.seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=8, n_warmup_steps=args.epochs // 3),
    )
    objective = make_objective(by, NOISES[args.noise].rate, parts, args.seed, args.epochs)
    study.optimize(objective, n_trials=args.trials, show_progress_bar=True)
    return study


def main() -> None:
    """Read the command line, search twice, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="a folder with (Fashion-)MNIST's four files")
    add("--noise", choices=list(NOISES), default="sym-50", metavar="NAME", help=", ".join(NOISES))
    add("--trials", type=positive_integer, metavar="N", default=40, help="default: %(default)s")
    add("--epochs", type=positive_integer, metavar="N", default=45, help="default: %(default)s")
    add("--seed", type=int, metavar="N", default=0, help="default: %(default)s")
    args = parser.parse_args()

    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    parts = split(args.noise, args.seed, args.data)
    columns = "gamma", "delta", "noisy validation", "clean validation", "test", "given up"
    grid = Table(
        "chosen by", *columns, box=MARKDOWN, title=f"SIGUA_SL on {args.noise}: accuracies in %"
    )
    for by in "noisy", "clean":
        study = search(by, args, parts)
        best = study.best_trial
        shown = [f"{value:.1f}" for value in best.user_attrs["end"]]
        given_up = sum(trial.state == optuna.trial.TrialState.PRUNED for trial in study.trials)
        chosen = f"{best.params['gamma']:.4f}", f"{best.params['delta']:.3f}"
        grid.add_row(f"{by} labels", *chosen, *shown, f"{given_up} of {args.trials}")
    noise = NOISES[args.noise]
    fixed = {"the paper": (noise.gamma, noise.delta), "self-teaching": (0.0, 0.0)}
    for name, (gamma, delta) in fixed.items():
        scores = train(sigua.sigua_sl(noise.rate, delta, gamma), parts, args.seed, args.epochs)
        shown = [f"{value:.1f}" for value in end(list(scores))]
        grid.add_row(name, f"{gamma:.4f}", f"{delta:.3f}", *shown, "")
    Console(width=120).print(grid)  # a Markdown table, in one piece


if __name__ == "__main__":
    main()
