"""How often does the interval of the noise rate hold what it should? A table.

    python examples/interval_coverage.py

corrupts the labels of scikit-learn's digits in eight ways, makes classes that overlap, many
classes, and labels by rules, predicts them out of fold by three classifiers with five seeds, and
asks `sigua.diagnose` for the noise rate of 40 random halves of each, with no label checked and with
100. About a quarter of an hour on a CPU. Needs scikit-learn and sigua.
"""

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

import sigua

CHECKED, FEW = 100, 150
DRAWS = 40  # from each seed
NOISES = ["clean", "sym-20", "sym-50", "sym-70", "pair-45", "random-60", "asym-40"]
NOISES += ["instance-20", "instance-40"]
CLASSIFIERS: dict[str, Callable[[int], ClassifierMixin]] = {
    "logistic regression": lambda seed: LogisticRegression(max_iter=200),
    "boosting": lambda seed: HistGradientBoostingClassifier(
        max_iter=20, max_leaf_nodes=8, random_state=seed
    ),
    "forest": lambda seed: RandomForestClassifier(100, random_state=seed),
}


class Data(NamedTuple):
    """Features (n, d), labels as given and as they should be, (n,)."""

    x: np.ndarray
    given: np.ndarray
    true: np.ndarray


def digits(noise: str, seed: int) -> Data:
    """Return scikit-learn's digits with one of `NOISES`."""
    x, true = load_digits(return_X_y=True)
    x, k = x / 16, 10
    kind, _, percent = noise.partition("-")
    rate = int(percent or 0) / 100
    if kind == "instance":
        unit = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-3)
        return Data(x, sigua.corrupt_labels_by_instance(unit, true, rate, k, seed), true)
    T = {
        "clean": lambda: sigua.TransitionMatrix.symmetric(0.0, k),
        "sym": lambda: sigua.TransitionMatrix.symmetric(rate, k),
        "pair": lambda: sigua.TransitionMatrix.pair(rate, k),
        "random": lambda: sigua.random_transition(k, noise_rate=rate, seed=seed),
        "asym": lambda: sigua.mapped_transition({2: 7, 3: 8, 5: 6, 6: 5, 7: 1}, rate, k),
    }[kind]()
    return Data(x, sigua.corrupt_labels(true, T, seed=seed), true)


def normal(k: int, distance: float, noise_rate: float, seed: int, d: int = 20) -> Data:
    """Return k normal classes in d dimensions around points this far from the origin."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((k, d))
    centres *= distance / np.linalg.norm(centres, axis=1, keepdims=True)
    true = rng.integers(0, k, 2000)
    x = centres[true] + rng.standard_normal((len(true), d))
    T = sigua.TransitionMatrix.symmetric(noise_rate, k)
    return Data(x, sigua.corrupt_labels(true, T, seed=seed), true)


def rules(seed: int) -> Data:
    """Return four normal classes; wherever one feature is large the label is the first class."""
    found = normal(4, 3.0, 0.0, seed)
    return found._replace(given=np.where(found.x[:, 0] > 0.5, 0, found.given))


def sets(seed: int) -> Iterator[tuple[str, Data]]:
    """Yield each set by name."""
    for noise in NOISES:
        yield f"digits, {noise}", digits(noise, seed)
    yield "overlapping, clean", normal(5, 1.8, 0.0, seed)
    yield "overlapping, sym-20", normal(5, 1.8, 0.2, seed)
    yield "two classes, clean", normal(2, 0.6, 0.0, seed)
    yield "20 classes, sym-30", normal(20, 4.0, 0.3, seed, d=100)
    rows = np.random.default_rng(seed).choice(1797, FEW, replace=False)
    yield f"{FEW} digits, sym-20", Data(*(part[rows] for part in digits("sym-20", seed)))
    yield "labels by rules", rules(seed)


def out_of_fold(name: str, data: Data, seed: int) -> np.ndarray:
    """Return p(given | x), (n, k), by a classifier that was not trained on the example's label."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few examples of a class
        model = CLASSIFIERS[name](seed)
        return cross_val_predict(model, data.x, data.given, cv=3, method="predict_proba")


class Found(NamedTuple):
    """The truth, and the ends of an interval."""

    wrong: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        return self.low <= self.wrong <= self.high


def draws(data: Data, p: np.ndarray, seed: int, checked: int) -> Iterator[Found]:
    """Yield what is found on random halves of the examples, or on all of few."""
    rng = np.random.default_rng(seed)
    n, kept = len(data.true), len(data.true) // 2
    for _ in range(DRAWS):
        rows = rng.choice(n, kept, replace=False) if n > FEW else rng.choice(n, n)
        some = rng.choice(len(rows), checked, replace=False)
        given, true = data.given[rows], data.true[rows]
        told = (true[some], some) if checked else (None, None)
        found = sigua.diagnose(p[rows], given, *told).noise_rate
        yield Found(float((given != true).mean()), found.low, found.high)


def table(found: dict[tuple[str, str, int], list[Found]]) -> str:
    """Return a Markdown table: how often the interval holds the truth, and its median ends."""
    columns = [(name, checked) for checked in (0, CHECKED) for name in CLASSIFIERS]
    heads = [f"{name}{f', {checked} checked' * bool(checked)}" for name, checked in columns]
    lines = [f"| labels | wrong | {' | '.join(heads)} |", "|---" * (len(columns) + 2) + "|"]
    for name in dict.fromkeys(name for name, *_ in found):
        groups = [found[(name, *column)] for column in columns]
        cells = []
        for group in groups:
            low, high = (
                100 * np.median([getattr(x, end) for x in group]) for end in Found._fields[1:]
            )
            cells.append(f"{100 * np.mean([x.holds for x in group]):.0f} ({low:.0f} to {high:.0f})")
        wrong = 100 * np.mean([x.wrong for x in groups[0]])
        lines.append(f"| {name} | {wrong:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="default: %(default)s")
    args = parser.parse_args()
    found: dict[tuple[str, str, int], list[Found]] = defaultdict(list)
    for seed, classifier in product(range(args.seeds), CLASSIFIERS):
        for name, data in sets(seed):
            p = out_of_fold(classifier, data, seed)
            for checked in (0, CHECKED):
                found[name, classifier, checked] += draws(data, p, seed, checked)
    print(table(found))


if __name__ == "__main__":
    main()
