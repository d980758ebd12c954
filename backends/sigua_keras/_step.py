"""What is put around a model's training step: numbers go in, counts come out, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from sigua_keras._objective import Objective

JAX = keras.config.backend() == "jax"


def carried(model: Any, objectives: Sequence[Objective], train_step: Any) -> Any:
    """Return a training step that carries our variables on JAX, whoever wrote it.

    Keras's guide to a JAX step calls `compute_loss` outside any stateless scope, where it would
    read the numbers as they were when the step was traced. It must be made anew for each train
    function, because jax.jit knows a function again and would not trace it for another loss.
    """
    if not JAX:
        return train_step

    def step(state: Any, data: Any) -> Any:
        metrics = [metric for objective in objectives for metric in objective.shares.metrics]
        ours = [variable for metric in metrics for variable in metric.variables]
        places = _places(model, ours)
        mapping = [(variable, state[3][i]) for variable, i in zip(ours, places, strict=True)]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            logs, (*others, metrics_variables) = train_step(state, data)
        metrics_variables = list(metrics_variables)
        for i, (variable, before) in zip(places, mapping, strict=True):
            after = scope.get_current_value(variable)
            if after is not before:
                metrics_variables[i] = after
        return logs, (*others, metrics_variables)

    return step


def guarded(
    model: Any,
    objectives: Sequence[Objective],
    train_function: Callable[..., Any],
    refused: Callable[[], None] = lambda: None,
) -> Callable[..., Any]:
    """Return a train function around which clocks run, and which a refusal does not harm.

    Args:
        model: whose function it is.
        objectives: what is trained with.
        train_function: which may take several steps.
        refused: what to do when a step is refused, before the error goes on.
    """

    def function(*args: Any) -> Any:
        if JAX and any(objective.shares.written for objective in objectives):
            args = _with_numbers(model, objectives, args[0]), *args[1:]
        for objective in objectives:
            objective.clock.stepping = True
        try:
            result = train_function(*args)
        except ValueError:
            if JAX:
                _restore(model, args[0])
            refused()
            raise
        finally:
            for objective in objectives:
                objective.clock.stepping = False
        for objective in objectives:
            objective.clock.advance(model)
        return result

    return function


def _places(model: Any, variables: Sequence[Any]) -> list[int]:
    """Return where metrics' variables are in what JAX's step takes and returns."""
    place = {id(v): i for i, v in enumerate(model.metrics_variables)}
    return [place[id(v)] for v in variables]


def _with_numbers(model: Any, objectives: Sequence[Objective], state: Any) -> Any:
    """Return the state of JAX's step with the numbers that were written since the last one."""
    *others, metrics_variables = state
    metrics_variables = list(metrics_variables)
    for objective in objectives:
        numbers = objective.shares.rewritten()
        for i, variable in zip(_places(model, numbers), numbers, strict=True):
            metrics_variables[i] = variable.value
    return *others, metrics_variables


def _restore(model: Any, state: Any) -> None:
    """Give the model its weights back, which JAX's trainer takes while it trains."""
    model.jax_state_sync()
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    for variables, values in zip(groups, state, strict=True):
        for variable, value in zip(variables, values, strict=False):
            variable.assign(value)
