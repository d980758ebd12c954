"""The examples of a mini-batch: which labels are classes, who takes part, with which weight.

An example whose label is not a class takes no part. For some such labels Keras raises on some
backends, and on others computes a loss of 0, which would be the smallest of all.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import keras
from keras import ops
from keras.src.backend import get_keras_mask, set_keras_mask

from sigua import Method, checks, step
from sigua.conditions import reads
from sigua_keras import _check, _loss, _ops
from sigua_keras._check import Groups
from sigua_keras._loss import Loss, Tensor
from sigua_keras._ops import TENSORS, View


class Examples:
    """Labels and predictions, as a loss of Keras takes them, and as the step does.

    Args:
        method: what is done with them.
        loss: a loss object or function.
        y_true: labels, (n, ...), (n, ..., 1) or rows (n, ..., k).
        y_pred: predictions, (n, k), (n, 1) of one unit, or (n, d1, ..., k) of many places.
        groups: who is judged together.

    Attributes:
        one_class: whether each example must have a class, whatever the loss.
        y_true: the labels, with some class for those that are not one.
        asked: bool, (n, ...): who is neither masked nor of an ignored class; None for all.
        known: bool, (n, ...): whose label is a class; None where any label is allowed.
    """

    def __init__(
        self, method: Method, loss: Loss, y_true: Any, y_pred: Tensor, groups: Groups = None
    ) -> None:
        self.one_class = _check.prediction(method, loss, y_pred, groups)
        self._method, self._given, self._groups = method, y_true, groups
        self.loss, self.axis = loss, _loss.class_axis(loss, y_pred)
        self.y_pred, self.units = y_pred, y_pred.shape[self.axis]
        self.y_true = ops.convert_to_tensor(y_true)
        if keras.backend.standardize_dtype(self.y_true.dtype) in ("bool", "int8", "uint8", "int16"):
            self.y_true = ops.cast(self.y_true, "int32")  # of a narrow type k may lie outside
        self._has_axis = len(self.y_true.shape) == len(y_pred.shape)
        width = self.y_true.shape[self.axis] if self._has_axis else 1
        if self._has_axis and width == 1 != self.units:
            # Some losses of Keras silently broadcast (n, 1) against (n, k) into (n, n).
            self.y_true, self._has_axis = ops.squeeze(self.y_true, self.axis), False
        self.is_dense = width == self.units > 1  # rows with an entry per class
        self._is_other = not self.is_dense and width != 1  # rows with other entries
        mask, ignored = get_keras_mask(y_pred), _loss.option(loss, "ignore_class")
        self.asked = None if mask is None else ops.cast(mask, "bool")
        if ignored is not None and not self.is_dense:
            self.asked = _both(self.asked, self.y_true != ignored)
            self.y_true = ops.where(self.y_true != ignored, self.y_true, 0)
        self.known = self._known()
        if self.known is not None:
            known = ops.expand_dims(self.known, self.axis) if self._has_axis else self.known
            self.y_true = ops.where(known, self.y_true, 1 if self.is_dense else 0)

    def _known(self) -> Tensor | None:
        y_true, function = self.y_true, _loss.function_of(self.loss)
        binary = function in _loss.BINARY
        if not (binary or function in _loss.OF_CLASSES or self.one_class):
            return None
        if self.is_dense:
            if binary and not self.one_class:
                return ops.all((y_true >= 0) & (y_true <= 1), axis=-1)
            some = ops.any(y_true > 0, axis=self.axis)  # NaN is not
            return some & ops.all(y_true >= 0, axis=self.axis)
        if self._is_other:
            return None  # the loss itself will refuse these
        known = (y_true >= 0) & (y_true <= max(self.units, 2) - 1)
        if self.units != 1 and keras.backend.is_float_dtype(y_true.dtype):
            known = known & (y_true == ops.floor(y_true))  # of one unit the label is p(1)
        return ops.squeeze(known, self.axis) if self._has_axis else known

    @cached_property
    def logits(self) -> Tensor:
        """Logits, float32, (N, k).

        Of probabilities they are the logarithms, between those limits that Keras sets, too.
        """
        logits = self.y_pred if _loss.option(self.loss, "from_logits") else None
        if logits is None and keras.config.backend() == "tensorflow":
            # Only TensorFlow's losses use the logits behind a softmax or a sigmoid.
            logits = getattr(self.y_pred, "_keras_logits", None)
        if logits is not None:
            return self._columns(logits, True)
        given = self._columns(self.y_pred, False)
        p = given / ops.sum(given, axis=1, keepdims=True)
        return ops.log(ops.clip(p, keras.config.epsilon(), 1 - keras.config.epsilon()))

    def _columns(self, y_pred: Tensor, are_logits: Any) -> Tensor:
        """Return predictions in float32, (N, k): a row per place, two columns for one unit."""
        given = ops.moveaxis(_loss.float32(y_pred), self.axis, -1)
        if self.units == 1:
            given = ops.concatenate([ops.zeros_like(given) if are_logits else 1 - given, given], -1)
        return ops.reshape(given, (-1, given.shape[-1]))

    @cached_property
    def index(self) -> Tensor:
        """Labels as int32, (N,); of rows, the class with the largest entry.

        Raises:
            ValueError: rows with an entry for another number of classes.
        """
        found = self.y_true
        if self.is_dense:
            found = ops.argmax(found, axis=self.axis)
        elif self._is_other:
            raise ValueError(
                "y: must be integers (n,) or one-hot rows with an entry per class, got shape "
                f"{tuple(found.shape)} for predictions {tuple(self.y_pred.shape)}; "
                "try a unit per class"
            )
        elif self.units == 1:  # the label is p(1): take the nearer class
            found = _loss.float32(found) > 0.5
        return ops.reshape(ops.cast(found, "int32"), (-1,))

    def several(self) -> Tensor | None:
        """Return which rows hold more than one class, where they must not, bool, (N,)."""
        if not (self.one_class and self.is_dense):
            return None
        sums = ops.sum(_loss.float32(self.y_true), axis=self.axis)
        return ops.reshape(sums > 1 + checks.SUM_TOLERANCE, (-1,))

    def losses(self, M: Any) -> Tensor:
        """Return what the method optimises, (n, ...), with gradient.

        Without a correction it is the loss itself, so that a method for which everything is good
        is the plain training of Keras.
        """
        correction = self._method.correction
        if correction == "none":
            return _loss.per_example(self.loss, self.y_true, self.y_pred)
        plain, x = self._plain
        return self._placed(step.corrected_losses(_ops, correction, M, plain, x, self.index))

    @property
    def _plain(self) -> tuple[step.Loss, Tensor]:
        """What a correction corrects, and the predictions that this takes, (N, k)."""
        loss, y_pred = self.loss, self.y_pred
        if _loss.is_cross_entropy(loss, y_pred, self.axis):
            return step.CrossEntropy(None, _loss.option(loss, "label_smoothing", 0.0)), self.logits
        forward, logits = self._method.correction == "forward", _loss.option(loss, "from_logits")

        def own(x: Tensor, y: Tensor) -> Tensor:
            """Call the loss on predictions and labels, (N,), in the shapes that it knows."""
            found = ops.exp(x) if forward and not logits else x
            if self.units == 1:
                found = found[:, 1:] - found[:, :1] if logits else found[:, 1:]
            if self.is_dense:
                y = ops.one_hot(y, self.units)
            found, y = (self._placed(each) for each in (found, y))
            losses = _loss.per_example(loss, y, found)
            _require_per_place("a correction", losses, y_pred)
            return ops.reshape(losses, (-1,))

        return step.Own(own), self.logits if forward else self._columns(y_pred, logits)

    def _placed(self, column: Tensor) -> Tensor:
        """Return what has an entry, or a row, per place in the shape of the predictions."""
        places = [n for i, n in enumerate(ops.shape(self.y_pred)) if i != self.axis]
        if len(column.shape) == 1:
            return ops.reshape(column, places)
        return ops.moveaxis(ops.reshape(column, (*places, column.shape[-1])), -1, self.axis)

    def rules(self, losses: Tensor, state: Any, view: View) -> dict[str, Any]:
        """Return what the method's rule may ask for, by the names of `sigua.step.select`.

        Args:
            losses: (n, ...), whose shape says what an example is.
            state: the class confidence; None if the rule reads none.
            view: as which arrays it is seen.
        """
        sums = margins = None
        if self._method.T is not None and self._method.correction == "backward":
            over, (plain, x) = self._method.T.inverse_column_sums, self._plain
            x = ops.stop_gradient(x)
            sums = lambda: view.see(step.class_sums(_ops, over, plain, x))  # noqa: E731
        if reads(self._method.condition, "margins"):
            _require_per_place("margins", losses, self.y_pred)
            p = view.see(ops.stop_gradient(_ops.softmax(self.logits)))
            margins = step.Margins(view.names, p, view.see(self.index), view.see(state))
        return {"sums": sums, "margins": margins, "groups": view.see(self._grouped(losses))}

    def _grouped(self, losses: Tensor) -> Tensor | None:
        """Return each example's group, int32, (N,), or None."""
        groups = self._groups
        if groups is None or groups == "class":
            return None if groups is None else self.index
        if callable(groups):
            found = ops.cast(ops.convert_to_tensor(groups(self._given, self.y_pred)), "int32")
        elif len(losses.shape) > 1:
            found = ops.arange(ops.shape(losses)[0], dtype="int32")
        else:
            raise ValueError(
                "groups: must come with a loss per time step or pixel, (n, d1, ...), for 'image', "
                f"got one for each of {tuple(losses.shape)}; try leaving it out"
            )
        return column_of("groups", found, losses)


