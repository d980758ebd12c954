"""From one mini-batch to signed sample weights: compute losses, select, weigh."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from sigua import Method, conditions
from sigua.requirements import require_cross_entropy
from sigua_keras import _check
from sigua_keras._batch import INTEGER, Batch, GroupBatch, signed_weights
from sigua_keras._correct import Correction
from sigua_keras._labels import holds_several, is_several, without_class, without_ignored
from sigua_keras._margins import Confidence, Margins, require_classes
from sigua_keras._measure import (
    Loss,
    Tensor,
    is_alias,
    is_cross_entropy,
    label_index,
    mask_of,
    num_classes,
    per_example,
    resolve,
    taken_mask,
)
from sigua_keras._places import Places, is_per_place


class Ranking(NamedTuple):
    """Among which examples, and by which loss, an example is ranked."""

    per_class: bool = False
    per_image: bool = False
    rank_by: Loss = None
    """A loss object or function; None for the loss that is optimised."""

    def require_fit(self, method: Method, loss: Loss, y_pred: Tensor) -> None:
        """Raise ValueError if the method needs cross-entropy, but another loss would decide."""
        if method.needs_cross_entropy:
            name, loss = ("loss", loss) if self.rank_by is None else ("rank_by", self.rank_by)
            plain = is_alias(loss) or is_cross_entropy(keras.losses.get(loss), y_pred)
            require_cross_entropy(method, name, plain, repr(loss), "cross-entropy")

    def needs_class(self, method: Method) -> bool:
        """Return whether each example must have one class, whatever the loss."""
        of_margins = conditions.reads(method.condition, "margins")
        return self.per_class or method.T is not None or of_margins

    def ranked(self, losses: Tensor, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return what decides, (n,), without gradient."""
        if self.rank_by is not None:
            losses = per_example(resolve(self.rank_by, y_true, y_pred), y_true, y_pred)
        return ops.stop_gradient(losses)

    def require_places(self, loss: Loss, y_pred: Tensor) -> None:
        """Raise ValueError if images are to be judged apart, but a row is one example."""
        if self.per_image and not is_per_place(loss, y_pred):
            raise ValueError(
                "per_image: must come with predictions per time step or pixel, (n, d1, ..., k), "
                f"and a loss of Keras, got {tuple(y_pred.shape)}; try leaving it out"
            )

    def require_class(self, method: Method, loss: Loss, y_pred: Tensor) -> None:
        """Raise ValueError if examples have several labels each where one class is needed."""
        if conditions.reads(method.condition, "margins"):
            require_classes(loss, y_pred.shape[-1])
        if not self.needs_class(method) or is_alias(loss):
            return
        if is_several(keras.losses.get(loss), y_pred):
            name = "per_class" if self.per_class else "method" if method.T is None else "T"
            raise ValueError(
                f"{name}: must have one class per example, got "
                f"{loss!r} for predictions {tuple(y_pred.shape)}, each with a label; try "
                "'categorical_crossentropy', or one output per label"
            )


class Weighed(NamedTuple):
    """The losses and signed weights of a mini-batch."""

    losses: Tensor
    """(n,) or (n, d1, ...): the loss of each example that is optimised, with gradient."""
    labels: Tensor
    """The labels, with some class for those that are not a class."""
    split: Any
    weights: Tensor
    """float32, with the losses' shape: signed, times the user's own weights."""
    takes_part: Tensor
    """bool, (n,)."""
    asked: Tensor
    """bool, (n,): which would take part if every label were a class."""


