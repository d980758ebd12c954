"""Which of several trained models to keep, by labels that none of them was trained on.

By the labels it is trained on, a network that memorises looks like one that learns. By held-out
labels it does not, though some of them are wrong. Accuracy on them would do where errors spread
over all classes. Where one class is often given for another, accuracy favours a model that
predicts those wrong labels as well. What a prediction tells about the label is fair in both cases:
if the errors depend on the true class alone, nothing tells more about the label than that does.

Where errors depend on the input otherwise, a model that repeats them tells more, and checked labels
have to choose.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks
from sigua._inputs import column_names, columns_of
from sigua._method import Method
from sigua.confidence import MOST_CLASSES
from sigua.counting import Floats
from sigua.methods import sigua_ag, standard

AHEAD = 0.5
"""By how many standard errors another model has to be ahead of the first. By 0, what is kept was up
to 3.6 points worse than the first in `examples/real`; by 1, it gained a fifth less."""
FEWEST = 20
"""Fewer held-out labels than this decide nothing: their standard error is too uncertain. The second
of two equally good models would be kept in 24 to 39 % of cases among five or ten, in 27 to 34 %
among 20 or more."""
STRENGTHS = 1, 10, 100, 1_000
"""How many examples of even errors are added to the counts of each predicted class."""


def candidates(warmup: float = 10, num_classes: int | None = None) -> tuple[Method, ...]:
    """Return the methods that are worth a training each where nothing is known of the errors.

    They are plain training, agreement, and agreement that weighs what it counted.

    Args:
        warmup: T_k of `sigua_ag`, in epochs.
        num_classes: k; with more than 4,096 classes the method that counts is left out.

    >>> [method.condition.power for method in candidates(warmup=5)[1:]]
    [0.0, 1.0]
    """
    counts = num_classes is None or num_classes <= MOST_CLASSES
    return standard(), sigua_ag(warmup), *([sigua_ag(warmup, power=1.0)] if counts else [])


@dataclass(frozen=True)
class Choice:
    """What `choose` found; `print` shows it as a table."""

    kept: Any
    """The name, or the method, of the one to keep."""
    accuracies: dict[Any, float]
    """On the held-out labels, in [0, 1]."""
    gains: dict[Any, float]
    """By how much each is ahead of the first: in nats per label, or in accuracy if checked."""
    errors: dict[Any, float]
    """The standard errors of the gains."""
    size: int
    """How many labels were held out."""
    checked: bool
    """Whether they were checked, so that accuracy decides."""

    def __hash__(self) -> int:
        return hash((self.kept, *self.gains.items()))

    def __str__(self) -> str:
        of = "in accuracy" if self.checked else "in nats a label"
        lines = [f"accuracy on {self.size:,} held-out labels; {of}, ahead of the first by"]
        for name, accuracy in self.accuracies.items():
            gain = f"{self.gains[name]:+.3f} +- {self.errors[name]:.3f}"
            kept = " (kept)" if name == self.kept else ""
            lines.append(f"{100 * accuracy:6.1f} %  {gain}  {name}{kept}")
        if self.size < FEWEST:
            lines.append(f"fewer than {FEWEST} labels decide nothing: the first is kept")
        return "\n".join(lines)


def choose(
    predictions: Mapping[Any, ArrayLike], labels: ArrayLike, *, checked: bool = False
) -> Choice:
    """Return which model to keep: the first one, unless another is clearly better.

    A model is scored by the log-likelihood of each held-out label given the class that the model
    predicts, as counted on the other held-out examples; on checked labels, by its accuracy.
    Clearly better means ahead by more than half a standard error of the difference. Fewer
    than 20 held-out labels decide nothing, because their standard error is too uncertain.

    Args:
        predictions: by name, or by method, what each model predicts for the held-out examples:
            classes, (m,), or scores of every class, (m, k). Plain training comes first.
        labels: of the held-out examples, (m,), as they were given. If the predictions are scores
            they are integers in [0, k), or the names of the columns of a data frame.
        checked: whether these labels are right, because someone checked them.

    Raises:
        ValueError: fewer than two models, other shapes, scores that are NaN, or predictions whose
            index is that of the labels in another order.

    >>> labels = np.array([0, 0, 1, 1, 1, 0, 1, 0] * 5)
    >>> plain = np.array([0, 0, 1, 1, 0, 1, 0, 1] * 5)
    >>> choose({"plain": plain, "agreement": labels}, labels).kept
    'agreement'
    """
    checks.flag("checked", checked)
    given, classes = _read(predictions, labels)
    _, numbers = np.unique(np.concatenate([given, *classes.values()]), return_inverse=True)
    given, *numbered = numbers.reshape(-1, len(given))
    classes = dict(zip(classes, numbered, strict=True))
    right = {name: made == given for name, made in classes.items()}
    scores = {
        name: right[name].astype(float) if checked else _likelihood(made, given)
        for name, made in classes.items()
    }
    plain = next(iter(scores))
    ahead = {name: score - scores[plain] for name, score in scores.items()}
    gains = {name: float(each.mean()) for name, each in ahead.items()}
    errors = {name: float(each.std(ddof=1) / len(each) ** 0.5) for name, each in ahead.items()}
    enough = len(given) >= FEWEST
    clear = [name for name, gain in gains.items() if enough and gain > AHEAD * errors[name]]
    kept = max(clear, key=lambda name: gains[name], default=plain)
    accuracies = {name: float(own.mean()) for name, own in right.items()}
    k = int(numbers.max()) + 1
    found, wanted = (np.bincount(each, minlength=k) for each in (classes[kept], given))
    by_chance = float(np.dot(found, wanted)) / len(given)  # of predictions that know nothing
    if by_chance >= 10 and right[kept].sum() < by_chance / 2:
        warnings.warn(
            f"predictions[{kept!r}]: agree with less than half as many labels as by chance; "
            "number the classes of predictions and labels alike",
            stacklevel=2,
        )
    return Choice(kept, accuracies, gains, errors, len(given), checked)


def _read(
    predictions: Mapping[Any, ArrayLike], labels: ArrayLike
) -> tuple[NDArray[Any], dict[Any, NDArray[Any]]]:
    """Return the labels, (m,), and the classes that each model predicts, (m,)."""
    given = checks.classes("labels", labels)
    if given.ndim != 1 or len(given) < 2:
        raise ValueError(
            f"labels: must be at least two, of shape (m,), got shape {given.shape}; "
            "try the labels of some hundred held-out examples"
        )
    if not isinstance(predictions, Mapping) or len(predictions) < 2:
        got = len(predictions) if isinstance(predictions, Mapping) else type(predictions).__name__
        raise ValueError(
            f"predictions: must map at least two names to predictions, got {got}; "
            'try {"plain": model.predict(x), "agreement": other.predict(x)}'
        )
    for name, made in predictions.items():
        checks.same_order(f"predictions[{name!r}]", made, labels, "labels")
    return given, {name: _classes(name, made, given) for name, made in predictions.items()}


def _likelihood(predicted: NDArray[Any], labels: NDArray[Any]) -> Floats:
    """Return log P(label given prediction) of each example, counted on the others, (m,).

    Counts are few. So they are shrunk towards errors that spread evenly over the other classes, as
    strongly as tells most about the labels.
    """
    k, pairs = len(np.union1d(predicted, labels)), predicted * (labels.max() + 1) + labels
    _, pair, times = np.unique(pairs, return_inverse=True, return_counts=True)
    seen, of_all = times[pair.reshape(-1)] - 1, np.bincount(predicted)[predicted] - 1
    right = predicted == labels
    accuracy = (right.sum() - right + 0.5) / len(right)
    even = np.where(right, accuracy, (1 - accuracy) / max(k - 1, 1))
    shrunk = [np.log((seen + each * even) / (of_all + each)) for each in STRENGTHS]
    return np.asarray(max(shrunk, key=np.mean))


def _classes(name: Any, made: Any, labels: NDArray[Any]) -> NDArray[Any]:
    """Return the classes that a model predicts, (m,)."""
    named = f"predictions[{name!r}]"
    found = checks.array(named, made)
    if found.ndim == 2 and len(found) == len(labels) and found.shape[1] > 1:
        columns = column_names(made, None, found.shape[1])
        if columns is None and labels.dtype.kind in "SU":
            raise ValueError(
                f"{named}: must name their classes where labels are words, got scores without "
                "names; try the classes themselves, as clf.predict(x) returns them"
            )
        checks.labels("labels", columns_of("labels", labels, columns), found.shape[1])
        scores = checks.floats(named, found)
        if np.isnan(scores).any():
            raise ValueError(f"{named}: must be scores, got NaN; try leaving this model out")
        best = scores.argmax(axis=1)
        return np.asarray(best if columns is None else np.asarray(columns)[best])
    found = checks.classes(named, found)
    if found.shape != labels.shape:
        raise ValueError(
            f"{named}: must have an entry or a row for each of the {len(labels)} "
            f"labels, got shape {found.shape}; try what model.predict returns, raveled, and above "
            "0.5 if it is the probability of a single output"
        )
    same = (found.dtype.kind in "US") == (labels.dtype.kind in "US")
    if not same or not np.isin(found, labels).any():
        raise ValueError(
            f"{named}: must be classes as in the labels, got {found.tolist()[0]!r} and others "
            f"where a label is {labels.tolist()[0]!r}; try numbering both alike, or scores, (m, k)"
        )
    return found