class Part:
    """Who takes part in a mini-batch, and with which weight: columns, (N,), as the view sees them.

    Args:
        losses: (n, ...), whose shape says what an example is, and whose mask is taken from it.
        asked, known: as of `Examples`.
        sample_weight: of the user, whose signs may be marks; None for ones.

    Attributes:
        valid: bool: who takes part.
        lost: bool: who would, had the label been a class.
        weight: the magnitudes; None for ones. NaN where it is negative and signs are not read.
        trusted: bool: whose sign is plus; None without signs.
    """

    def __init__(
        self,
        losses: Tensor,
        asked: Tensor | None = None,
        known: Tensor | None = None,
        sample_weight: Any = None,
        signs: bool = False,
        view: View = TENSORS,
    ) -> None:
        self.mask, self.weight, self.trusted = asked, None, None
        mask = get_keras_mask(losses)
        if mask is not None:
            set_keras_mask(losses, None)
            self.mask = _both(asked, ops.cast(mask, "bool"))
        self._names = names = view.names
        self.ranked = names.reshape(view.see(ops.stop_gradient(losses)), (-1,))
        there = ops.ones_like(losses, "bool") if self.mask is None else self.mask
        valid = view.see(column_of("mask", there, losses))
        if sample_weight is not None:
            weight = view.see(column_of("sample_weight", _loss.float32(sample_weight), losses))
            valid = valid & (weight != 0)
            # A traced step cannot raise; a loss of NaN is at least seen, whereas climbing is not.
            refused = names.where(weight < 0, float("nan"), weight)
            self.weight = names.abs(weight) if signs else refused
            self.trusted = weight > 0 if signs else None
        self.valid = valid
        if known is not None:
            while len(known.shape) > len(losses.shape):
                known = ops.all(known, axis=-1)  # one loss for many labels
            self.valid = valid & view.see(column_of("y", known, losses))
        self.lost = valid & ~self.valid

    def select(self, method: Method, numbers: tuple[Any, ...], **given: Any) -> step.Selection:
        """Return who is good, who is bad, and what each weighs, as `sigua.step.select`."""
        names = self._names
        shares = names.cast(self.valid, self.ranked) if method.separate else None
        marks = {"valid": self.valid, "shares": shares, "trusted": self.trusted}
        return step.select(names, method, numbers, self.ranked, **marks, **given)


def _require_per_place(name: str, losses: Tensor, y_pred: Tensor) -> None:
    if len(losses.shape) != len(y_pred.shape) - 1:
        raise ValueError(
            f"loss: must return a value per place for {name}, got shape {tuple(losses.shape)} for "
            f"predictions {tuple(y_pred.shape)}; try a cross-entropy of Keras"
        )


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
    pairs = zip(value.shape, wanted, strict=False)
    fits = all(None in pair or pair[0] in (1, pair[1]) for pair in pairs)
    if len(value.shape) != len(wanted) or not fits:
        raise ValueError(
            f"{name}: must be one per example or one per place, {wanted}, got shape {given}; "
            "try one per place"
        )
    alone = len(wanted) == 1
    return value if alone else ops.reshape(ops.broadcast_to(value, ops.shape(losses)), (-1,))


def _both(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else one & other
