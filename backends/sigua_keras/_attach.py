"""Standing in for a model's own methods while it trains, and stepping back without a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import keras

from sigua import checks
from sigua_keras._objective import Objective

_PATCHED = ("compute_loss", "evaluate", "test_on_batch", "make_train_function", "train_step")


class Attachment:
    """An objective in the place of a model's `compute_loss`.

    The methods are put beside the model's own, in its `__dict__`: past Keras's tracker, which is
    locked once a subclassed model is built, and out of what is saved.

    Args:
        model: a compiled model.
        objective: what takes the place of its loss while training.
        for_one_fit: whether to step back when the next training begins. `fit` that is interrupted
            tells its callbacks nothing, so that this is how the model gets clean.

    Raises:
        ValueError: the model cannot be trained with SIGUA, or already is.
    """

    for_one_fit: bool

    def __init__(self, model: Any, objective: Objective, for_one_fit: bool) -> None:
        other = getattr(model, "_sigua", None)
        if other is not None:
            if isinstance(other, Attachment) and other.for_one_fit:
                other.remove()
            rule = "a model has one SIGUA at a time"
            advice = "use one callback, a SIGUAModel, or attach(); detach() the other"
            raise checks.refuse("model", rule, "it has another", advice)
        with strategy_scope(model):
            objective.check(model)
        self.model, self.objective, self.for_one_fit = model, objective, for_one_fit
        self._own = {name: getattr(model, name) for name in _PATCHED}
        vars(model).update(self._patches(), _sigua=self)
        track(model, objective)
        try:
            require_tracked(model, objective)
        except ValueError:
            self.remove()
            raise
        # Without force, a model that was fitted before would go on with its plain step.
        self._own["make_train_function"](force=True)

    def _patches(self) -> dict[str, Callable[..., Any]]:
        model, objective, own = self.model, self.objective, self._own

        def compute_loss(
            x: Any = None,
            y: Any = None,
            y_pred: Any = None,
            sample_weight: Any = None,
            training: bool = True,
        ) -> Any:
            return objective(model, own["compute_loss"], x, y, y_pred, sample_weight, training)

        def make_train_function(force: bool = False) -> Any:
            if not self.for_one_fit:
                return own["make_train_function"](force=force)
            self.remove()
            return model.make_train_function(force=force)

        def evaluate(*args: Any, **kwargs: Any) -> Any:
            with evaluating(model, objective):
                return own["evaluate"](*args, **kwargs)

        def test_on_batch(*args: Any, **kwargs: Any) -> Any:
            with evaluating(model, objective):
                return own["test_on_batch"](*args, **kwargs)

        patches = (compute_loss, evaluate, test_on_batch, make_train_function)
        named = {patch.__name__: patch for patch in patches}
        return named | {"train_step": carried(model, objective, own["train_step"])}

    def remove(self) -> None:
        """Give the model its own methods back; its training step is compiled anew when needed."""
        if vars(self.model).get("_sigua") is not self:
            return
        for name in (*_PATCHED, "_sigua"):
            vars(self.model).pop(name)
        untrack(self.model, self.objective)
        self.model.train_function = None


def track(model: Any, objective: Objective) -> None:
    """Show the model the metrics that carry the schedule; only between epochs on JAX."""
    # Its own list, because an attribute would be saved with the model.
    model._metrics.extend(objective.shares.metrics)
    # Up to Keras 3.11, JAX's trainer notes how many there are when fit or evaluate begins.
    note = getattr(model, "_record_training_state_sharding_spec", None)
    if note is not None and model.compiled:
        note()


def require_tracked(model: Any, objective: Objective) -> None:
    """Raise ValueError if the model's own `metrics` leaves ours out."""
    if not any(metric is objective.shares.good for metric in model.metrics):
        rule = "must hold what keras.Model puts there, where SIGUA keeps its schedule"
        came = "the model's own property leaves it out"
        raise checks.refuse("metrics", rule, came, "return [*super().metrics, ...] there")


def untrack(model: Any, objective: Objective) -> None:
    """Hide them again."""
    ours = objective.shares.metrics
    model._metrics[:] = [m for m in model._metrics if not any(m is own for own in ours)]


@contextmanager
def evaluating(model: Any, objective: Objective) -> Iterator[None]:
    """Leave an evaluation alone: its loss is the plain one, and its logs are what they were."""
    outer, objective.evaluating = objective.evaluating, True
    untrack(model, objective)
    try:
        yield
    finally:
        objective.evaluating = outer
        if not outer and getattr(model, "_sigua", None) is not None:
            track(model, objective)


def strategy_scope(model: Any) -> Any:
    """Return the scope in which the model's variables are made: tf.distribute's, if any."""
    strategy = getattr(model, "distribute_strategy", None)
    return nullcontext() if strategy is None else strategy.scope()


def carried(model: Any, objective: Objective, train_step: Any) -> Any:
    """Return a training step that carries our variables on JAX, whoever wrote it.

    Keras's guide to a JAX step calls `compute_loss` outside any stateless scope, where it would
    read the numbers as they were when the step was traced.
    """
    if keras.config.backend() != "jax":
        return train_step

    def step(state: Any, data: Any) -> Any:
        place = {id(v): i for i, v in enumerate(model.metrics_variables)}
        ours = [v for metric in objective.shares.metrics for v in metric.variables]
        mapping = [(v, state[3][place[id(v)]]) for v in ours]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            logs, (*others, metrics_variables) = train_step(state, data)
        metrics_variables = list(metrics_variables)
        for variable, before in mapping:
            after = scope.get_current_value(variable)
            if after is not before:
                metrics_variables[place[id(variable)]] = after
        return logs, (*others, metrics_variables)

    return step
