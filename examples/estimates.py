"""How well noise rate and T are estimated, and what an error in them costs.

    python examples/estimates.py

corrupts the labels of scikit-learn's digits in four ways with three seeds, lets a network predict
them out of fold, estimates the noise rate and T with each method of `sigua.estimate_transition`,
and trains SIGUA_SL and SIGUA_BC with each estimate and with the truth. About three minutes on a
CPU; `--data DIR` does the same on MNIST, in about an hour (`--train` says with which estimates to
train). Results go to a file of JSON lines,
which `--table FILE` turns into a table again without any training.

Needs torch, scikit-learn, matplotlib, rich and sigua.
"""

import argparse
import json
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from digits import CLASSES, NOISES, Data, Noise, load, make_method, positive_integer, train
from rich.progress import track
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_predict
from sklearn.neural_network import MLPClassifier

import sigua

ESTIMATORS = ["surest", "anchor", "confident", "counted, 200"]
TRUTH = "the truth"
CHECKED = 200  # labels that someone looked at
LAST = 5  # epochs whose test accuracy is averaged


def noise_of(name: str, seed: int) -> Noise:
    """Return the noise by name: the demonstration's, or a random T that wrongs 40 %."""
    if name in NOISES:
        return NOISES[name]
    T = sigua.random_transition(CLASSES, noise_rate=0.4, seed=seed)
    return Noise(T, 0.4, 0.12, 0.01, "batch")


def out_of_fold(x: np.ndarray, noisy: np.ndarray, seed: int) -> np.ndarray:
    """Return p(observed class | x) from networks that have not seen the example's own label.

    They are stopped or regularised before they memorise: on MNIST after four epochs.
    """
    large = len(x) > 10_000
    options = {"batch_size": 256, "max_iter": 4} if large else {"alpha": 1.0, "max_iter": 60}
    model = MLPClassifier((64,), random_state=seed, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # as intended
        return cross_val_predict(model, x, noisy, cv=3, method="predict_proba")


def estimate(
    name: str, p: np.ndarray, noisy: np.ndarray, y: np.ndarray, seed: int
) -> tuple[float, sigua.TransitionMatrix]:
    """Return the noise rate and T by one method, or by counting checked labels."""
    if name == "counted, 200":
        checked = np.random.default_rng(seed).choice(len(y), CHECKED, replace=False)
        prior = sigua.estimate_transition(p, noisy)
        rate = sigua.count_noise_rate(noisy[checked], y[checked]).value
        return rate, sigua.count_transition(noisy[checked], y[checked], CLASSES, prior=prior)
    rate = sigua.estimate_noise_rate(p, noisy, method=name)
    return rate, sigua.estimate_transition(p, noisy, method=name)


def accuracy(name: str, noise: Noise, data: Data, seed: int, epochs: int) -> float:
    """Return the mean test accuracy of the last epochs, in %."""
    return float(np.mean(list(train(make_method(name, noise), data, seed, epochs))[-LAST:]))


def run(
    noise_name: str, seed: int, data: Data, epochs: int, trained: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield a row for the truth, and one for each estimator; accuracies for those `trained`."""
    noise, y = noise_of(noise_name, seed), data.y.numpy()
    noisy = sigua.corrupt_labels(y, noise.T, seed=seed)
    data = data._replace(y=torch.from_numpy(noisy))
    p = out_of_fold(data.x.numpy(), noisy, seed)
    true_rate = float((noisy != y).mean())
    for name in [TRUTH, *ESTIMATORS]:
        row = {"noise": noise_name, "seed": seed, "estimator": name, "true_rate": true_rate}
        try:
            rate, T = (true_rate, noise.T) if name == TRUTH else estimate(name, p, noisy, y, seed)
        except ValueError as error:
            yield row | {"refused": str(error)}
            continue
        row["rate"] = rate
        told = noise._replace(rate=rate, delta=0.3 * rate)
        if name in trained:
            row["SIGUA_SL"] = accuracy("SIGUA_SL", told, data, seed, epochs)
        variation = 0.5 * np.abs(T.rows - noise.T.rows).sum(axis=1).mean()
        row["total_variation"] = float(variation)
        if name in trained:
            row["SIGUA_BC"] = accuracy("SIGUA_BC", told._replace(T=T), data, seed, epochs)
        yield row


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table of means over the seeds; of the rate, also the largest error."""
    lines = [
        "| noise | estimator | T: total variation of a row | noise rate | its error, at most "
        "| SIGUA_SL (%) | SIGUA_BC (%) |",
        "|---|---|---|---|---|---|---|",
    ]
    noises, names = (dict.fromkeys(row[key] for row in rows) for key in ("noise", "estimator"))
    for noise, name in product(noises, names):  # results may have estimators that are no more
        all_seeds = [row for row in rows if (row["noise"], row["estimator"]) == (noise, name)]
        group = [row for row in all_seeds if "refused" not in row]
        if not all_seeds:
            continue
        if not group:
            lines.append(f"| {noise} | {name} | refused |" + " |" * 4)
            continue
        error = max(abs(row["rate"] - row["true_rate"]) for row in group)
        cells = [noise, name, mean(group, "total_variation", ".3f"), mean(group, "rate", ".3f")]
        cells += [f"{error:.3f}", mean(group, "SIGUA_SL", ".1f"), mean(group, "SIGUA_BC", ".1f")]
        if len(group) < len(all_seeds):
            cells[1] += f" (refused for {len(all_seeds) - len(group)} seeds)"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def mean(rows: list[dict[str, Any]], key: str, form: str) -> str:
    """Return the rows' mean as text; a dash where there is no such number."""
    return format(np.mean([row[key] for row in rows]), form) if key in rows[0] else "-"


def main() -> None:
    """Read the command line, run, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    known = [*NOISES, "random"]
    add("--data", type=Path, metavar="DIR", help="a folder with MNIST's four files")
    add("--json", type=Path, metavar="FILE", default="estimates.jsonl", help="%(default)s")
    add("--noise", nargs="+", choices=known, default=known, metavar="NAME", help=", ".join(known))
    add("--seeds", type=positive_integer, metavar="N", default=3, help="default: %(default)s")
    add("--epochs", type=positive_integer, metavar="N", help="60, or 12 on MNIST")
    names = [TRUTH, *ESTIMATORS]
    add(
        "--train", nargs="+", choices=names, default=names, metavar="ESTIMATOR", help="default: all"
    )
    add("--table", type=Path, metavar="FILE", help="print the table of these JSON lines, and end")
    args = parser.parse_args()

    if args.table is None:
        torch.set_num_threads(1)
        epochs = args.epochs or (12 if args.data else 60)
        data = load(args.data)
        runs = list(product(range(args.seeds), args.noise))
        with args.json.open("w", encoding="utf-8") as lines:
            for seed, noise in track(runs, "estimating"):
                for row in run(noise, seed, data, epochs, args.train):
                    lines.write(json.dumps(row) + "\n")
                    lines.flush()
    text = (args.table or args.json).read_text(encoding="utf-8")
    print(table([json.loads(line) for line in text.splitlines()]))


if __name__ == "__main__":
    main()
