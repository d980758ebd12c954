"""One small network on one set of data, and its accuracy after each epoch."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from data import Data
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, CHECKED_BATCH = 64, 32


class Part(NamedTuple):
    """What is trained on, or judged by: features and labels."""

    x: Tensor
    y: Tensor


class Curves(NamedTuple):
    """Accuracies in % after each epoch: clean test data, and labels held out, given and true.

    And the classes predicted for who is held out, up to 10, as a digit each.
    """

    test: list[float]
    noisy: list[float]
    checked: list[float]
    predicted: list[str]


def part(x: np.ndarray, y: np.ndarray) -> Part:
    return Part(torch.from_numpy(x), torch.from_numpy(y))


def accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    return 100 * float((predicted == labels).mean())


def digits(classes: np.ndarray) -> str:
    return "".join(map(str, classes))


def network(d: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, classes))


def train(
    data: Data,
    rows: np.ndarray,
    labels: np.ndarray,
    held_out: np.ndarray,
    criterion: Callable[[Tensor, Tensor], Tensor],
    seed: int,
    epochs: int,
    checked: Part | None = None,
) -> Curves:
    """Train on some rows with these labels; with `checked` examples in each mini-batch.

    The loss is then that of the criterion on the mini-batch, plus plain cross-entropy on a few
    checked examples: the two count alike, however few were checked.
    """
    torch.manual_seed(seed)
    net = network(data.x.shape[1], data.classes)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    noisy, curves = part(data.x[rows], labels), Curves([], [], [], [])
    x_test, x_held_out = torch.from_numpy(data.x_test), torch.from_numpy(data.x[held_out])
    for epoch in range(epochs):
        if hasattr(criterion, "set_epoch"):
            criterion.set_epoch(epoch)
        for batch in torch.randperm(len(noisy.y)).split(BATCH):
            optimizer.zero_grad()
            loss = criterion(net(noisy.x[batch]), noisy.y[batch])
            if checked is not None:
                some = torch.randint(len(checked.y), (CHECKED_BATCH,))
                loss = loss + F.cross_entropy(net(checked.x[some]), checked.y[some])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            tested, judged = (net(x).argmax(dim=1).numpy() for x in (x_test, x_held_out))
        curves.test.append(accuracy(tested, data.y_test))
        curves.noisy.append(accuracy(judged, data.given[held_out]))
        curves.checked.append(accuracy(judged, data.true[held_out]))
        curves.predicted.append(digits(judged))
    return curves


class Classifier:
    """The same network as one of scikit-learn's, for cleanlab's CleanLearning."""

    def __init__(self, classes: int = 2, seed: int = 0, epochs: int = 20) -> None:
        self.classes, self.seed, self.epochs = classes, seed, epochs

    def get_params(self, deep: bool = True) -> dict[str, int]:
        return {"classes": self.classes, "seed": self.seed, "epochs": self.epochs}

    def set_params(self, **parameters: int) -> "Classifier":
        vars(self).update(parameters)
        return self

    def fit(self, x: np.ndarray, y: np.ndarray, sample_weight: object = None) -> "Classifier":
        torch.manual_seed(self.seed)
        self.net, self.classes_ = network(x.shape[1], self.classes), np.arange(self.classes)
        optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        whole = part(np.asarray(x), np.asarray(y))
        for _ in range(self.epochs):
            for batch in torch.randperm(len(whole.y)).split(BATCH):
                optimizer.zero_grad()
                F.cross_entropy(self.net(whole.x[batch]), whole.y[batch]).backward()
                optimizer.step()
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self.net(torch.from_numpy(np.asarray(x))).softmax(dim=1).numpy()

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.predict_proba(x).argmax(axis=1)

    def score(self, x: np.ndarray, y: np.ndarray) -> float:
        return float((self.predict(x) == y).mean())
