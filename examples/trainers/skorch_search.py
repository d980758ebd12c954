"""SIGUA in scikit-learn, by skorch: which method suits these digits, half of their labels wrong?

    python examples/trainers/skorch_search.py

A skorch classifier with `criterion=SIGUALoss` is one of scikit-learn's. In a pipeline, a grid
search chooses its method on held-out labels, wrong ones and all, which rank methods as clean ones
do where errors do not follow from the input (`sigua.diagnose`; if 100 labels are checked, choose by
those); and cleanlab finds more of the wrong labels with it. Needs torch, skorch, cleanlab,
scikit-learn and sigua.
"""

import numpy as np
import skorch
import torch
from cleanlab.classification import CleanLearning
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler
from torch import nn

import sigua
from sigua_torch import SIGUALoss

PLAIN = sigua.standard()
METHODS = [
    PLAIN,
    sigua.self_teaching(noise_rate=0.5),
    sigua.sigua_sl(noise_rate=0.5, delta=0.15, gamma=0.01),
]


class SetEpoch(skorch.callbacks.Callback):
    """Tells the criterion the epoch."""

    def on_epoch_begin(self, net, **kwargs) -> None:
        net.criterion_.set_epoch(len(net.history) - 1)


def network() -> nn.Module:
    torch.manual_seed(0)
    hidden = nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(128, 10))


def classifier(method: sigua.Method, **options) -> Pipeline:
    """Return a usual pipeline but for three arguments."""
    usual = {"optimizer": torch.optim.Adam, "lr": 3e-3, "batch_size": 128, "max_epochs": 50}
    batches = {"iterator_train__shuffle": True, "iterator_train__drop_last": True}
    net = skorch.NeuralNetClassifier(
        network,
        criterion=SIGUALoss,  # was: nn.CrossEntropyLoss
        criterion__method=method,
        callbacks=[SetEpoch()],
        **usual | batches | {"train_split": None, "verbose": 0} | options,
    )
    return make_pipeline(MinMaxScaler(), net)


def load() -> list[np.ndarray]:
    """Return pixels and labels to train on, half of them wrong, and clean ones to report."""
    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.25, random_state=0, stratify=y)
    y = sigua.corrupt_labels(y, sigua.TransitionMatrix.symmetric(0.5, 10), seed=0)
    return [x, y, x_test, y_test]


def main() -> None:
    x, y, x_test, y_test = load()
    print(f"skorch {skorch.__version__}, half of the training labels wrong")
    grid = {"neuralnetclassifier__criterion__method": METHODS}
    search = GridSearchCV(classifier(PLAIN), grid, cv=2, scoring="accuracy").fit(x, y)
    for method, score in zip(METHODS, search.cv_results_["mean_test_score"], strict=True):
        print(f"{score:.1%} of the held-out labels, wrong ones and all: {method}")
    plain = classifier(PLAIN).fit(x, y)
    print(f"plain: {plain.score(x_test, y_test):.1%} of the test digits right")
    print(f"chosen: {search.score(x_test, y_test):.1%} of the test digits right")
    for name, method in {"plain": PLAIN, "SIGUA": METHODS[-1]}.items():
        issues = CleanLearning(classifier(method), cv_n_folds=2).find_label_issues(x, y)
        cleaned = CleanLearning(classifier(PLAIN)).fit(x, y, label_issues=issues)
        score = cleaned.score(x_test, y_test)
        print(f"plain, without what cleanlab finds by {name}: {score:.1%} of the test digits right")


if __name__ == "__main__":
    main()
