"""Our metrics among a model's: shown while it trains, hidden while it is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sigua import checks
from sigua_keras._objective import Objective


def track(model: Any, objectives: Sequence[Objective]) -> None:
    """Show the model the metrics that carry the schedule; only between epochs on JAX."""
    # Its own list, because an attribute would be saved with the model.
    model._metrics.extend(metric for each in objectives for metric in each.shares.metrics)


def require_tracked(model: Any, objective: Objective) -> None:
    """Raise ValueError if the model's own `metrics` leaves ours out."""
    if not any(metric is objective.shares.good for metric in model.metrics):
        rule = "must hold what keras.Model puts there, where SIGUA keeps its schedule"
        came = "the model's own property leaves it out"
        raise checks.refuse("metrics", rule, came, "return [*super().metrics, ...] there")


def untrack(model: Any, objectives: Sequence[Objective]) -> None:
    """Hide them again."""
    ours = [metric for each in objectives for metric in each.shares.metrics]
    model._metrics[:] = [m for m in model._metrics if not any(m is own for own in ours)]


def without_shares(logs: dict[str, Any], objectives: Sequence[Objective]) -> dict[str, Any]:
    """Return logs without our metrics: `loss, accuracy = train_on_batch(...)` stays true."""
    ours = {metric.name for each in objectives for metric in each.shares.metrics}
    return {name: value for name, value in logs.items() if name not in ours}


@contextmanager
def evaluating(model: Any, objectives: Sequence[Objective]) -> Iterator[None]:
    """Leave an evaluation alone: its loss is the plain one, and its logs are what they were."""
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
