"""The pure functions keep the contract in one compiled step."""

from functools import partial

import jax
import numpy as np
from contract import Contract, Step
from jax import numpy as jnp

import sigua
from sigua.conditions import NoiseFloor, SmallLoss, reads
from sigua_jax import CrossEntropy, corrected_losses, init_confidence, select, sigua_loss

SIZE = 128
"""Of every mini-batch: to those that are smaller, garbage is added that takes no part."""


def form(method):
    """Return a method of the same form; all else is in the numbers that `method.at` returns."""
    condition, correction = method.condition, method.correction
    if correction not in ("none", "backward", "forward"):
        return method
    if isinstance(condition, SmallLoss):
        condition = SmallLoss(0.5, variant=condition.variant)
    if isinstance(condition, NoiseFloor):
        condition = NoiseFloor(1.0)
    return sigua.custom(condition, 1.0, correction, method.T, separate=method.separate)


@partial(jax.jit, static_argnames=("method", "smoothing", "by_label"))
def step(logits, labels, numbers, method, weight, smoothing, by_label, options):
    if by_label:
        options = options | {"groups": "class"}
    loss = CrossEntropy(weight, smoothing)
    given = logits, labels, numbers, method
    found = jax.value_and_grad(sigua_loss)(*given, loss=loss, **options)
    decide = corrected_losses(logits, labels, method, CrossEntropy(None, smoothing))
    options = options | {"loss": loss, "logits": logits, "labels": labels}
    chosen = select(decide, numbers, method, **options)
    return *found, chosen.good, chosen.bad


def padded(array, value, dtype=None):
    array = np.asarray(array, dtype)
    whole = np.full((SIZE, *array.shape[1:]), value, array.dtype)
    whole[: len(array)] = array
    return whole


class TestJax(Contract):
    """A step is compiled once for each form of a method and kind of options."""

    every = 1

    def run(self, method, logits, labels, epoch=0, *, weight=None, smoothing=0.0, **options):
        n, labels = len(logits), np.asarray(labels)
        logits = padded(logits, np.nan, "float32")
        labels = padded(labels, -100 if labels.ndim == 1 else np.nan)
        by_label = isinstance(options.get("groups"), str) and bool(options.pop("groups"))
        options = {name: padded(value, 0) for name, value in options.items()}
        options.setdefault("where", np.arange(SIZE) < n)
        if reads(method.condition, "confidence"):
            options["confidence"] = init_confidence(logits.shape[1], method)
        given = jnp.asarray(logits), jnp.asarray(labels), method.at(epoch)
        value, *each = step(*given, form(method), weight, smoothing, by_label, options)
        return Step(float(value), *(np.asarray(part)[:n] for part in each))
