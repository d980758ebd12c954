"""From one measured mini-batch to signed sample weights: measure, choose, weigh."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from sigua import Method, checks, conditions
from sigua_keras import _check
from sigua_keras._batch import Batch, ClassBatch, signed_weights
from sigua_keras._correct import Correction
from sigua_keras._margins import Confidence, Margins
from sigua_keras._measure import (
    Loss,
    Tensor,
    is_alias,
    is_cross_entropy,
    label_index,
    num_classes,
    per_example,
    resolve,
)


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
    confidence: Confidence | None = None,
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
        confidence: what margins by class divide by, which then counts this mini-batch.
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
    margins = None
    if conditions.reads(method.condition, "margins"):
        margins = Margins(loss, y_true, y_pred, takes_part, confidence)
    given = ops.stop_gradient(ranked), takes_part, trusted, class_sums, margins
    if ranking.per_class:
        k = num_classes(y_pred)
        labels = ops.clip(label_index(y_true, y_pred), 0, k - 1)  # what is ignored may be outside
        batch: Batch = ClassBatch(labels, k, *given)
    else:
        batch = Batch(*given)
    split = conditions.choose(method.condition, batch, tuple(numbers[1:]))
    if margins is not None and confidence is not None:
        confidence.update(margins.sums())
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
