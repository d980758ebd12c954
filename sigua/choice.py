"""Which of several trained models to keep, by labels that none of them was trained on.

By the labels it is trained on, a network that memorises looks like one that learns. By held-out
labels it does not, though some of them are wrong: errors that do not depend on the input lower the
accuracy of all models alike. Where errors depend on the input, a model that repeats them seems
better than it is, and checked labels have to choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks
from sigua._method import Method
from sigua.methods import sigua_ag, standard


def candidates(warmup: float = 10) -> tuple[Method, ...]:
    """Return the methods that are worth a training each where nothing is known of the errors.

    They are plain training, agreement, and agreement that weighs what it counted. One of them was
    the best of what needs to be given nothing, or near it, wherever we measured.

    Args:
        warmup: T_k of `sigua_ag`, in epochs.

    >>> [method.condition.power for method in candidates(warmup=5)[1:]]
    [0.0, 1.0]
    """
    return standard(), sigua_ag(warmup), sigua_ag(warmup, power=1.0)


@dataclass(frozen=True)
class Choice:
    """What `choose` found; `print` shows it as a table."""

    kept: Any
    """The name, or the method, of the one to keep."""
    accuracies: dict[Any, float]
    """On the held-out labels, in [0, 1]."""
    errors: dict[Any, float]
    """The standard error of each accuracy less the first one, from the same examples."""
    size: int
    """How many labels were held out."""

    def __str__(self) -> str:
        first = next(iter(self.accuracies.values()))
        lines = [f"accuracy on {self.size:,} held-out labels, and ahead of the first by"]
        for name, accuracy in self.accuracies.items():
            ahead, error = 100 * (accuracy - first), 100 * self.errors[name]
            kept = " (kept)" if name == self.kept else ""
            lines.append(f"{100 * accuracy:6.1f} %  {ahead:+5.1f} +- {error:.1f}  {name}{kept}")
        return "\n".join(lines)


def choose(predictions: Mapping[Any, ArrayLike], labels: ArrayLike) -> Choice:
    """Return which model to keep: the first one, unless another is clearly more accurate.

    That is, by more than one standard error of the difference, which is smaller than that of either
    accuracy, as both are asked about the same examples.

    Args:
        predictions: by name, or by method, what each model predicts for the held-out examples:
            classes, (m,), or scores of every class, (m, k). Plain training comes first.
        labels: of the held-out examples, (m,), as they were given, or better checked ones. If the
            predictions are scores they are integers in [0, k).

    Raises:
        ValueError: fewer than two models, other shapes, or scores that are NaN.

    >>> labels = np.array([0, 0, 1, 1, 1, 0, 1, 0])
    >>> plain = np.array([0, 0, 1, 1, 0, 1, 0, 1])
    >>> choose({"plain": plain, "agreement": labels}, labels).kept
    'agreement'
    """
    given = checks.array("labels", labels)
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
    right = {name: _right(name, made, given) for name, made in predictions.items()}
    first = next(iter(right.values())).astype(float)
    ahead = {name: own - first for name, own in right.items()}
    errors = {name: float(each.std(ddof=1) / len(each) ** 0.5) for name, each in ahead.items()}
    best = max(ahead, key=lambda name: float(ahead[name].mean()))
    plain = next(iter(right))
    kept = best if ahead[best].mean() > errors[best] else plain
    accuracies = {name: float(own.mean()) for name, own in right.items()}
    return Choice(kept, accuracies, errors, len(given))


def _right(name: Any, made: ArrayLike, labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which labels a model predicts, (m,)."""
    found = checks.array(f"predictions[{name!r}]", made)
    if found.ndim == 2 and len(found) == len(labels):
        wanted = checks.labels("labels", labels, found.shape[1])
        scores = checks.floats(f"predictions[{name!r}]", found)
        if np.isnan(scores).any():
            raise ValueError(
                f"predictions[{name!r}]: must be scores, got NaN; try leaving this model out"
            )
        return np.asarray(scores.argmax(axis=1) == wanted)
    if found.shape != labels.shape:
        raise ValueError(
            f"predictions[{name!r}]: must have an entry or a row for each of the {len(labels)} "
            f"labels, got shape {found.shape}; try model.predict of the held-out examples"
        )
    return np.asarray(found == labels)
