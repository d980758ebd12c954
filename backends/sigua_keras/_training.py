"""A model that trains with SIGUA: a class, in place of the model's own while it trains.

Keras still does regularisers, `add_loss`, loss weights, loss scaling, several outputs and
distribution: only the compiled loss of an output is replaced, by one that is signed.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import keras

from sigua import Method
from sigua_keras import _check
from sigua_keras._objective import Objective
from sigua_keras._outputs import Objectives, set_class

JAX = keras.config.backend() == "jax"
FORGOTTEN_AFTER = 1_000
"""After this many training steps of a model at epoch 0, a warning says that it may be forgotten."""
_at_0: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
# By model, because a new callback for each short `fit` begins at epoch 0 again.
_END_OF_DATA = ("StopIteration", "OutOfRangeError")
"""With which a train function ends an epoch of a data set of unknown length, on TensorFlow."""


class Training:
    """What a model is while it trains with objectives, one for each noisy output; a mixin.

    Attributes:
        _sigua: the objectives, and what they have in common.
    """

    _sigua: Objectives
    train_function: Any
    _compute_loss_has_training_arg: bool  # which it did not before Keras 3.3

    def __init_subclass__(cls, **_: Any) -> None:
        """Do not tell the model's own classes, which may keep lists of theirs."""

    @property
    def metrics(self) -> list[Any]:
        """All metrics; while the model trains, those that carry the schedule are the last."""
        found = list(super().metrics)  # type: ignore[misc]  # of keras.Model
        return found if self._sigua.doing == "evaluation" else found + self._sigua.metrics

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Return the model's total loss: with signed losses while training, plain otherwise."""
        own: Any = super().compute_loss  # type: ignore[misc]  # of keras.Model
        is_plain = not training or self._sigua.doing == "evaluation"
        options = {"training": training} if self._compute_loss_has_training_arg else {}
        with nullcontext() if is_plain else self._sigua.signed(y, y_pred):
            return own(x, y, y_pred, sample_weight, **options)

    def make_train_function(self, force: bool = False) -> Any:
        """Compile the training step, unless there is one."""
        if not force:  # a fit begins; force is used within a fit, after freezing a layer, say
            self._sigua.leave_one_fit()
            if not isinstance(self, Training):
                self.make_train_function()
            if self.train_function is not None:
                return
        self._sigua.check()
        own = vars(self)
        before = {name: own[name] for name in ("train_step",) if name in own}
        step: Any = self.train_step  # type: ignore[attr-defined]  # of keras.Model
        own["train_step"] = carried(self._sigua, step)  # which Keras reads now
        try:
            super().make_train_function(force=True)  # type: ignore[misc]  # of keras.Model
        finally:
            del own["train_step"]
            own.update(before)
        self.train_function = watched(self._sigua, self.train_function)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate with the plain loss, and without our metrics in the logs."""
        with self._sigua.during("evaluation"):
            return super().evaluate(*args, **kwargs)  # type: ignore[misc]  # of keras.Model

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate a mini-batch as `evaluate` does."""
        with self._sigua.during("evaluation"):
            return super().test_on_batch(*args, **kwargs)  # type: ignore[misc]  # of keras.Model

    def _flatten_metrics_in_order(self, logs: dict[str, Any]) -> Any:
        # So that `loss, accuracy = train_on_batch(...)` works.
        ours = {metric.name for metric in self._sigua.metrics}
        logs = {name: value for name, value in logs.items() if name not in ours}
        return super()._flatten_metrics_in_order(logs)  # type: ignore[misc]  # of keras.Model


def objectives_of(model: Any) -> Objectives:
    """Return the objectives that a model trains with, or new ones; refuse what is no model."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"model: must be a model of Keras, got {type(model).__name__}; "
            "try the keras.Model that you compiled"
        )
    return model._sigua if isinstance(model, Training) else Objectives(model)


def add(model: Any, objective: Objective) -> Objectives:
    """Train a model with one more objective; where it is refused, without those of this fit."""
    sigua = objectives_of(model)
    if any(objective.output == other.output for other in sigua.all):
        sigua.leave_one_fit()
        raise _check.another()
    if not sigua.all:
        _enter(model, sigua)
    sigua.put([*sigua.all, objective])
    return sigua


def _enter(model: Any, sigua: Objectives) -> None:
    """Replace the model's class by one of its name that trains with objectives."""
    kind = type(model)
    names = {
        "_sigua": sigua,
        # What Keras saves, copies and names is the user's class. But torch.compile, which is in a
        # step, looks up methods here.
        "__class__": property(lambda self: type(self) if sigua.doing == "step" else kind),
        "_unpickle_model": kind._unpickle_model,  # which a pickle names
    }
    set_class(model, type(kind.__name__, (Training, kind), names))


