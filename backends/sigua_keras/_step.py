"""Wrappers of a model's training step: numbers go in, counts come out, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from sigua_keras._objective import Objective

JAX = keras.config.backend() == "jax"
_END_OF_DATA = ("StopIteration", "OutOfRangeError")
"""With which a train function ends an epoch of a data set of unknown length, on TensorFlow."""


def carried(model: Any, objectives: Sequence[Objective], train_step: Any) -> Any:
    """Return a training step that carries our variables on JAX, also if a user wrote the step.

    Keras's guide to a JAX step calls `compute_loss` outside any stateless scope, where it would
    read the numbers as they were when the step was traced. Each train function needs a new step,
    because jax.jit recognises a function and would not trace it again for another loss.
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
    """Return a train function that advances the clocks, and leaves the model whole on an error.

    Args:
        model: the model it trains.
        objectives: the objectives it is trained with.
        train_function: the function to wrap, which may take several steps.
        refused: called when a step raises an error, before it is raised again.
    """

    def function(*args: Any) -> Any:
        if JAX and any(objective.shares.written for objective in objectives):
            args = _with_numbers(model, objectives, args[0]), *args[1:]
        for objective in objectives:
            objective.clock.stepping = True
        try:
            result = train_function(*args)
        except Exception as error:
            if type(error).__name__ in _END_OF_DATA:
                raise
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
    """Return where the variables are among those that JAX's step takes and returns."""
    place = {id(v): i for i, v in enumerate(model.metrics_variables)}
    return [place[id(v)] for v in variables]


def _with_numbers(model: Any, objectives: Sequence[Objective], state: Any) -> Any:
    """Return the state of JAX's step with the numbers written since the last step."""
    *others, metrics_variables = state
    metrics_variables = list(metrics_variables)
    for objective in objectives:
        numbers = objective.shares.rewritten()
        for i, variable in zip(_places(model, numbers), numbers, strict=True):
            metrics_variables[i] = variable.value
    return *others, metrics_variables


def _restore(model: Any, state: Any) -> None:
    """Give the model its weights back, which JAX's trainer holds while it trains.

    A step that failed on the device has consumed them: then there is nothing to give back.
    """
    if any(value.is_deleted() for value in keras.tree.flatten(list(state))):
        return
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
