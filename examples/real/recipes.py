"""What is compared on each set: who knows what, and how it is trained."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from cleanlab.classification import CleanLearning
from cleanlab.filter import find_label_issues
from data import Data
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from torch import nn
from train import Classifier, Curves, accuracy, digits, part, train

import sigua
from sigua_torch import SIGUALoss, losses

KNOWS = {  # by name, what a recipe knows beside the given labels
    "plain": "nothing",
    "GCE": "nothing",
    "sigua_ag": "nothing",
    "sigua_ag, counted": "nothing",
    "sigua_sl": "nothing",
    "forward": "nothing",
    "prune": "nothing",
    "CleanLearning": "nothing",
    "forward, counted T": "checked",
    "alone": "checked",
    "together": "checked",
    "together, sigua_ag": "checked",
    "together, forward": "checked",
    "forward, true T": "all",
    "gold labels": "all",
}


def out_of_fold(data: Data) -> np.ndarray:
    """Return p(observed class | x) by logistic regression, (n, k)."""
    model = LogisticRegression(C=0.01, max_iter=300)
    return cross_val_predict(model, data.x, data.given, method="predict_proba")


def draw(data: Data, seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return who is checked, or only held out by those who check nobody, and the others."""
    rng = np.random.default_rng(seed)
    checked = rng.choice(len(data.x), size, replace=False)
    return checked, np.setdiff1d(np.arange(len(data.x)), checked)


def advised(data: Data, seed: int, size: int) -> dict[str, Any]:
    """Return which recipes to choose among, by what is known, and which labels choose."""
    p, (checked, _) = out_of_fold(data), draw(data, seed, size)
    blind = sigua.diagnose(p, data.given).advice
    seen = sigua.diagnose(p, data.given, data.true[checked], checked).advice
    corrected = "together, forward" if seen.with_checked else "forward, counted T"
    labels = {"given": "noisy", "checked": "checked"}
    return {
        "nothing": _recipes(blind.candidates, "forward"),
        "checked": _recipes(seen.candidates, corrected),
        "by": [labels[advice.chosen_by] for advice in (blind, seen)],
        "labels": {"noisy": digits(data.given[checked]), "checked": digits(data.true[checked])},
    }


def _recipes(candidates: tuple[sigua.Method, ...], corrected: str) -> list[str]:
    """Return the names of the recipes, in which forward correction has different ones."""
    standard, agreement, counted = sigua.candidates()
    names = {standard: "plain", agreement: "sigua_ag", counted: "sigua_ag, counted"}
    return [names.get(each, corrected) for each in candidates]


def runs(
    data: Data, seed: int, only: list[str], size: int, epochs: int
) -> Iterator[tuple[str, Curves]]:
    """Yield each recipe's accuracies after each epoch.

    Those that train on checked labels train on every other one of them, and hold out the rest.
    """
    p, k = out_of_fold(data), data.classes
    checked, rows = draw(data, seed, size)
    given, fit, choose = data.given[rows], checked[::2], checked[1::2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that classes overlap
        rate = min(max(sigua.estimate_noise_rate(p, data.given), 0.01), 0.8)
        T = sigua.estimate_transition(p, data.given)
    seen = sigua.diagnose(p, data.given, data.true[checked], checked)
    counted = seen.T or sigua.count_transition(data.given[checked], data.true[checked], k)
    methods = {
        "plain": sigua.standard(),
        "sigua_ag": sigua.sigua_ag(),
        "sigua_ag, counted": sigua.sigua_ag(power=1),
        "sigua_sl": sigua.sigua_sl(rate, 0.3 * rate),
        "forward": sigua.forward_correction(T),
        "forward, counted T": sigua.forward_correction(counted),
        "forward, true T": sigua.forward_correction(
            sigua.count_transition(data.given, data.true, k)
        ),
    }
    together = {
        "together": sigua.standard(),
        "together, sigua_ag": sigua.sigua_ag(),
        "together, forward": sigua.forward_correction(counted),
    }
    for name in only:
        if name in methods:
            criterion = SIGUALoss(methods[name])
            yield name, train(data, rows, given, checked, criterion, seed, epochs)
        elif name == "GCE":
            criterion = SIGUALoss(sigua.standard(), losses.generalized_cross_entropy)
            yield name, train(data, rows, given, checked, criterion, seed, epochs)
        elif name in together:
            some, criterion = part(data.x[fit], data.true[fit]), SIGUALoss(together[name])
            yield name, train(data, rows, given, choose, criterion, seed, epochs, some)
        elif name == "alone":
            some = data.true[fit]
            yield name, train(data, fit, some, choose, nn.CrossEntropyLoss(), seed, 100)
        elif name == "gold labels":
            yield (
                name,
                train(data, rows, data.true[rows], checked, nn.CrossEntropyLoss(), seed, epochs),
            )
        elif name == "prune":
            kept = rows[~find_label_issues(data.given, p, n_jobs=1)[rows]]
            yield (
                name,
                train(data, kept, data.given[kept], checked, nn.CrossEntropyLoss(), seed, epochs),
            )
        elif name == "CleanLearning":
            model = CleanLearning(Classifier(k, seed, epochs // 2), cv_n_folds=3)
            model.fit(data.x, data.given)
            tested, judged = model.predict(data.x_test), model.predict(data.x[checked])
            found = accuracy(tested, data.y_test), accuracy(judged, data.given[checked])
            true = accuracy(judged, data.true[checked])
            yield name, Curves([found[0]], [found[1]], [true], [digits(judged)])
