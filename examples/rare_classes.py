"""Label issues where classes are rare: a share of all labels, or a share of each class.

    python examples/rare_classes.py

trains a network plainly on tables with eleven classes of 1 to 18 %, 30 % of whose labels are wrong
at random or none, ranks the labels by their margins, and takes the lower end of what the diagnosis
finds most confidently (`diagnosis.surest.low`) as the rate. It reports accuracy and balanced
accuracy on clean test data: of the plain training, and of fresh ones without the issues. Two
minutes on a CPU. Needs torch, scikit-learn, cleanlab, matplotlib, rich and sigua.
"""

import argparse

import numpy as np
import torch
from digits import Data, positive_integer
from rich.box import MARKDOWN
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.metrics import balanced_accuracy_score
from sklearn.preprocessing import StandardScaler
from sklearn_fit import corrupted
from suspects import Case, out_of_fold, probabilities, train

import sigua
from sigua_torch.diagnostics import LabelHistory

RATES = 0.0, 0.3
LISTS = ["plain", "without a share of all", "without a share of each class", "without the wrong"]


def tensors(rate: float, seed: int) -> tuple[Data, np.ndarray]:
    """Return the data, standardised, and which labels are wrong."""
    X, X_test, given, y_test, right = corrupted("table", rate, seed)
    scaler = StandardScaler().fit(X)
    x, x_test = (torch.tensor(scaler.transform(part)).float() for part in (X, X_test))
    return Data(x, torch.tensor(given), x_test, torch.tensor(y_test)), given != right


def study(rate: float, seed: int, epochs: int) -> list[tuple[float, float]]:
    """Return accuracy and balanced accuracy in %, for each of `LISTS`."""
    case, (data, wrong) = Case("table", f"symmetric {rate:.0%}", epochs), tensors(rate, seed)
    given, history = data.y.numpy(), LabelHistory(len(data.y))
    surest = sigua.diagnose(out_of_fold(case, data, seed), given).surest.low
    net, _ = train(case, data, seed, case.epochs, history=history)
    how = {"margins": history.margins, "noise_rate": surest}
    overall = sigua.rank_label_issues(**how).suspects
    by_class = sigua.rank_label_issues(**how, labels=given).suspects
    found = [judged(net, data)]
    for issues in (overall, by_class, wrong):
        kept = data._replace(x=data.x[~issues], y=data.y[~issues])
        found.append(judged(train(case, kept, seed, case.epochs)[0], data))
    return found


def judged(net: torch.nn.Module, data: Data) -> tuple[float, float]:
    """Return accuracy and balanced accuracy on clean test data, in %."""
    predicted, right = probabilities(net, data.x_test).argmax(axis=1), data.y_test.numpy()
    return 100 * (predicted == right).mean(), 100 * balanced_accuracy_score(right, predicted)


def main() -> None:
    """Read the command line, train, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=positive_integer, default=3, metavar="N")
    parser.add_argument("--epochs", type=positive_integer, default=40, metavar="N")
    args = parser.parse_args()
    torch.set_num_threads(1)
    table = Table("wrong", *LISTS, box=MARKDOWN, title="Accuracy, balanced accuracy (%)")
    for rate in track(RATES, "train", console=Console(stderr=True)):
        found = [study(rate, seed, args.epochs) for seed in range(args.seeds)]
        means = np.mean(found, axis=0)
        table.add_row(f"{rate:.0%}", *(f"{plain:.1f}, {balanced:.1f}" for plain, balanced in means))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
