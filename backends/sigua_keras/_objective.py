"""The one objective of the callback and the model: SIGUA as a sample weight.

    sum_i loss_i * (good_i - gamma * bad_i) / n

is the model's own loss under the sample weight good - gamma * bad, which carries no gradient. So
the model's own `compute_loss` is called with it, and regularisers, `add_loss`, loss weights, loss
scaling and distribution stay Keras's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from sigua import Method, checks, conditions
from sigua_keras import _check
from sigua_keras._batch import Batch, ClassBatch, signed_weights
from sigua_keras._correction import Correction
from sigua_keras._losses import (
    Loss,
    Tensor,
    is_alias,
    is_cross_entropy,
    label_index,
    num_classes,
    per_example,
    resolve,
    squeeze_labels,
)
from sigua_keras._outputs import Output, predicted
from sigua_keras._shares import Shares

ComputeLoss = Callable[..., Tensor]

_UNKNOWN = object()


class Ranking(NamedTuple):
    """Among whom an example is ranked, and by what."""

    per_class: bool = False
    rank_by: Loss = None
    """A loss object or function; None for what is optimised."""

    def require_fit(self, method: Method, loss: Loss, y_pred: Tensor) -> None:
        """Raise ValueError if the method needs cross-entropy, and another loss would decide."""
        if method.needs_cross_entropy:
            name, loss = ("loss", loss) if self.rank_by is None else ("rank_by", self.rank_by)
            plain = is_alias(loss) or is_cross_entropy(keras.losses.get(loss), y_pred)
            method.require_cross_entropy(name, plain, repr(loss), "use cross-entropy")


class Weighed(NamedTuple):
    """A mini-batch, measured and decided."""

    losses: Tensor
    """(n,) what is optimised per example, with gradient."""
    split: Any
    weights: Tensor
    """(n,) float32: signed, times the user's own."""
    size: Tensor
    """How many examples take part."""


def weigh(
    method: Method,
    correction: Correction,
    numbers: tuple[Any, ...],
    loss: Loss,
    y_true: Tensor,
    y_pred: Tensor,
    sample_weight: Tensor | None,
    ranking: Ranking,
) -> Weighed:
    """Measure, decide and weigh one mini-batch.

    Args:
        method: what to train with.
        correction: the method's.
        numbers: gamma, then the condition's.
        loss: a loss object or function of Keras.
        y_true: labels.
        y_pred: predictions, (n, k) or (n, 1).
        sample_weight: (n,) or (n, 1); scales but does not rank, and 0 takes no rank. For `Known`
            and a condition of your own, the sign says who is trusted; else a negative one is NaN.
        ranking: among whom, and by what.
    """
    ranking.require_fit(method, loss, y_pred)
    losses, class_sums = correction(loss, y_true, y_pred)
    takes_part = ops.ones_like(losses, dtype="bool")
    ignored = getattr(loss, "ignore_class", None)
    if ignored is not None:
        takes_part = label_index(y_true, y_pred) != ignored
    weight, trusted = _weight_and_mark(method, sample_weight)
    if weight is not None:
        takes_part = takes_part & (weight != 0)
    ranked = losses
    if ranking.rank_by is not None:
        ranked = per_example(resolve(ranking.rank_by, y_true, y_pred), y_true, y_pred)
    size = ops.sum(ops.cast(takes_part, "int32"))
    given = ops.stop_gradient(ranked), takes_part, trusted, class_sums
    if ranking.per_class:
        k = num_classes(y_pred)
        labels = ops.clip(label_index(y_true, y_pred), 0, k - 1)  # what is ignored may be outside
        batch: Batch = ClassBatch(labels, k, *given)
    else:
        batch = Batch(*given)
    split = conditions.choose(method.condition, batch, tuple(numbers[1:]))
    signed = signed_weights(split, numbers[0], size, method.separate)
    return Weighed(losses, split, signed if weight is None else signed * weight, size)


def _weight_and_mark(method: Method, sample_weight: Any) -> tuple[Tensor | None, Tensor | None]:
    _check.weight(method, sample_weight)
    if sample_weight is None:
        return None, None
    weight = ops.convert_to_tensor(sample_weight, dtype="float32")
    if len(weight.shape) == 2 and weight.shape[-1] == 1:
        weight = ops.squeeze(weight, -1)
    if len(weight.shape) != 1:
        came = f"shape {tuple(weight.shape)} came"
        raise checks.refuse("sample_weight", "must be one per example", came, "give shape (n,)")
    if _check.reads_signs(method):
        return ops.abs(weight), weight > 0
    # Inside a trace nobody can be told; a loss of NaN is at least seen, and climbing is not.
    return ops.where(weight < 0, float("nan"), weight), None


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
        self._check_outputs(model, model if network is None else network)
        if self.method.correction != "none":
            self.loss_weights = model.get_compile_config().get("loss_weights")

    def _check_outputs(self, model: Any, network: Any) -> None:
        """Refuse, before training, what the first step would: on JAX that loses the weights."""
        for loss in (self.loss, model.loss):
            _check.plain(loss)
        y_pred = predicted(network)
        if y_pred is None:
            return
        output = Output(self.output, y_pred, getattr(network, "output_names", None))
        prediction = output.of("y_pred", y_pred)
        loss = self.loss if self.loss is not None else output.of("loss", model.loss)
        _check.plain(loss)
        if len(prediction.shape) > 1 and prediction.shape[-1] is not None:
            self.correction.check(loss, prediction)
            self.ranking.require_fit(self.method, loss, prediction)

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
        numbers = self.shares.numbers()
        measured = loss, label, prediction, weight
        done = weigh(self.method, self.correction, numbers, *measured, self.ranking)
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
