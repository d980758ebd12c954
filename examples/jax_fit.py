"""SIGUA in a JAX training step, on real handwritten digits of which half the labels are wrong.

    python examples/jax_fit.py

trains the same small network twice on scikit-learn's 1,797 digits, plainly and with a method, in
well under a minute on a CPU. Needs jax, optax, scikit-learn and sigua. With Flax only the network
differs: `sigua_loss` takes its logits.
"""

import functools

import jax
import numpy as np
import optax
from jax import numpy as jnp
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import sigua
from sigua_jax import sigua_loss

EPOCHS = 60
SIZES = [64, 128, 128, 10]
OPTIMIZER = optax.adam(3e-3)  # quick to memorise what is wrong


def network(seed):
    """Return a list of (weights, biases)."""
    keys = jax.random.split(jax.random.key(seed), len(SIZES) - 1)
    init = jax.nn.initializers.he_normal()
    shapes = zip(keys, SIZES[:-1], SIZES[1:], strict=True)
    return [(init(key, (fan_in, fan_out)), jnp.zeros(fan_out)) for key, fan_in, fan_out in shapes]


def predict(layers, x):
    """Return logits."""
    *hidden, (weights, biases) = layers
    for w, b in hidden:
        x = jax.nn.relu(x @ w + b)
    return x @ weights + biases


@functools.partial(jax.jit, static_argnames="method")
def step(layers, state, x, y, epoch, method):
    """Take one step; the epoch is traced, so that this is compiled once for all of them."""

    def objective(layers):
        return sigua_loss(predict(layers, x), y, epoch, method)  # was: optax's cross-entropy

    updates, state = OPTIMIZER.update(jax.grad(objective)(layers), state)
    return optax.apply_updates(layers, updates), state


def train(method, x, y, seed=0):
    """Return the trained layers."""
    layers = network(seed)
    state = OPTIMIZER.init(layers)
    order = np.random.default_rng(seed)
    for epoch in range(EPOCHS):
        shuffled = order.permutation(len(x))
        for start in range(0, len(x) - 127, 128):
            batch = shuffled[start : start + 128]
            layers, state = step(layers, state, x[batch], y[batch], epoch, method)
    return layers


x, y = load_digits(return_X_y=True)
x, x_test, y, y_test = train_test_split(x / 16, y, test_size=0.25, random_state=0, stratify=y)
y_noisy = sigua.corrupt_labels(y, sigua.TransitionMatrix.symmetric(0.5, 10), seed=0)

print(f"JAX {jax.__version__} on {jax.default_backend()}, half of the training labels wrong")
methods = {"plain": sigua.standard(), "SIGUA": sigua.sigua_sl(0.5, delta=0.15, gamma=0.01)}
for name, method in methods.items():
    layers = train(method, x.astype("float32"), y_noisy)
    right = predict(layers, x_test).argmax(axis=1) == y_test
    print(f"{name}: {right.mean():.1%} of the test digits right")
