"""The examples of a mini-batch: which labels are classes, who takes part, with which weight.

An example whose label is not a class takes no part. For some such labels Keras raises on some
backends, and on others computes a loss of 0, which would be the smallest of all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import keras
from keras import ops
from keras.src.backend import get_keras_mask, set_keras_mask

from sigua import Method, TransitionMatrix, checks, step
from sigua_keras import _loss, _ops
from sigua_keras._loss import Loss, Tensor

_NARROW = ("bool", "int8", "uint8", "int16", "uint16")
Groups = str | Callable[[Any, Any], Any] | None
"""Who is judged together: "class", "image", or a function of labels and predictions; None: all."""


class Examples:
    """Labels and predictions, as a loss of Keras takes them, and as the step does.

    Args:
        loss: a loss object or function.
        y_true: labels, (n, ...), (n, ..., 1) or rows (n, ..., k).
        y_pred: predictions, (n, k), (n, 1) of one unit, or (n, d1, ..., k) of many places.
        one_class: whether each example must have a class, whatever the loss.

    Attributes:
        y_true: the labels, with some class for those that are not one.
        asked: bool, (n, ...): who is neither masked nor of an ignored class; None for all.
        known: bool, (n, ...): whose label is a class; None where any label is allowed.
    """

    def __init__(self, loss: Loss, y_true: Tensor, y_pred: Tensor, one_class: bool) -> None:
        self.loss, self.axis = loss, _loss.class_axis(loss, y_pred)
        self.y_pred = y_pred
        y_true = _loss.squeeze_labels(ops.convert_to_tensor(y_true), y_pred, self.axis)
        y_true, kept = self._without_ignored(y_true)
        self.asked = both(as_bool(get_keras_mask(y_pred)), kept)
        self.y_true, self.known = self._with_classes(y_true, one_class)

    def _is_dense(self, y_true: Tensor) -> bool:
        return _loss.is_dense(y_true, self.y_pred, self.axis)

    def _without_ignored(self, y_true: Tensor) -> tuple[Tensor, Tensor | None]:
        ignored = _loss.option(self.loss, "ignore_class")
        if ignored is None or self._is_dense(y_true):
            return y_true, None
        kept = y_true != ignored
        return ops.where(kept, y_true, 0), self._per_place(kept)

    def _with_classes(self, y_true: Tensor, one_class: bool) -> tuple[Tensor, Tensor | None]:
        """Return labels that are classes, and which were; None where any label is allowed."""
        if keras.backend.standardize_dtype(y_true.dtype) in _NARROW:  # k may lie outside
            y_true = ops.cast(y_true, "int32")
        function = _loss.function_of(self.loss)
        binary = function in _loss.BINARY
        of_classes = function in _loss.OF_CLASSES or getattr(self.loss, "of_classes", False)
        if not (binary or of_classes or one_class):
            return y_true, None
        if self._is_dense(y_true):
            if binary and not one_class:
                known = ops.all((y_true >= 0) & (y_true <= 1), axis=-1)
            else:  # NaN is neither
                some = ops.any(y_true > 0, axis=self.axis)
                known = ops.all(y_true >= 0, axis=self.axis) & some
            return ops.where(ops.expand_dims(known, self.axis), y_true, 1), known
        if len(y_true.shape) == len(self.y_pred.shape) and y_true.shape[self.axis] != 1:
            return y_true, None  # the loss itself will refuse these
        k = _loss.num_classes(self.y_pred, self.axis)
        known = (y_true >= 0) & (y_true <= k - 1)
        one_unit = self.y_pred.shape[-1] == 1
        if not one_unit and keras.backend.is_float_dtype(y_true.dtype):
            known = known & (y_true == ops.floor(y_true))  # of one unit the label is p(1)
        return ops.where(known, y_true, 0), self._per_place(known)

    def _per_place(self, mask: Tensor) -> Tensor:
        column = len(mask.shape) == len(self.y_pred.shape)
        return ops.squeeze(mask, self.axis) if column else mask

    @cached_property
    def logits(self) -> Tensor:
        """Logits, float32, (N, k), a row per place."""
        found = _loss.logits_of(self.loss, self.y_pred, self.axis)
        return found if len(found.shape) == 2 else ops.reshape(found, (-1, found.shape[-1]))

    @cached_property
    def index(self) -> Tensor:
        """Labels as int32, (N,); of rows, the class with the largest entry.

        Raises:
            ValueError: rows with an entry for another number of classes.
        """
        y_true, y_pred = self.y_true, self.y_pred
        if self._is_dense(y_true):
            return ops.reshape(ops.cast(ops.argmax(y_true, axis=self.axis), "int32"), (-1,))
        if len(y_true.shape) == len(y_pred.shape) and y_true.shape[self.axis] not in (1, None):
            raise ValueError(
                "y: must be integers (n,) or one-hot rows with an entry per class, got shape "
                f"{tuple(y_true.shape)} for predictions {tuple(y_pred.shape)}; "
                "try a unit per class"
            )
        if y_pred.shape[-1] == 1:  # the label is p(1): take the nearer class
            y_true = _loss.float32(y_true) > 0.5
        return ops.reshape(ops.cast(y_true, "int32"), (-1,))

    def several(self) -> Tensor | None:
        """Return which rows hold more than one class, bool, (N,); None if labels are indices."""
        if not self._is_dense(self.y_true):
            return None
        sums = ops.sum(ops.cast(self.y_true, "float32"), axis=self.axis)
        return ops.reshape(sums > 1 + checks.SUM_TOLERANCE, (-1,))

    def shaped(self, column: Tensor) -> Tensor:
        """Return a column, an entry per place, in the shape of the places."""
        if len(self.y_pred.shape) == 2:
            return column
        places = [size for i, size in enumerate(ops.shape(self.y_pred)) if i != self.axis]
        return ops.reshape(column, places)

    def losses(self, correction: str, M: Any) -> Tensor:
        """Return what a method optimises, (n, ...), with gradient.

        Without a correction it is the loss itself, so that a method for which everything is good
        is the plain training of Keras.

        Raises:
            ValueError: labels that do not fit, or a loss without a value per example.
        """
        if correction == "none":
            return _loss.per_example(self.loss, self.y_true, self.y_pred)
        found = step.corrected_losses(_ops, correction, M, self.plain, self.logits, self.index)
        return self.shaped(found)

    @property
    def plain(self) -> Any:
        """What a correction corrects."""
        if _loss.is_cross_entropy(self.loss, self.y_pred, self.axis):
            return step.CrossEntropy(None, _loss.option(self.loss, "label_smoothing", 0.0))
        return _AnyLoss(self.loss, self.y_true, self.y_pred, self.axis)

    def class_sums(self, T: TransitionMatrix) -> Tensor:
        """Return 1'T^-1 l, (N,), without gradient."""
        found = step.class_sums(_ops, T, self.plain, ops.stop_gradient(self.logits))
        return ops.stop_gradient(found)

    def margins(self, losses: Tensor, rates: Tensor | None, by_class: bool) -> step.Margins:
        """Return the margins of the model's own probabilities, without gradient.

        Args:
            losses: of the examples, one per place.
            rates: the class confidence, (k,); None for ones.
            by_class: whether margins by class may be asked for.
        """
        require_per_place("margins", losses, self.y_pred)
        return step.Margins(_ops, ops.stop_gradient(self.logits), self.index, rates, by_class)

    def groups(self, groups: Groups, y: Any, losses: Tensor) -> Tensor | None:
        """Return each example's group, int32, (N,), or None.

        Raises:
            ValueError: images of rows, or a function's groups that do not have the losses' shape.
        """
        if groups is None:
            return None
        if groups == "class":
            return self.index
        if groups == "image":
            require_places(losses.shape)
            found = ops.arange(ops.shape(losses)[0], dtype="int32")
        else:
            found = ops.cast(ops.convert_to_tensor(groups(y, self.y_pred)), "int32")
        return column_of("groups", found, losses)


