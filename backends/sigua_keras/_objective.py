"""SIGUA as a sample weight, for one output.

    sum_i loss_i * (good_i - gamma * bad_i) / n

is the model's own loss with the sample weight good - gamma * bad, which carries no gradient.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops
from keras.src.backend import set_keras_mask
from keras.src.trainers.compile_utils import get_loss

from sigua import Method, Split, step
from sigua.conditions import reads
from sigua.confidence import moved, zeros
from sigua.requirements import require_method
from sigua_keras import _check, _loss, _ops
from sigua_keras._check import Groups
from sigua_keras._examples import Examples, Part, column_of
from sigua_keras._loss import Loss, Tensor
from sigua_keras._ops import TENSORS, view_of
from sigua_keras._schedule import Clock, Shares


class Objective:
    """The training objective of one output; the arguments are those of `SIGUA`."""

    def __init__(
        self,
        method: Method,
        output: str | int | None,
        loss: Loss,
        groups: Groups,
        steps_per_epoch: int | None,
    ) -> None:
        self.method, self.output, self.loss, self.groups = method, output, loss, groups
        self.matrix = step.matrix(_ops, method, None)  # not in a step, which would copy it
        self.shares = Shares(method)
        self.clock = Clock(self.shares, steps_per_epoch)
        self.for_one_fit = self.reached = self._warned = self._told_of_lost = False

    def measure(
        self, compiled: Loss, y_true: Tensor, y_pred: Tensor, sample_weight: Any, eager: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the losses, with gradient and mask, and their signed weights; both (n, ...).

        Args:
            compiled: the loss to optimise if no other was given.
            y_true: labels of the output.
            y_pred: its predictions.
            sample_weight: scales losses, and may mark them by its sign; None for ones.
            eager: whether values may be read.

        Raises:
            ValueError: labels, predictions or weights that do not fit the method.
        """
        method, shares, view = self.method, self.shares, view_of(y_pred, eager)
        _check.weight(method, sample_weight)
        loss = get_loss(self.loss, y_true, y_pred) or compiled
        given = Examples(method, loss, y_true, y_pred, self.groups)
        shares.open(_loss.num_classes(loss, y_pred))
        losses = given.losses(self.matrix)
        marked = _check.reads_signs(method)
        part = Part(losses, given.asked, given.known, sample_weight, marked, view)
        before = None if shares.seen is None else ops.convert_to_tensor(shares.seen)
        rules = given.rules(losses, before, view)
        with np.errstate(invalid="ignore"):  # NumPy warns of infinite logits, where others do not
            chosen = part.select(method, self.clock.numbers(view), **rules)
            if before is not None and rules["margins"] is not None:
                sums = ops.convert_to_tensor(rules["margins"].sums(part.valid))
                shares.seen.assign(moved(before, sums, _ops))
        masks = [part.lost, chosen.good, part.valid, chosen.bad]
        shares.count(view.names.class_sum(view.names.stack(masks)))
        weights = chosen.weights
        several = view.see(given.several())
        if several is not None:  # a traced step cannot raise, but NaN is seen
            weights = view.names.where(several & part.valid, float("nan"), weights)
        weights = weights if part.weight is None else weights * part.weight
        silent, weights = (ops.reshape(x, ops.shape(losses)) for x in (chosen.silent, weights))
        losses = ops.where(silent, 0.0, losses)
        if part.mask is not None:  # Keras's mean is over those that are not masked
            set_keras_mask(losses, part.mask)
        return losses, ops.stop_gradient(weights)

    def end_epoch(self, epoch: float, logs: Any) -> None:
        """Raise ValueError if the epoch never called `compute_loss`; give each warning once."""
        self.clock.finished = self.clock.steps_per_epoch is None
        _check.reached(self.reached)
        metrics = self.shares.metrics
        lost, _, taking_part, _ = ops.convert_to_numpy(metrics[0].counts).astype(int)
        self._told_of_lost = self._told_of_lost or _check.lost(lost, taking_part, epoch)
        shown = [(logs or {}).get(metric.name) for metric in metrics]
        self._warned = self._warned or _check.idle(self.method, self.clock.began, *shown)


