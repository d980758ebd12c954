"""The outputs of a model, their objectives, and what stands in for a compiled loss."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
from keras import ops, tree
from keras.src.trainers.compile_utils import get_loss

from sigua_keras import _check, _loss
from sigua_keras._objective import Objective

EAGER = keras.config.backend() == "torch"
"""Whether a step is eager unless it is compiled."""


class Outputs:
    """The names of a model's outputs: of predictions in a dict or a list, or of a lone tensor."""

    def __init__(self, y_pred: Any, names: list[str] | None) -> None:
        self.mapping = isinstance(y_pred, dict)
        count = len(y_pred) if tree.is_nested(y_pred) else 1
        named = list(names) if names and len(names) == count else list(range(count))
        # Keras flattens a dict in the order of its keys.
        self.names: list[Any] = sorted(y_pred) if self.mapping else named

    def index(self, wanted: str | int | None) -> int:
        """Return the index of an output, by name, by index (not in a dict), or by None for one."""
        if wanted is None and len(self.names) == 1:
            return 0
        if wanted in self.names:
            return self.names.index(wanted)
        if type(wanted) is int and not self.mapping and 0 <= wanted < len(self.names):
            return wanted
        listed = ", ".join(repr(name) for name in self.names)
        raise ValueError(f"output: must be one of {listed}, got {wanted!r}; try one of these")

    def part(self, structure: Any, index: int) -> Any:
        """Return an output's part of a structure; a lone value is the same for every output."""
        if isinstance(structure, dict):
            return structure.get(self.names[index])
        return structure[index] if isinstance(structure, (list, tuple)) else structure


