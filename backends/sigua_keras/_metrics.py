"""Our metrics in a model's list: there while it trains, hidden while it is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sigua_keras._objective import Objective


def track(model: Any, objectives: Sequence[Objective]) -> None:
    """Add the metrics that carry the schedule to the model; on JAX only between epochs."""
    # To its own list, because an attribute would be saved with the model.
    model._metrics.extend(metric for each in objectives for metric in each.shares.metrics)


def require_tracked(model: Any, objective: Objective) -> None:
    """Raise ValueError if the model's own `metrics` property leaves ours out."""
    if not any(metric is objective.shares.good for metric in model.metrics):
        raise ValueError(
            "metrics: must have all that keras.Model puts there, because SIGUA keeps its schedule "
            "in them, got a property that leaves some out; try [*super().metrics, ...] in it"
        )


def untrack(model: Any, objectives: Sequence[Objective]) -> None:
    """Remove these metrics again."""
    ours = [metric for each in objectives for metric in each.shares.metrics]
    model._metrics[:] = [m for m in model._metrics if not any(m is own for own in ours)]


def without_shares(logs: dict[str, Any], objectives: Sequence[Objective]) -> dict[str, Any]:
    """Return logs without our metrics, so that `loss, accuracy = train_on_batch(...)` works."""
    ours = {metric.name for each in objectives for metric in each.shares.metrics}
    return {name: value for name, value in logs.items() if name not in ours}


@contextmanager
def evaluating(model: Any, objectives: Sequence[Objective]) -> Iterator[None]:
    """Evaluate with the plain loss, and without our metrics in the logs."""
    objectives = [each for each in objectives if not each.evaluating]
    for objective in objectives:
        objective.evaluating = True
    untrack(model, objectives)
    try:
        yield
    finally:
        for objective in objectives:
            objective.evaluating = False
        if getattr(model, "_sigua", None) is not None:
            track(model, objectives)
