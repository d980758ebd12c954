"""Replace methods of a model while it trains, and restore them without a trace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import keras

from sigua_keras import _compiled
from sigua_keras._metrics import evaluating, require_tracked, track, untrack, without_shares
from sigua_keras._objective import Objective, total_loss, with_training
from sigua_keras._step import carried, guarded

_PATCHED = (
    "compute_loss",
    "evaluate",
    "test_on_batch",
    "make_train_function",
    "train_step",
    "_flatten_metrics_in_order",
)


class Attachment:
    """Replaces a model's `compute_loss` by objectives, one for each output.

    The new methods are written to the model's `__dict__`. So they bypass Keras's tracker, which is
    locked once a subclassed model is built, and are not saved.

    Args:
        model: a compiled model.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.objectives: list[Objective] = []
        self.for_one_fit: list[Objective] = []
        """Those that are removed when the next training begins: `fit` does not tell its callbacks
        when it is interrupted, so this is how the model is cleaned up then."""
        self._own = {name: getattr(model, name) for name in _PATCHED}
        self._own["compute_loss"] = with_training(self._own["compute_loss"])

    @staticmethod
    def of(model: Any) -> Attachment:
        """Return the model's attachment, or a new one.

        Raises:
            ValueError: the model is a `SIGUAModel`, or no model of Keras.
        """
        if not isinstance(model, keras.Model):
            raise ValueError(
                f"model: must be a model of Keras, got {type(model).__name__}; "
                "try the keras.Model that you compiled"
            )
        found = getattr(model, "_sigua", None)
        if isinstance(found, Objective):
            raise _another()
        return found if isinstance(found, Attachment) else Attachment(model)

    def add(self, objective: Objective, for_one_fit: bool) -> None:
        """Train with one more objective.

        Raises:
            ValueError: the model cannot be trained with it, or already has one for that output.
                Those for this fit are then removed, too.
        """
        try:
            if any(objective.output == other.output for other in self.objectives):
                raise _another()
            with strategy_scope(self.model):
                objective.check(self.model)
            self._take(objective)
            require_tracked(self.model, objective)
        except Exception:
            self.leave_one_fit()
            self.remove(objective)
            raise
        if for_one_fit:
            self.for_one_fit.append(objective)
        self._make_train_function()

    def _take(self, objective: Objective) -> None:
        vars(self.model).update(self._patches(), _sigua=self)
        untrack(self.model, self.objectives)
        self.objectives.append(objective)
        self._name()
        track(self.model, self.objectives)

    def remove(self, *objectives: Objective) -> None:
        """Train without these; after the last one the model has its own methods again.

        Its training step is compiled again when needed.
        """
        leaving = [each for each in self.objectives if each in objectives]
        if not leaving:
            return
        untrack(self.model, self.objectives)
        self.objectives = [each for each in self.objectives if each not in leaving]
        self.for_one_fit = [each for each in self.for_one_fit if each not in leaving]
        self.model.train_function = None
        if self.objectives:
            self._name()
            track(self.model, self.objectives)
            return
        for name in (*_PATCHED, "_sigua"):
            vars(self.model).pop(name, None)
        _compiled.give_back(self.model)

    def leave_one_fit(self) -> None:
        """Train without those that were added for one fit, which is over."""
        self.remove(*self.for_one_fit)

    def _name(self) -> None:
        several = len(self.objectives) > 1
        for objective in self.objectives:
            objective.shares.name_after(objective.output if several else None)

    def _make_train_function(self) -> None:
        for objective in self.objectives:
            objective.check(self.model)
        step = carried(self.model, self.objectives, self._own["train_step"])
        vars(self.model)["train_step"] = step
        # Without force, a model that was fitted before would keep its plain step.
        self._own["make_train_function"](force=True)
        self.model.train_function = guarded(
            self.model, self.objectives, self.model.train_function, self.leave_one_fit
        )

    def _patches(self) -> dict[str, Callable[..., Any]]:
        model, own = self.model, self._own

        def compute_loss(
            x: Any = None,
            y: Any = None,
            y_pred: Any = None,
            sample_weight: Any = None,
            training: bool = True,
        ) -> Any:
            given = x, y, y_pred, sample_weight, training
            return total_loss(self.objectives, model, own["compute_loss"], *given)

        def make_train_function(force: bool = False) -> Any:
            if not force:  # a fit begins; force is used within a fit, after freezing a layer, say
                self.leave_one_fit()
            if not self.objectives:
                return model.make_train_function(force=force)
            if force or model.train_function is None:
                self._make_train_function()
            return model.train_function

        def evaluate(*args: Any, **kwargs: Any) -> Any:
            with evaluating(model, self.objectives):
                return own["evaluate"](*args, **kwargs)

        def test_on_batch(*args: Any, **kwargs: Any) -> Any:
            with evaluating(model, self.objectives):
                return own["test_on_batch"](*args, **kwargs)

        def _flatten_metrics_in_order(logs: Any) -> Any:
            return own["_flatten_metrics_in_order"](without_shares(logs, self.objectives))

        patches = (
            compute_loss,
            make_train_function,
            evaluate,
            test_on_batch,
            _flatten_metrics_in_order,
        )
        return {patch.__name__: patch for patch in patches}


def _another() -> ValueError:
    return ValueError(
        "model: must have one SIGUA at a time for each output, got a second one; "
        "try one callback, a SIGUAModel, or attach(), and detach() the other"
    )


def strategy_scope(model: Any) -> Any:
    """Return the scope in which the model's variables are made: that of tf.distribute, if any."""
    strategy = getattr(model, "distribute_strategy", None)
    return nullcontext() if strategy is None else strategy.scope()