class Objectives:
    """The objectives that a model trains with, each for one output."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.all: list[Objective] = []
        self.doing: str | None = None
        """A "step" of training, whose metrics are shown, or an "evaluation", which is plain."""
        self._standing: Any = None  # the compiled loss in which the objectives stand
        self._here = threading.local()  # tf.distribute traces its replicas in several threads

    @property
    def metrics(self) -> list[Any]:
        return [metric for each in self.all for metric in each.shares.metrics]

    @property
    def asked(self) -> set[Objective | None] | None:
        """Those whose losses were asked for; None where losses are not to be signed."""
        return getattr(self._here, "asked", None)

    @property
    def eager(self) -> bool:
        """Whether values may be read."""
        return EAGER and self.doing == "step" and not self.model.jit_compile

    def put(self, objectives: list[Objective]) -> None:
        """Train with these, which are named after their outputs if there are several."""
        self.all, self._standing = objectives, None
        for each in objectives:
            each.shares.name_after(each.output if len(objectives) > 1 else None)

    def remove(self, *objectives: Objective) -> None:
        """Train without these; the model's class is its own again if none is left."""
        left = [each for each in self.all if each not in objectives]
        if len(left) == len(self.all):
            return
        self._give_back()
        self.put(left)
        self.model.train_function = None
        if not left:
            set_class(self.model, self.model.__class__)

    def leave_one_fit(self) -> None:
        """Train without those that were added for one fit, which is over.

        `fit` does not tell its callbacks when it is interrupted, so the next one cleans up.
        """
        self.remove(*(each for each in self.all if each.for_one_fit))

    def check(self) -> None:
        """Raise ValueError on compiled losses that cannot be weighed."""
        _check.compiled(self.model.loss, self.all[0].output)
        for loss in tree.flatten([self.model.loss, *(each.loss for each in self.all)]):
            _check.reduction(loss)
        strategy = getattr(self.model, "distribute_strategy", None)
        network = getattr(self.model, "_functional", None) or self.model
        y_pred = getattr(network, "_outputs_struct", None)
        if strategy is not None and y_pred is not None:  # a replica cannot make variables
            with strategy.scope():
                self.open(y_pred)

    def open(self, y_pred: Any) -> None:
        """Make the class confidence of each objective, for predictions, symbolic or not."""
        outputs = Outputs(y_pred, getattr(self.model, "output_names", None))
        for each in self.all:
            index = outputs.index(each.output)
            loss = each.loss or outputs.part(self.model.loss, index)
            found = outputs.part(y_pred, index)
            if each.shares.lacks_confidence and len(found.shape) > 1:
                each.shares.open(_loss.num_classes(get_loss(loss, found, found), found))

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Note what the model does."""
        before, self.doing = self.doing, what
        try:
            yield
        finally:
            self.doing = before

    @contextmanager
    def signed(self, y: Any, y_pred: Any) -> Iterator[None]:
        """Sign the losses that the model's own `compute_loss` asks for."""
        if self.model._compile_loss is not self._standing:
            self._stand_in(y, y_pred)
        for each in self.all:
            _check.counted(each.clock.steps_per_epoch, self.doing == "step")
        asked = self._here.asked = set()
        try:
            yield
        finally:
            self._here.asked = None
        for each in self.all:
            each.reached = True
            _check.asked(each.method, each in asked)

    def _stand_in(self, y: Any, y_pred: Any) -> None:
        """Put what signs them in the place of the compiled losses."""
        compiled = self.model._compile_loss
        if not compiled.built:  # on TensorFlow, and in a loop of the user's own
            alone = not tree.is_nested(y) and not tree.is_nested(y_pred)
            (compiled.build if alone else compiled)(y, y_pred)  # the latter computes losses, too
        self._give_back()
        outputs = Outputs(y_pred, getattr(self.model, "output_names", None))
        at = {outputs.index(each.output): each for each in self.all}
        if len(at) < len(self.all):  # one by its name, and one by its index
            raise _check.another()
        signed = []
        for i, entry in enumerate(compiled._flat_losses):
            # The path to the output in the structure of predictions is empty for a lone one.
            place = entry.path[0] if entry.path else outputs.names[0]
            own = at.get(outputs.names.index(place) if place in outputs.names else place)
            compiled._flat_losses[i] = entry._replace(loss=Signed(entry.loss, own, self))
            signed.append(own)
        for index, each in at.items():
            _check.compiled(each if each in signed else None, outputs.names[index])
        self._standing = compiled

    def _give_back(self) -> None:
        """Put the compiled losses back."""
        compiled = self.model._compile_loss
        for i, entry in enumerate(getattr(compiled, "_flat_losses", None) or []):
            if isinstance(entry.loss, Signed):
                compiled._flat_losses[i] = entry._replace(loss=entry.loss.loss)


class Signed(keras.losses.Loss):
    """Stands in for a compiled loss: while the model trains, its values have signed weights.

    Keras still reduces the values, weighs each output and logs its loss. An output without an
    objective is plain.
    """

    def __init__(self, loss: Any, objective: Objective | None, sigua: Objectives) -> None:
        given = loss if objective is None or objective.loss is None else objective.loss
        reduction = getattr(given, "reduction", "sum_over_batch_size")
        super().__init__(name="signed", reduction=reduction, dtype="float32")
        self.loss, self.objective, self._sigua = loss, objective, sigua

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        asked, own = self._sigua.asked, self.objective
        if asked is None:
            return self.loss(y_true, y_pred, sample_weight)
        asked.add(own)
        readers = [each for each in self._sigua.all if _check.reads_signs(each.method)]
        if sample_weight is not None and readers and own not in readers:
            # Keras gives every output the same weights, but to this one the signs are no marks.
            sample_weight = ops.abs(ops.convert_to_tensor(sample_weight, dtype="float32"))
        if own is None:
            return self.loss(y_true, y_pred, sample_weight)
        eager = self._sigua.eager
        losses, weights = own.measure(self.loss, y_true, y_pred, sample_weight, eager)
        return super().__call__(losses, losses, weights)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return y_pred  # the losses that were measured


def set_class(model: Any, kind: type) -> None:
    """Make a model one of another class, although its `__class__` is a property."""
    vars(object)["__class__"].__set__(model, kind)
