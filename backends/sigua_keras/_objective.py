"""SIGUA as a sample weight, for one output, and for all outputs of a model that have a SIGUA.

    sum_i loss_i * (good_i - gamma * bad_i) / n

is the model's own loss with the sample weight good - gamma * bad, which carries no gradient. So the
model's own `compute_loss` is called with this weight, and Keras still does regularisers,
`add_loss`, loss weights, loss scaling and distribution. A stand-in for the compiled loss returns
the losses that were already computed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from sigua import Method
from sigua.conditions import reads
from sigua_keras import _check
from sigua_keras._clock import Clock
from sigua_keras._compiled import stand_in
from sigua_keras._correct import correction_of
from sigua_keras._measure import Loss, Tensor, num_classes, resolve, squeeze_labels
from sigua_keras._outputs import Output, predicted, traced
from sigua_keras._schedule import Shares
from sigua_keras._select import Ranking, Weighed, weigh

ComputeLoss = Callable[..., Tensor]


class Objective:
    """The training objective of one output.

    Args:
        method: the method to train with.
        output: the output it is for; None if there is only one.
        loss: the loss of an example; None for the compiled loss.
        ranking: among which examples, and by which loss, an example is ranked.
        steps_per_epoch: to count the epoch in training steps; None if it is set.

    Raises:
        ValueError: a ranking that does not fit the method, or an unknown loss.
    """

    def __init__(
        self,
        method: Method,
        output: str | int | None,
        loss: Loss,
        ranking: Ranking,
        steps_per_epoch: int | None = None,
    ) -> None:
        _check.ranking(method, *ranking)
        if loss is not None:
            _check.known("loss", loss)
        self.ranking = ranking
        self.method, self.output, self.loss = method, output, loss
        self.correction = correction_of(method)
        self.shares = Shares(method)
        self.clock = Clock(method, self.shares, output, steps_per_epoch)
        self.evaluating = False
        self.reached = False
        self.warned = False
        self.told_of_classless = False
        self._checked: Any = None  # the compiled loss that was checked
        self._network: Any = None

    def check(self, model: Any, network: Any = None) -> None:
        """Raise ValueError on a model that cannot be trained with SIGUA.

        Args:
            model: a compiled model.
            network: the model that predicts, if it is not the same.
        """
        if getattr(model, "loss", None) is None:
            _check.compiled(None, self.output)
        for loss in keras.tree.flatten([self.loss, model.loss]):
            _check.plain(loss)
            if getattr(loss, "reduction", None) == "mean_with_sample_weight":
                raise ValueError(
                    "loss: must not be divided by the sum of its weights, which are signed here, "
                    "got reduction='mean_with_sample_weight'; try 'sum_over_batch_size'"
                )
        network = model if network is None else network
        self._check_outputs(model, network)
        _check.compiled(model.loss, self.output)  # of outputs that are not known yet
        self._require_open(network)
        self._checked, self._network = model._compile_loss, network

    def _check_outputs(self, model: Any, network: Any) -> None:
        """Raise ValueError before training on what the first step would refuse."""
        y_pred = predicted(network)
        if y_pred is None and reads(self.method.condition, "margins"):
            y_pred = traced(network)
        if y_pred is None:
            return
        output = Output(self.output, y_pred, getattr(network, "output_names", None))
        prediction = output.of("y_pred", y_pred)
        compiled = output.of("loss", model.loss)
        _check.compiled(compiled, output.name)
        loss = compiled if self.loss is None else self.loss
        _check.known("loss", loss)
        self.ranking.require_places(loss, prediction)
        if len(prediction.shape) > 1 and prediction.shape[-1] is not None:
            self.correction.check(prediction)
            self.ranking.require_fit(self.method, loss, prediction)
            self.ranking.require_class(self.method, loss, prediction)
            self._open(prediction)

    def _open(self, prediction: Tensor) -> None:
        if self.shares.confidence is not None:
            self.shares.confidence.open(num_classes(prediction))

    def _require_open(self, network: Any) -> None:
        """Raise ValueError if the size of the state is unknown, except on TensorFlow."""
        confidence = self.shares.confidence
        if confidence is None or confidence.variable is not None:
            return
        if keras.config.backend() != "tensorflow":
            raise ValueError(
                "model: must be built before training, because the class confidence has an entry "
                f"per class, got {type(network).__name__} with unknown outputs; try "
                "model(x[:1]) first, a functional model, or by_class=False"
            )

    def measure(
        self, model: Any, output: Output, y: Any, y_pred: Any, sample_weight: Any
    ) -> tuple[Weighed, str | None]:
        """Return the output's losses and weights, and how its losses are reduced.

        Raises:
            ValueError: the model, its labels or its weights do not fit the method.
        """
        if model._compile_loss is not self._checked:  # compiled again in a loop of the user's own
            self.check(model, self._network)
        self.reached = True
        _check.stepping(self.clock)
        prediction = output.of("y_pred", y_pred)
        label = output.of("y", y)
        _check.labels(label, output.name)
        label = squeeze_labels(label, prediction)
        given = output.of("loss", model.loss) if self.loss is None else self.loss
        loss = resolve(given, label, prediction)
        self._open(prediction)  # on TensorFlow, where `fit` builds the model in its first step
        reduction = getattr(loss, "reduction", "sum_over_batch_size")
        measured = loss, label, prediction, sample_weight, self.ranking, reduction
        numbers, state = self.shares.numbers(), self.shares.confidence
        done = weigh(self.method, self.correction, numbers, *measured, state)
        self.shares.count(done.split, done.takes_part, done.asked)
        return done, reduction

    def end_epoch(self, epoch: float, logs: Any) -> None:
        """Raise ValueError if the epoch never called `compute_loss`; give each warning once."""
        self.clock.end_epoch()
        _check.reached(self.reached)
        if not self.told_of_classless:
            self.told_of_classless = _check.classless(self.shares.classless(), epoch)
        if not self.warned:
            shares = ((logs or {}).get(share.name) for share in self.shares.metrics)
            self.warned = _check.idle(self.method, self.clock.began, *shares)


def total_loss(
    objectives: Sequence[Objective],
    model: Any,
    compute_loss: ComputeLoss,
    x: Any,
    y: Any,
    y_pred: Any,
    sample_weight: Any,
    training: bool,
) -> Tensor:
    """Return the model's total loss: SIGUA's while training, its own otherwise.

    Args:
        objectives: each for one output.
        model: a compiled model.
        compute_loss: the model's own, called with the arguments that follow.
        x: inputs.
        y: labels of all outputs.
        y_pred: predictions of all outputs.
        sample_weight: for one output or for all.
        training: whether the model is training.

    Raises:
        ValueError: as for `Objective.measure`; two objectives for one output; or a `compute_loss`
            that leaves out a loss that its method changes.
    """
    if not training or any(objective.evaluating for objective in objectives):
        return compute_loss(x, y, y_pred, sample_weight, training=training)
    names = getattr(model, "output_names", None)
    outputs = [Output(objective.output, y_pred, names) for objective in objectives]
    _check.apart([output.name for output in outputs])
    marked = {
        output.index
        for objective, output in zip(objectives, outputs, strict=True)
        if _check.reads_signs(objective.method)
    }
    # Keras gives every output the same weights; only marked outputs read their signs.
    parts = [
        part if i in marked or not marked or part is None else _magnitude(part)
        for i, part in enumerate(outputs[0].parts(sample_weight))
    ]
    told = []
    for objective, output in zip(objectives, outputs, strict=True):
        done, reduction = objective.measure(model, output, y, y_pred, parts[output.index])
        parts[output.index] = done.weights
        y = output.put(y, done.labels)
        told.append((stand_in(model, output, y, y_pred), done.losses, reduction))
    for loss, losses, reduction in told:
        loss.tell(losses, reduction)
    try:
        total = compute_loss(x, y, y_pred, outputs[0].packed(parts), training=training)
    finally:
        asked = [loss.forget() for loss, *_ in told]
    for objective, was_asked in zip(objectives, asked, strict=True):
        _check.asked(objective.method, was_asked)
    return total


def _magnitude(weights: Any) -> Any:
    return ops.abs(ops.convert_to_tensor(weights, dtype="float32"))


def with_training(compute_loss: ComputeLoss) -> ComputeLoss:
    """Return a `compute_loss` that accepts `training`, which it did not before Keras 3.3."""
    parameters = inspect.signature(compute_loss).parameters.values()
    if any(p.name == "training" or p.kind is p.VAR_KEYWORD for p in parameters):
        return compute_loss
    return lambda x, y, y_pred, sample_weight, training: compute_loss(x, y, y_pred, sample_weight)