def require_places(shape: Any) -> None:
    """Raise ValueError if images are to be judged apart, but an image is one example."""
    if len(shape) < 2:
        raise ValueError(
            'groups: must come with a loss per time step or pixel, (n, d1, ...), for "image", got '
            f"one for each of {tuple(shape)}; try leaving it out"
        )


class Part:
    """Who takes part in a mini-batch, and with which weight: columns, (N,).

    Args:
        losses: (n, ...), whose shape says what an example is.
        asked: bool, (n, ...): who is not masked; None for all.
        known: bool, (n, ...): whose label is a class; None for all.
        sample_weight: of the user; None for ones.
        signs: whether the sign of a weight is a mark.

    Attributes:
        valid: bool: who takes part.
        lost: bool: who would, had the label been a class.
        weight: the magnitudes; None for ones. NaN where it is negative and signs are not read.
        trusted: bool: whose sign is plus; None without signs.
        ranked: the losses, without gradient.
    """

    def __init__(
        self,
        losses: Tensor,
        asked: Tensor | None,
        known: Tensor | None,
        sample_weight: Any,
        signs: bool = False,
    ) -> None:
        self.mask = both(asked, taken_mask(losses))
        self.ranked = ops.stop_gradient(_flat(losses))
        self.weight: Tensor | None = None
        self.trusted: Any = None
        asked = None if self.mask is None else column_of("mask", self.mask, losses)
        if sample_weight is not None:
            weight = column_of("sample_weight", _loss.float32(sample_weight), losses)
            asked = both(asked, weight != 0)
            # A traced step cannot raise; a loss of NaN is at least seen, whereas climbing is not.
            self.weight = ops.abs(weight) if signs else ops.where(weight < 0, float("nan"), weight)
            self.trusted = weight > 0 if signs else None
        asked = ops.ones_like(self.ranked, dtype="bool") if asked is None else asked
        while known is not None and len(known.shape) > len(losses.shape):
            known = ops.all(known, axis=-1)  # one loss for many labels
        known = None if known is None else column_of("y", known, losses)
        self.valid = asked if known is None else asked & known
        self.lost = asked & ~self.valid

    def select(self, method: Method, numbers: tuple[Any, ...], **given: Any) -> step.Selection:
        """Return who is good, who is bad, and what each weighs, as `sigua.step.select`."""
        shares = ops.cast(self.valid, "float32") if method.separate else None
        marks = {"valid": self.valid, "shares": shares, "trusted": self.trusted}
        return step.select(_ops, method, numbers, self.ranked, **marks, **given)

    def finish(self, losses: Tensor, weights: Tensor, silent: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses and weights as Keras weighs and reduces them."""
        if len(losses.shape) > 1:
            shape = ops.shape(losses)
            weights, silent = ops.reshape(weights, shape), ops.reshape(silent, shape)
        losses = ops.where(silent, 0.0, losses)
        if self.mask is not None:  # Keras's mean is over those that are not masked
            set_keras_mask(losses, self.mask)
        return losses, ops.stop_gradient(weights)


def _flat(losses: Tensor) -> Tensor:
    return losses if len(losses.shape) == 1 else ops.reshape(losses, (-1,))


class _AnyLoss(NamedTuple):
    """Any loss as `sigua.step` takes one: it is called on predictions as it expects them."""

    loss: Loss
    y_true: Tensor
    y_pred: Tensor
    axis: int

    def at_label(self, ops_: Any, log_p: Tensor, y: Tensor) -> Tensor:
        given = _loss.from_log_probabilities(self.loss, log_p, self.y_pred, self.axis)
        return self._column(self.y_true, given)

    def every_class(self, ops_: Any, log_p: Tensor) -> Tensor:
        """Return the loss against each class, (N, k), of the predictions themselves."""
        k = _loss.num_classes(self.y_pred, self.axis)
        nothing, labels = ops.zeros_like(_loss.float32(self.y_true)), list(range(k))
        if _loss.is_dense(self.y_true, self.y_pred, self.axis):
            shape = [k if i == self.axis else 1 for i in range(len(self.y_pred.shape))]
            labels = [ops.reshape(row, shape) for row in ops.unstack(ops.eye(k, dtype="float32"))]
        return ops.stack([self._column(nothing + label, self.y_pred) for label in labels], 1)

    def _column(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        losses = _loss.per_example(self.loss, y_true, y_pred)
        require_per_place("a correction", losses, self.y_pred)
        return ops.reshape(losses, (-1,))


def require_per_place(name: str, losses: Tensor, y_pred: Tensor) -> None:
    """Raise ValueError unless there is a loss for each prediction of classes."""
    if len(losses.shape) != len(y_pred.shape) - 1:
        raise ValueError(
            f"loss: must return a value per place for {name}, got shape {tuple(losses.shape)} for "
            f"predictions {tuple(y_pred.shape)}; try a cross-entropy of Keras"
        )


def as_bool(mask: Any) -> Tensor | None:
    return None if mask is None else ops.cast(mask, "bool")


def taken_mask(losses: Tensor) -> Tensor | None:
    """Return the mask that the loss attached to its values, and remove it."""
    mask = as_bool(get_keras_mask(losses))
    if mask is not None:
        set_keras_mask(losses, None)
    return mask


def column_of(name: str, value: Tensor, losses: Tensor) -> Tensor:
    """Return a value per example or place, (n, ...), as a column, (N,), like the losses.

    Raises:
        ValueError: another shape.
    """
    given, wanted = tuple(value.shape), tuple(losses.shape)
    if len(given) == len(wanted) + 1 and given[-1] == 1:
        value = ops.squeeze(value, -1)
    while len(value.shape) < len(wanted):
        value = ops.expand_dims(value, -1)
    pairs = list(zip(value.shape, wanted, strict=False))
    fits = len(value.shape) == len(wanted) and all(
        None in pair or pair[0] in (1, pair[1]) for pair in pairs
    )
    if not fits:
        raise ValueError(
            f"{name}: must be one per example or one per place, {wanted}, got shape {given}; "
            "try one per place"
        )
    if len(wanted) == 1:
        return value
    return ops.reshape(ops.broadcast_to(value, ops.shape(losses)), (-1,))


def both(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