def weigh(
    method: Method,
    correction: Correction,
    numbers: tuple[Any, ...],
    loss: Loss,
    y_true: Tensor,
    y_pred: Tensor,
    sample_weight: Tensor | None,
    ranking: Ranking,
    reduction: str | None,
    confidence: Confidence | None = None,
) -> Weighed:
    """Compute the losses of one mini-batch, select, and return the signed weights.

    Args:
        method: the method to train with.
        correction: the method's correction.
        numbers: gamma, then the condition's numbers.
        loss: a loss object or function of Keras.
        y_true: labels.
        y_pred: predictions, (n, k) or (n, 1); or (n, d1, ..., k), where each place is an example.
        sample_weight: (n,), (n, 1) or (n, d1, ...); it scales losses but does not change their
            rank, and an example of weight 0 has no rank. For a condition that reads `trusted` the
            sign is the mark; otherwise a negative weight makes the loss NaN.
        ranking: among which examples, and by which loss, an example is ranked.
        reduction: of the loss.
        confidence: the class confidence for margins by class; this mini-batch is added to it.

    Raises:
        ValueError: arguments that do not fit the method.
    """
    _check.weight(method, sample_weight)
    ranking.require_places(loss, y_pred)
    places = Places(y_pred) if is_per_place(loss, y_pred) else None
    if places is not None:
        y_true, sample_weight = places.labels(y_true), places.weights(sample_weight)
        y_pred = places.predictions(y_pred)
    ranking.require_fit(method, loss, y_pred)
    ranking.require_class(method, loss, y_pred)
    one_class = ranking.needs_class(method)
    y_true, kept = without_ignored(loss, y_true, y_pred)
    y_true, known = without_class(loss, y_true, y_pred, one_class)
    losses, class_sums = correction(loss, y_true, y_pred)
    weight, trusted = _weight_and_mark(method, sample_weight)
    mask = _both(_both(mask_of(y_pred), kept), taken_mask(losses))
    asked = _both(mask, None if weight is None else weight != 0)
    if asked is None:
        asked = ops.ones_like(losses, dtype="bool")
        takes_part = asked if known is None else known
    else:
        takes_part = asked if known is None else asked & known
    size = ops.sum(ops.cast(takes_part, INTEGER))
    ranked = ranking.ranked(losses, y_true, y_pred)
    margins = None
    if conditions.reads(method.condition, "margins"):
        margins = Margins(loss, y_true, y_pred, takes_part, confidence)
    given = ranked, takes_part, size, trusted, class_sums, margins
    groups = _groups(ranking, places, y_true, y_pred)
    batch: Batch = Batch(*given) if groups is None else GroupBatch(*groups, *given)
    split = conditions.choose(method.condition, batch, tuple(numbers[1:]))
    if margins is not None and confidence is not None:
        confidence.update(margins.sums())
    signed = signed_weights(split, numbers[0], size, method.separate)
    several = holds_several(y_true, y_pred) if one_class else None
    if several is not None:  # a traced step cannot raise, but NaN is seen
        signed = ops.where(several & takes_part, float("nan"), signed)
    if weight is not None:
        signed = signed * weight
    if mask is not None:
        signed = signed * _scale(mask, reduction)
    # An infinite loss says nothing; a NaN stays NaN, even times 0.
    losses = ops.where(ops.isinf(losses), 0.0, losses)
    if places is not None:
        losses, y_true, signed = map(places.shaped, (losses, y_true, signed))
    return Weighed(losses, y_true, split, signed, takes_part, asked)


def _groups(
    ranking: Ranking, places: Places | None, y_true: Tensor, y_pred: Tensor
) -> tuple[Tensor, Any] | None:
    """Return each example's group, and how many groups there are; None for the batch as a whole."""
    if not ranking.per_class and not ranking.per_image:
        return None
    group, count = 0, 1
    if ranking.per_class:
        count = num_classes(y_pred)
        group = ops.clip(label_index(y_true, y_pred), 0, count - 1)
    if ranking.per_image and places is not None:
        group = group + count * places.first_axis()
        count = count * places.shape[0]
    return group, count


def _both(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _scale(mask: Tensor, reduction: str | None) -> Tensor:
    """Return the factor from a mean over all examples to one over the mask, as Keras does."""
    if reduction not in ("mean", "sum_over_batch_size"):
        return 1.0
    return ops.divide_no_nan(
        ops.cast(ops.shape(mask)[0], "float32"), ops.sum(ops.cast(mask, "int32"))
    )


def _weight_and_mark(method: Method, sample_weight: Any) -> tuple[Tensor | None, Tensor | None]:
    if sample_weight is None:
        return None, None
    weight = ops.convert_to_tensor(sample_weight, dtype="float32")
    if len(weight.shape) == 2 and weight.shape[-1] == 1:
        weight = ops.squeeze(weight, -1)
    if len(weight.shape) != 1:
        raise ValueError(
            f"sample_weight: must be one per example, got shape {tuple(weight.shape)}; "
            "try shape (n,)"
        )
    if _check.reads_signs(method):
        return ops.abs(weight), weight > 0
    # A traced step cannot raise; a loss of NaN is at least seen, whereas climbing is not.
    return ops.where(weight < 0, float("nan"), weight), None
