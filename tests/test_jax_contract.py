"""The pure functions keep the contract in one compiled step."""

from functools import partial

import jax
import numpy as np
from contract import Contract, Step
from jax import numpy as jnp

from sigua.conditions import reads
from sigua_jax import CrossEntropy, corrected_losses, init_confidence, select, sigua_loss


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


class TestJax(Contract):
    every = 24

    def run(self, method, logits, labels, epoch=0, *, weight=None, smoothing=0.0, **options):
        logits = jnp.asarray(logits, "float32")
        by_label = isinstance(options.get("groups"), str) and bool(options.pop("groups"))
        if reads(method.condition, "confidence"):
            options["confidence"] = init_confidence(logits.shape[1])
        given = logits, jnp.asarray(labels), method.at(epoch)  # a schedule may be a function
        found = step(*given, method, weight, smoothing, by_label, options)
        return Step(float(found[0]), *map(np.asarray, found[1:]))
