"""scikit-learn's MLPClassifier and SIGUAClassifier, with nothing set, on labels partly wrong.

    python examples/sklearn_fit.py

fits both to 30 % wrong labels, and to clean ones, on three kinds of data: scikit-learn's digits; a
table with eleven classes of 1 to 18 %; and embeddings of twenty classes that overlap. It prints
accuracies on clean test data, balanced ones too, and how well the wrong labels were found; then
balanced accuracies of two other classifiers, as they are, pruned and by PrunedClassifierCV, which
compares the two. Half an hour on a CPU, most of it gradient boosting. Needs torch, scikit-learn,
rich and sigua.
"""

import argparse
import warnings
from typing import NamedTuple

import numpy as np
from rich.box import MARKDOWN
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits, make_blobs, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sigua
from sigua_sklearn import PrunedClassifierCV, SIGUAClassifier

CLASSIFIERS = {
    "LogisticRegression": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(max_iter=50, random_state=0),
}
WEIGHTS = np.array([18, 16, 14, 12, 10, 9, 8, 6, 4, 2, 1]) / 100


class Row(NamedTuple):
    """Shares in [0, 1]: accuracies of the two, plain and balanced, and of the flagged labels."""

    mlp: float
    ours: float
    mlp_balanced: float
    ours_balanced: float
    precision: float
    recall: float


def load(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and right labels."""
    if name == "digits":
        return load_digits(return_X_y=True)
    if name == "embeddings":
        return make_blobs(
            *(2_000, 64), centers=20, cluster_std=4.5, center_box=(-2, 2), random_state=seed
        )
    return make_classification(
        *(4_000, 20), n_informative=10, n_redundant=4, n_classes=11, n_clusters_per_class=1,
        weights=WEIGHTS, class_sep=1.2, flip_y=0, random_state=seed,
    )  # fmt: skip


def corrupted(name: str, rate: float, seed: int) -> tuple[np.ndarray, ...]:
    """Return features to train on and a clean quarter's, labels as given and to test, right ones.

    In the order X, X_test, given, y_test, y.
    """
    X, y = load(name, seed)
    X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=seed)
    given = y
    if rate:
        T = sigua.TransitionMatrix.symmetric(rate, y.max() + 1)
        given = sigua.corrupt_labels(y, T, seed=seed)
    return X, X_test, given, y_test, y


def compare(name: str, rate: float, seed: int) -> Row:
    """Fit both to the same labels, and judge them by a clean quarter."""
    X, X_test, given, y_test, y = corrupted(name, rate, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 200 iterations do not converge
        mlp = MLPClassifier(random_state=seed).fit(X, given)
    ours = SIGUAClassifier(random_state=seed).fit(X, given)
    predicted = [clf.predict(X_test) for clf in (mlp, ours)]
    plain = [float((each == y_test).mean()) for each in predicted]
    balanced = [balanced_accuracy_score(y_test, each) for each in predicted]
    wrong, flagged = given != y, ours.label_issues_
    precision = wrong[flagged].mean() if flagged.any() else float("nan")
    recall = flagged[wrong].mean() if wrong.any() else float("nan")
    return Row(*plain, *balanced, precision, recall)


def prune(name: str, rate: float, seed: int) -> list[float]:
    """Return balanced accuracies of classifiers: as it is, without what it flags, the better."""
    X, X_test, given, y_test, _ = corrupted(name, rate, seed)
    found = []
    for make in CLASSIFIERS.values():
        compared = PrunedClassifierCV(make()).fit(X, given)
        pruned = compared
        if compared.choice_ is not None and compared.choice_.kept == "plain":
            kept = ~compared.label_issues_
            pruned = make().fit(X[kept], given[kept])
        each = make().fit(X, given), pruned, compared
        found += [balanced_accuracy_score(y_test, clf.predict(X_test)) for clf in each]
    return found


def mean_of(shares: np.ndarray) -> str:
    """Return the mean over the seeds in %, without those where there was nothing to count."""
    known = shares[~np.isnan(shares)]
    return f"{100 * known.mean():.1f}" if len(known) else ""


def main() -> None:
    """Read the command line, fit, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = ["digits", "table", "embeddings"]
    parser.add_argument("--data", nargs="+", choices=known, default=known, metavar="NAME")
    parser.add_argument("--rate", type=float, nargs="+", default=[0.3, 0.0], metavar="R")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="default: %(default)s")
    args = parser.parse_args()
    cases = [(name, rate) for name in args.data for rate in args.rate]
    rows = {
        case: np.array([compare(*case, seed) for seed in range(args.seeds)])
        for case in track(cases, "fit")
    }
    columns = ["MLPClassifier", "SIGUAClassifier", "balanced", "balanced", "flagged are wrong"]
    table = Table("data", "wrong", *columns, "wrong are flagged", box=MARKDOWN)
    for (name, rate), found in rows.items():
        table.add_row(name, f"{rate:.0%}", *(mean_of(column) for column in found.T))
    Console(width=160).print(table)
    heads = [name for each in CLASSIFIERS for name in (each, "pruned", "the better")]
    table = Table("data", "wrong", *heads, box=MARKDOWN)
    for case in track(cases, "prune"):
        shares = np.array([prune(*case, seed) for seed in range(args.seeds)])
        table.add_row(case[0], f"{case[1]:.0%}", *(mean_of(column) for column in shares.T))
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
