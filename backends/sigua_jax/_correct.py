"""The losses that a method optimises: at the label, or corrected by T; a class for each."""

from __future__ import annotations

import jax
from jax import Array
from jax import numpy as jnp

from sigua import Method
from sigua.conditions import no_class_sums
from sigua.requirements import find_correction, find_form
from sigua.transition import require_matrix
from sigua_jax._matrix import MATRICES, log_mix
from sigua_jax._measure import Measure, lookup


class Plain:
    """No correction, and the base of those that there are.

    Args:
        method: whose correction it is.
    """

    def __init__(self, method: Method) -> None:
        self.method = method

    def losses(self, measure: Measure, logits: Array, labels: Array) -> Array:
        return measure.at_label(logits, labels)

    def class_sums(self, measure: Measure, logits: Array) -> Array:
        raise no_class_sums()


class Backward(Plain):
    """[T^-1 l]_y."""

    def __init__(self, method: Method) -> None:
        super().__init__(method)
        self.T = require_matrix("T", method.T)
        self.matrix = find_form(self.T, MATRICES)(self.T)

    def losses(self, measure: Measure, logits: Array, labels: Array) -> Array:
        return measure.combined(logits, self.matrix.inverse_rows(labels, logits))

    def class_sums(self, measure: Measure, logits: Array) -> Array:
        sums = jnp.asarray(self.T.inverse_column_sums, logits.dtype)
        logits = jax.lax.stop_gradient(logits)
        return measure._replace(weight=None).combined(logits, jnp.broadcast_to(sums, logits.shape))


class Forward(Plain):
    """-log [T'p]_y."""

    def __init__(self, method: Method) -> None:
        super().__init__(method)
        T = require_matrix("T", method.T)
        self.matrix = find_form(T, MATRICES)(T)

    def losses(self, measure: Measure, logits: Array, labels: Array) -> Array:
        log_p = jax.nn.log_softmax(logits)
        if measure.base is not None or measure.smoothing or labels.ndim == 2:
            return measure.at_label(self.matrix.log_observed(log_p), labels)
        loss = -log_mix(log_p, self.matrix.columns(labels, logits))
        return loss if measure.weight is None else loss * lookup(measure.weight, labels)


CORRECTIONS: dict[str, type[Plain]] = {"none": Plain, "backward": Backward, "forward": Forward}


def losses(method: Method, measure: Measure, logits: Array, labels: Array) -> Array:
    """Return what is optimised per example, (n,), in O(n k) for class indices.

    Raises:
        ValueError: there is no correction here of the method's name.
    """
    return find_correction(method, CORRECTIONS)(method).losses(measure, logits, labels)


def class_sums(method: Method, measure: Measure, logits: Array) -> Array:
    """Return 1'T^-1 l, (n,)."""
    return find_correction(method, CORRECTIONS)(method).class_sums(measure, logits)
