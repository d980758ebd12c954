"""The one objective of the callback and the model: SIGUA as a sample weight.

    sum_i loss_i * (good_i - gamma * bad_i) / n

is the model's own loss under the sample weight good - gamma * bad, which carries no gradient. So
the model's own `compute_loss` is called with it, and regularisers, `add_loss`, loss weights, loss
scaling and distribution stay Keras's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from sigua import Method, checks
from sigua.conditions import reads
from sigua_keras import _check
from sigua_keras._correct import Correction
from sigua_keras._margins import require_classes
from sigua_keras._measure import Loss, Tensor, num_classes, resolve, squeeze_labels
from sigua_keras._outputs import Output, predicted, traced
from sigua_keras._schedule import Shares
from sigua_keras._select import Ranking, Weighed, weigh

ComputeLoss = Callable[..., Tensor]

_UNKNOWN = object()


class Given(keras.losses.Loss):
    """Reduces per-example losses that are given as predictions, as Keras reduces its own."""

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return y_pred


class Objective:
    """What stands in for `model.compute_loss` while training.

    Args:
        method: what to train with.
        output: the output it is for; None if there is one only.
        loss: what measures an example; None for the compiled loss.
        ranking: among whom, and by what.
    """

    def __init__(
        self,
        method: Method,
        output: str | int | None,
        loss: Loss,
        ranking: Ranking,
    ) -> None:
        _check.ranking(method, *ranking)
        if loss is not None:
            _check.known("loss", loss)
        self.ranking = ranking
        self.method, self.output, self.loss = method, output, loss
        self.correction = Correction(method)
        self.shares = Shares(method)
        self.evaluating = False
        self.reached = False
        self.warned = False
        self.loss_weights: Any = _UNKNOWN

    def check(self, model: Any, network: Any = None) -> None:
        """Refuse a model that cannot be trained with SIGUA; note its loss weights.

        Args:
            model: a compiled model.
            network: what predicts, if it is not the model itself.
        """
        if self.loss is None and getattr(model, "loss", None) is None:
            advice = "name one in model.compile(optimizer, loss), or pass loss= here"
            raise checks.refuse("loss", "SIGUA weighs the compiled loss", "none came", advice)
        for loss in keras.tree.flatten([self.loss, model.loss]):
            if getattr(loss, "reduction", None) == "mean_with_sample_weight":
                rule = "must not be divided by the sum of its weights, which are signed here"
                came = "reduction='mean_with_sample_weight' came"
                raise checks.refuse("loss", rule, came, "use 'sum_over_batch_size'")
        network = model if network is None else network
        self._check_outputs(model, network)
        self._require_open(network)
        if self.method.correction != "none":
            self.loss_weights = model.get_compile_config().get("loss_weights")

    def _check_outputs(self, model: Any, network: Any) -> None:
        """Refuse, before training, what the first step would: on JAX that loses the weights."""
        for loss in (self.loss, model.loss):
            _check.plain(loss)
        y_pred = predicted(network)
        margins = reads(self.method.condition, "margins")
        if y_pred is None and margins:
            y_pred = traced(network)
        if y_pred is None:
            return
        output = Output(self.output, y_pred, getattr(network, "output_names", None))
        prediction = output.of("y_pred", y_pred)
        loss = self.loss if self.loss is not None else output.of("loss", model.loss)
        _check.plain(loss)
        if len(prediction.shape) > 1 and prediction.shape[-1] is not None:
            self.correction.check(loss, prediction)
            self.ranking.require_fit(self.method, loss, prediction)
            if margins:
                require_classes(loss, prediction.shape[-1])
            self._open(prediction)

    def _open(self, prediction: Tensor) -> None:
        if self.shares.confidence is not None:
            self.shares.confidence.open(num_classes(prediction))

    def _require_open(self, network: Any) -> None:
        """Refuse a state whose size is unknown; TensorFlow makes it in the first step."""
        confidence = self.shares.confidence
        if confidence is None or confidence.variable is not None:
            return
        if keras.config.backend() != "tensorflow":
            raise ValueError(
                "model: must be built before training, for the class confidence has a place per "
                f"class, got a {type(network).__name__} whose outputs are unknown; try "
                "model(x[:1]) first, a functional model, or by_class=False"
            )

    def __call__(
        self,
        model: Any,
        compute_loss: ComputeLoss,
        x: Any,
        y: Any,
        y_pred: Any,
        sample_weight: Any,
        training: bool,
    ) -> Tensor:
        """Return the model's total loss: SIGUA's while training, else untouched."""
        if self.evaluating or not training:
            return _call(compute_loss, x, y, y_pred, sample_weight, training)
        self.reached = True
        output = Output(self.output, y_pred, getattr(model, "output_names", None))
        prediction = output.of("y_pred", y_pred)
        label = squeeze_labels(output.of("y", y), prediction)
        given = self.loss if self.loss is not None else output.of("loss", model.loss)
        _check.plain(given)
        loss = resolve(given, label, prediction)
        weight = output.of("sample_weight", sample_weight)
        self._open(prediction)  # on TensorFlow, where `fit` builds the model in its first step
        numbers = self.shares.numbers()
        measured = loss, label, prediction, weight
        state = self.shares.confidence
        done = weigh(self.method, self.correction, numbers, *measured, self.ranking, state)
        self.shares.count(done.split, done.size)
        corrected = self.method.correction != "none"
        # A corrected loss is no sample weight of the compiled one, which therefore weighs nothing.
        weights = ops.zeros_like(done.weights) if corrected else done.weights
        weights = output.spread(sample_weight, weights, _check.reads_signs(self.method))
        total = _call(compute_loss, x, output.put(y, label), y_pred, weights, training)
        return total + self._beside(model, output, loss, done) if corrected else total

    def end_epoch(self, epoch: float, logs: Any) -> None:
        """Refuse an epoch that never asked for the loss; warn once of a selection that is idle."""
        _check.reached(self.reached)
        if not self.warned:
            self.warned = _check.idle(self.method, epoch, logs)

    def _beside(self, model: Any, output: Output, loss: Loss, done: Weighed) -> Tensor:
        """Return the corrected losses, reduced and scaled as Keras would the compiled loss."""
        if self.loss_weights is _UNKNOWN:  # a loop of one's own, which makes no train function
            self.check(model)
        reduce = Given("sigua", reduction=getattr(loss, "reduction", "sum_over_batch_size"))
        value = reduce(done.losses, done.losses, sample_weight=done.weights)
        scale = output.of("loss_weights", self.loss_weights)
        return value if scale is None else value * scale


def _call(
    compute_loss: ComputeLoss, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: bool
) -> Tensor:
    """Call a `compute_loss`, which was without `training` before Keras 3.3."""
    parameters = inspect.signature(compute_loss).parameters.values()
    if any(p.name == "training" or p.kind is p.VAR_KEYWORD for p in parameters):
        return compute_loss(x, y, y_pred, sample_weight, training=training)
    return compute_loss(x, y, y_pred, sample_weight)
