"""Where does the noise floor help, and where not? Every method on every noise, in one command.

    python examples/comparison estimate --data mnist=DIR fashion=DIR
    python examples/comparison run --data mnist=DIR fashion=DIR [--study table ...] [--device cuda]
    python examples/comparison report

`run` trains small networks on 20,000 images with wrong labels and appends a JSON line for each;
what is in the file already is not trained again. Studies: `table` (all methods on all noises, MLP),
`cnn` (the same on a small CNN), `all-images` (the same MLP on all 60,000), `estimates` (with the
eps and T that `estimate` found), `sensitivity` (eps off by 10 and 20 %), `batches`, `variants` (a
floor with a warm-up, or with a smaller gamma), `long` (100 epochs without decay), `held-out` (a
floor learned from labels that are not trained on), `choice` (what `sigua.choose` keeps by such
labels; into choice.jsonl and choice.md). A run of the MLP takes some 10 seconds on a CPU
core, and all studies on two (`--jobs 2`) five hours; a GPU trains `--together` networks side by
side. `report` makes the tables and pictures. A folder holds the data set's four files as published.

Needs torch, scikit-learn, joblib, matplotlib, rich and sigua.
"""

import argparse
import json
import platform
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from choice import report_choice
from data import corrupted, load, on
from joblib import Parallel, delayed
from report import report
from rich.progress import track
from studies import (
    METHODS,
    NOISES,
    HeldOut,
    Noise,
    Run,
    make_criterion,
    misjudged,
    studies,
)
from train import Images, Settings, Training, train

import sigua

HELD_OUT = 10  # every so many-th image, whose noisy label is not trained on in some studies
RESULTS = Path(__file__).parent / "results"


def estimate(x: np.ndarray, noisy: np.ndarray, seed: int) -> tuple[float, list[list[float]]]:
    """Return eps and T by confident counting on out-of-fold probabilities."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import cross_val_predict
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier((64,), random_state=seed, batch_size=256, max_iter=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # stopped before it memorises
        p = cross_val_predict(model, x.reshape(len(x), -1), noisy, cv=3, method="predict_proba")
    T = sigua.estimate_transition(p, noisy, method="confident")
    return sigua.estimate_noise_rate(p, noisy, method="confident"), T.rows.tolist()


def estimate_rows(folder: Path, data: str, name: str, seed: int) -> list[dict[str, Any]]:
    used = Settings().images
    noise = corrupted(folder, used, data, name, seed)
    rate, rows = estimate(load(folder, used)[0], noise.labels, seed)
    place = {"data": data, "noise": name, "seed": seed}
    return [place | {"rate": rate, "true": noise.rate, "T": rows}]


def told(run: Run, noise: Noise, estimates: Path) -> Noise:
    """Return what the run's method is told about the noise."""
    if run.told == "truth":
        return noise
    if run.told != "estimate":
        return misjudged(noise, float(run.told))
    for row in read_lines(estimates):
        if (row["data"], row["noise"], row["seed"]) == (run.data, run.noise, run.seed):
            return Noise(noise.labels, row["rate"], sigua.TransitionMatrix(row["T"]))
    raise SystemExit(f"{estimates} has no estimate for {run}; run `estimate` first")


def make_training(run: Run, folder: Path, estimates: Path, device: torch.device) -> Training:
    """Return a run, ready to begin."""
    x, _, x_test, y_test = load(folder, run.settings.images)
    noise = corrupted(folder, run.settings.images, run.data, run.noise, run.seed)
    images = Images(on(device, x), on(device, noise.labels), on(device, x_test), on(device, y_test))
    method, _, variant = run.method.partition(", ")
    held_out = len(noise.labels) // HELD_OUT
    if not method.startswith("floor") or variant != "held-out":
        name, held_out = (method, held_out) if variant == "held-out" else (run.method, 0)
        criterion = make_criterion(name, noise, told(run, noise, estimates)).to(device)
        return Training(images, criterion, run.seed, run.settings, held_out)
    floor = HeldOut(noise.T if method == "floor on forward" else None)
    criterion = make_criterion(run.method, noise, noise, floor).to(device)
    return Training(images, criterion, run.seed, run.settings, held_out, floor.update)


