"""SIGUA as a sample weight, for one output.

    sum_i loss_i * (good_i - gamma * bad_i) / n

is the model's own loss with the sample weight good - gamma * bad, which carries no gradient.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from keras import ops

from sigua import Method, Split, conditions, step
from sigua import confidence as class_confidence
from sigua.requirements import require_method
from sigua_keras import _check, _loss, _ops
from sigua_keras._examples import Examples, Groups, Part, column_of
from sigua_keras._loss import Loss, Tensor
from sigua_keras._schedule import Clock, Shares


class Objective:
    """The training objective of one output.

    Args:
        method: the method to train with.
        output: the output it is for; None if there is only one.
        loss: the loss that is optimised; None for the compiled loss.
        groups: who is judged together.
        steps_per_epoch: to count the epoch in training steps; None if it is set.

    Raises:
        ValueError: groups that do not fit the method, or an unknown loss.
    """

    def __init__(
        self,
        method: Method,
        output: str | int | None,
        loss: Loss,
        groups: Groups,
        steps_per_epoch: int | None = None,
    ) -> None:
        if loss is not None:
            _check.known(loss)
        self.method, self.output, self.loss, self.groups = method, output, loss, groups
        self.matrix = step.matrix(_ops, method, None)  # a constant made in a step would be copied
        self.shares = Shares(method)
        self.clock = Clock(self.shares, output, steps_per_epoch)
        self.reached = False
        self.warned = self.told_of_lost = False

    def open(self, loss: Loss, y_pred: Tensor) -> None:
        """Make what depends on the number of classes.

        Raises:
            ValueError: a loss or predictions that do not fit the method.
        """
        _check.known(loss)
        _check.prediction(self.method, loss, y_pred, self.groups)
        if len(y_pred.shape) > 1 and y_pred.shape[-1] is not None:
            self.shares.open(_loss.num_classes(y_pred, _loss.class_axis(loss, y_pred)))

    def measure(
        self, compiled: Loss, y_true: Tensor, y_pred: Tensor, sample_weight: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the losses, with gradient and mask, and their signed weights; both (n, ...).

        Args:
            compiled: the loss to optimise if no other was given.
            y_true: labels of the output.
            y_pred: its predictions.
            sample_weight: scales losses but does not change their rank; an example of weight 0 has
                no rank. For a condition that reads `trusted` the sign is the mark; otherwise a
                negative weight makes the loss NaN.

        Raises:
            ValueError: labels or weights that do not fit the method.
        """
        method, shares = self.method, self.shares
        _check.stepping(self.clock)
        _check.weight(method, sample_weight)
        loss = compiled if self.loss is None else _loss.resolve(self.loss, y_true, y_pred)
        self.open(loss, y_pred)  # on TensorFlow, where the step builds the model
        given = Examples(loss, y_true, y_pred, _check.needs_class(method, self.groups))
        losses = given.losses(method.correction, self.matrix)
        signs = _check.reads_signs(method)
        part = Part(losses, given.asked, given.known, sample_weight, signs)
        margins, reads = None, partial(conditions.reads, method.condition)
        if reads("margins"):
            margins = given.margins(losses, shares.rates(), reads("confidence"))
        chosen = part.select(
            method,
            shares.numbers(),
            sums=partial(given.class_sums, method.T),
            margins=margins,
            groups=given.groups(self.groups, y_true, losses),
        )
        if shares.seen is not None and margins is not None:
            shares.see(margins.sums(part.valid))
        shares.count(part.lost, chosen.good, part.valid, chosen.bad)
        weights = chosen.weights
        several = given.several() if _check.needs_class(method, self.groups) else None
        if several is not None:  # a traced step cannot raise, but NaN is seen
            weights = ops.where(several & part.valid, float("nan"), weights)
        weights = weights if part.weight is None else weights * part.weight
        self.reached = True
        return part.finish(losses, weights, chosen.silent)

    def end_epoch(self, epoch: float, logs: Any) -> None:
        """Raise ValueError if the epoch never called `compute_loss`; give each warning once."""
        self.clock.end_epoch()
        _check.reached(self.reached)
        if not self.told_of_lost:
            self.told_of_lost = _check.lost(self.shares.lost(), epoch)
        if not self.warned:
            shown = ((logs or {}).get(metric.name) for metric in self.shares.metrics)
            self.warned = _check.idle(self.method, self.clock.began, *shown)


def corrected_losses(
    y: Any, y_pred: Any, method: Method, loss: Loss = "sparse_categorical_crossentropy"
) -> Tensor:
    """Return the loss of each example that a method optimises, with gradient.

    Args:
        y: labels, integers (n, ...) or rows (n, ..., k).
        y_pred: predictions, (n, ..., k), or (n, ..., 1) for one unit.
        method: whose correction it is.
        loss: a loss of Keras, or a function of labels and predictions that returns a loss per
            example; its reduction is not used.

    Returns:
        float32, (n, ...); NaN where the label is not a class.

    Raises:
        ValueError: arguments that do not fit the method or each other.
    """
    require_method(method)
    _check.known(loss)
    y, y_pred = ops.convert_to_tensor(y), ops.convert_to_tensor(y_pred)
    loss = _loss.resolve(loss, y, y_pred)
    _check.prediction(method, loss, y_pred, None)
    given = Examples(loss, y, y_pred, method.T is not None)
    losses = given.losses(method.correction, step.matrix(_ops, method, None))
    if given.known is None:
        return losses
    return ops.where(ops.reshape(given.known, ops.shape(losses)), losses, float("nan"))


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
        y_pred: predictions, (n, ..., k); for `Agreement`, and for over="classes".
        y: labels, (n, ...) or (n, ..., k); then, too, and for groups.
        where: bool, (n, ...): who takes part; None for all.
        trusted: bool, (n, ...), for `Known`, or a `sigua.Split` of two masks.
        confidence: the class confidence so far, (2, k) (`sigua.confidence`); None for ones.
        groups: as for `SIGUA`.
        from_logits: whether predictions are logits, as for Keras's losses.

    Raises:
        ValueError: arguments that do not fit the method or each other.
    """
    require_method(method)
    _check.groups(method, groups)
    losses, given = _loss.float32(losses), None
    if y_pred is not None:
        y, y_pred = ops.convert_to_tensor(y), ops.convert_to_tensor(y_pred)
        loss = _loss.cross_entropy(y, y_pred, from_logits)
        _check.prediction(method, loss, y_pred, groups)
        given = Examples(loss, y, y_pred, one_class=True)
    if given is None:
        part = Part(losses, None, None, where)
    else:
        part = Part(losses, given.asked, given.known, where)
    if trusted is not None:
        alone = not isinstance(trusted, Split)
        masks = [
            ops.convert_to_tensor(mask, dtype="bool") for mask in ([trusted] if alone else trusted)
        ]
        marks = [column_of("trusted", mask, losses) for mask in masks]
        part.trusted = marks[0] if alone else Split(*marks)
    margins = None
    if given is not None and conditions.reads(method.condition, "margins"):
        rates = (
            None
            if confidence is None
            else class_confidence.rates(ops.convert_to_tensor(confidence))
        )
        margins = given.margins(losses, rates, conditions.reads(method.condition, "confidence"))
    sums = None if given is None or method.T is None else partial(given.class_sums, method.T)
    grouped = None if given is None else given.groups(groups, y, losses)
    chosen = part.select(method, method.at(epoch), sums=sums, margins=margins, groups=grouped)
    return step.Selection(*(ops.reshape(each, ops.shape(losses)) for each in chosen))