def corrected_losses(
    y: Any, y_pred: Any, method: Method, loss: Loss = "sparse_categorical_crossentropy"
) -> Tensor:
    """Return the loss of each example that a method optimises, with gradient.

    Args:
        y: labels, integers (n, ...) or rows (n, ..., k).
        y_pred: predictions, (n, ..., k), or (n, ..., 1) for one unit.
        method: whose correction it is.
        loss: a loss of Keras, or a function of labels and predictions that returns a loss per
            example; a reduction is not used.

    Returns:
        float32, (n, ...); NaN where the label is not a class.

    Raises:
        ValueError: arguments that do not fit the method or each other.
    """
    y, y_pred = ops.convert_to_tensor(y), ops.convert_to_tensor(y_pred)
    given = Examples(require_method(method), get_loss(loss, y, y_pred), y, y_pred)
    losses = given.losses(step.matrix(_ops, method, None))
    return losses if given.known is None else ops.where(given.known, losses, float("nan"))


def select(
    losses: Any,
    epoch: float,
    method: Method,
    *,
    y_pred: Any = None,
    y: Any = None,
    where: Any = None,
    trusted: Any = None,
    confidence: Any = None,
    groups: Groups = None,
    from_logits: bool = False,
) -> step.Selection:
    """Return who is good, who is bad, and what each weighs; nothing has a gradient.

    For a ranking, a loss or a reduction of your own, in a `compute_loss` or a loop:

        chosen = select(losses, epoch, method)
        total = ops.sum(ops.where(chosen.silent, 0.0, losses) * chosen.weights) / n

    Args:
        losses: (n, ...): what decides, from `corrected_losses` for a method with a correction.
        epoch: at least 0; it is a constant in a compiled step.
        method: whose condition decides.
        y_pred: predictions, (n, ..., k); for `Agreement`, over="classes", and groups.
        y: labels, (n, ...) or (n, ..., k); for those, too.
        where: bool, (n, ...): who takes part; None for all.
        trusted: bool, (n, ...), for `Known`, or a `sigua.Split` of two masks.
        confidence: the class confidence so far (`sigua.confidence`); None for nothing yet.
        groups: as for `SIGUA`.
        from_logits: whether predictions are logits, as for Keras's losses.

    Returns:
        good, bad, weights and silent (whose losses are to be 0), with the losses' shape.

    Raises:
        ValueError: arguments that do not fit the method or each other.
    """
    _check.groups(require_method(method), groups)
    losses, rules = _loss.float32(losses), {}
    if y_pred is None:
        part = Part(losses, sample_weight=where)
    else:
        y, y_pred = ops.convert_to_tensor(y), ops.convert_to_tensor(y_pred)
        losses_of = keras.losses.CategoricalCrossentropy, keras.losses.BinaryCrossentropy
        loss = losses_of[y_pred.shape[-1] == 1](from_logits=from_logits)
        given = Examples(method, loss, y, y_pred, groups)
        part = Part(losses, given.asked, given.known, where)
        if not reads(method.condition, "confidence"):
            confidence = None
        elif confidence is None:
            confidence = zeros(max(y_pred.shape[-1], 2), reads(method.condition, "counts"))
        state = None if confidence is None else ops.convert_to_tensor(confidence)
        rules = given.rules(losses, state, TENSORS)
    if trusted is not None:
        alone = not isinstance(trusted, Split)
        masks = (ops.convert_to_tensor(mask) for mask in ([trusted] if alone else trusted))
        marks = [column_of("trusted", ops.cast(mask, "bool"), losses) for mask in masks]
        part.trusted = marks[0] if alone else Split(*marks)
    chosen = part.select(method, method.at(epoch), **rules)
    return step.Selection(*(ops.reshape(each, ops.shape(losses)) for each in chosen))