def do(runs: list[Run], folders: dict[str, Path], estimates: Path, device: str) -> list[Any]:
    """Train a group and return a row for each run."""
    torch.set_num_threads(1)
    begun = time.monotonic()
    where = torch.device(device)
    group = [make_training(run, folders[run.data], estimates, where) for run in runs]
    train(group)
    seconds = (time.monotonic() - begun) / len(runs)
    machine = torch.cuda.get_device_name() if where.type == "cuda" else platform.machine()
    about = {"seconds": round(seconds, 2), "machine": machine, "torch": torch.__version__}
    return [
        run._asdict()
        | {"settings": run.settings._asdict(), "accuracy": training.accuracy()}
        | training.shares_dropped()
        | training.held_out_predictions()
        | about
        for run, training in zip(runs, group, strict=True)
    ]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key(run: Run | dict[str, Any]) -> str:
    """Return what makes a run the same as another."""
    row = run if isinstance(run, dict) else run._asdict() | {"settings": run.settings._asdict()}
    return json.dumps([row[field] for field in Run._fields if field != "study"])


def grouped(runs: Iterable[Run], together: int) -> Iterator[list[Run]]:
    """Yield runs with the same settings, and as many examples, a few at a time."""
    alike: defaultdict[Any, list[Run]] = defaultdict(list)
    for run in runs:
        alike[run.settings, "held-out" in run.method].append(run)
    for group in alike.values():
        yield from (group[i : i + together] for i in range(0, len(group), together))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add, names = parser.add_argument, list(studies(1))
    add("task", choices=["estimate", "run", "report"])
    add("--study", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    add("--data", nargs="+", metavar="NAME=DIR", default=[], help="mnist=DIR fashion=DIR")
    add("--noise", nargs="+", metavar="NAME", default=NOISES, help=", ".join(NOISES))
    add("--method", nargs="+", metavar="NAME", help="no others; " + ", ".join(METHODS))
    add("--seeds", type=int, default=3)
    add("--device", default="cpu")
    add("--together", type=int, default=1, help="networks side by side, on a GPU")
    add("--jobs", type=int, default=1, help="processes, on a CPU")
    add("--minutes", type=float, default=float("inf"), help="begin no group after that")
    add("--out", type=Path, default=RESULTS, metavar="DIR")
    return parser.parse_args()


def main() -> None:
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    estimates, results = args.out / "estimates.jsonl", args.out / "runs.jsonl"
    choices = args.out / "choice.jsonl"
    if args.task == "report":
        report(read_lines(results), args.out)
        report_choice(read_lines(choices), args.out)
        return
    folders = {name: Path(folder) for name, _, folder in (e.partition("=") for e in args.data)}
    wanted = [run for name in args.study for run in studies(args.seeds)[name]()]
    wanted = [run for run in wanted if run.data in folders and run.noise in args.noise]
    if args.method:
        known = {run: {run.method, run.method.partition(", ")[0]} for run in wanted}
        wanted = [run for run, names in known.items() if names & set(args.method)]
    if args.task == "estimate":
        needed = [run for run in wanted if run.told == "estimate"]
        known = {(row["data"], row["noise"], row["seed"]) for row in read_lines(estimates)}
        places = {(run.data, run.noise, run.seed) for run in needed} - known
        tasks = [delayed(estimate_rows)(folders[place[0]], *place) for place in sorted(places)]
    else:
        done = {key(row) for path in (results, choices) for row in read_lines(path)}
        missing = {key(run): run for run in wanted if key(run) not in done}
        groups = list(grouped(missing.values(), args.together))
        tasks = [delayed(do)(group, folders, estimates, args.device) for group in groups]
    deadline = time.monotonic() + 60 * args.minutes
    pool = Parallel(n_jobs=args.jobs, return_as="generator_unordered")
    in_time = (task for task in tasks if time.monotonic() < deadline)
    for rows in track(pool(in_time), args.task, total=len(tasks)):
        for row in rows:
            study = choices if row.get("study") == "choice" else results
            path = estimates if args.task == "estimate" else study
            with path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
