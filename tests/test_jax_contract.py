"""The pure functions keep the contract in one compiled step."""

from functools import partial

import jax
import numpy as np
from contract import Contract, Step
from jax import numpy as jnp

import sigua
from sigua_jax import init_confidence, sigua_loss, sigua_split


@partial(jax.jit, static_argnames="method")
def step(logits, labels, numbers, method, options):
    given = logits, labels, numbers, method
    return jax.value_and_grad(sigua_loss)(*given, **options), sigua_split(*given, **options)


class TestJax(Contract):
    every = 12

    def run(self, method, logits, labels, epoch=0):
        logits = jnp.asarray(logits, "float32")
        options = {}
        if isinstance(method.condition, sigua.Agreement) and method.condition.by_class:
            options = {"confidence": init_confidence(logits.shape[1])}
        given = logits, jnp.asarray(labels), method.at(epoch)  # a schedule may be a function
        (value, gradient), split = step(*given, method, options)
        return Step(float(value), *map(np.asarray, (gradient, *split)))