def watched(sigua: Objectives, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a train function that moves the epochs on, and leaves the model whole on an error."""
    model = sigua.model

    def train_function(*args: Any) -> Any:
        if JAX and any(each.shares.lacks_confidence for each in sigua.all):
            return _opened(sigua, *args)
        if JAX:
            numbers = [number for each in sigua.all for number in each.clock.arrays]
            args = args[0], zip(args[1], itertools.repeat(numbers))  # an endless one
        several = model.steps_per_execution > 1
        before = _count(model, args[0]) if several else 0
        try:
            with sigua.during("step"):
                result = run(*args)
        except Exception as error:
            if type(error).__name__ not in _END_OF_DATA:
                if JAX:
                    _restore(model, args[0])
                sigua.leave_one_fit()
            raise
        steps = _count(model, result[1] if JAX else None) - before if several else 1
        _ask(model, steps, [each.method for each in sigua.all if each.clock.advance(steps)])
        return result

    return train_function


def _count(model: Any, state: Any) -> int:
    """Return how many steps the optimizer has made; on JAX it is told from the trainer's state.

    An execution of several may find fewer than it could make.
    """
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    counter = optimizer._iterations
    if JAX:
        counter = state[2][[id(v) for v in model.optimizer.variables].index(id(counter))]
    return int(keras.ops.convert_to_numpy(counter))


def _ask(model: Any, steps: int, methods: list[Method]) -> None:
    """Warn after many steps of a model at epoch 0, from which nothing moves these methods."""
    before = _at_0.pop(model, 0)
    if not methods:
        return
    _at_0[model] = before + steps
    if before < FORGOTTEN_AFTER <= before + steps:
        warnings.warn(
            f"{FORGOTTEN_AFTER} training steps and still at epoch 0, where {methods[0]!r} begins: "
            "call set_epoch(epoch) before each epoch, use the same callback in a loop of fits, or "
            "count the epochs by SIGUA(method, steps_per_epoch=...)",
            stacklevel=2,
        )


def carried(sigua: Objectives, train_step: Any) -> Any:
    """Return a training step that carries our variables on JAX, also if a user wrote the step.

    The numbers of the epoch come with the data, because the trainer holds the state for an epoch.
    Keras's guide to a JAX step calls `compute_loss` outside any stateless scope, where it would
    read the numbers as they were when the step was traced. Each train function needs a new step,
    because jax.jit recognises a function and would not trace it again for another loss.
    """
    if not JAX:
        return train_step

    def step(state: Any, data: Any) -> Any:
        (*others, values), (data, numbers) = state, data
        values = list(values)
        place = {id(v): i for i, v in enumerate(sigua.model.metrics_variables)}
        variables = [variable for each in sigua.all for variable in each.clock.variables]
        for variable, number in zip(variables, numbers, strict=True):
            values[place[id(variable)]] = keras.ops.convert_to_tensor(number)
        ours = [variable for metric in sigua.metrics for variable in metric.variables]
        mapping = [(variable, values[place[id(variable)]]) for variable in ours]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            logs, (*others, values) = train_step((*others, values), data)
        values = list(values)
        for variable, before in mapping:
            after = scope.get_current_value(variable)
            if after is not before:
                values[place[id(variable)]] = after
        return logs, (*others, values)

    return step


def _opened(sigua: Objectives, state: Any, data: Any) -> Any:
    """Return what JAX's step returns, after a class confidence was made for each objective.

    A step on JAX cannot make variables; the first mini-batch says how many classes there are.
    """
    model, first = sigua.model, next(data)
    _restore(model, state)  # so that the model can be called
    x = keras.utils.unpack_x_y_sample_weight(first)[0]
    given = keras.tree.map_structure(lambda v: keras.KerasTensor(v.shape, v.dtype), x)
    try:
        sigua.open(model.compute_output_spec(given))
    except Exception:
        sigua.leave_one_fit()
        raise
    model.make_train_function(force=True)  # whose state has more variables
    state = model._get_jax_state(*[True] * 4, purge_model_variables=True)
    model._jax_state_synced = False  # as it is while the trainer holds the state
    return model.train_function(state, itertools.chain([first], data))


def _restore(model: Any, state: Any) -> None:
    """Give the model its weights back, which JAX's trainer holds while it trains.

    A step that failed on the device has consumed them: then there is nothing to give back.
    """
    if any(value.is_deleted() for value in keras.tree.flatten(list(state))):
        return
    parts = ("trainable", "non_trainable", "optimizer", "metrics")
    names = (f"{part}_variables" for part in parts)
    model._jax_state, model._jax_state_synced = dict(zip(names, state, strict=True)), False
    model.jax_state_sync()
