"""Who is ranked against whom when a mini-batch is shared out, on two devices made of one CPU."""

import keras
import pytest
from programs import devices, launch

COMMON = """
import keras, numpy as np, sigua
from sigua_keras import SIGUA, SIGUAModel

METHOD = sigua.sigua_sl(noise_rate=0.5, delta=0.25, gamma=0.25, warmup=2)
rng = np.random.default_rng(0)
x = rng.normal(size=(32, 5)).astype("float32")
y = rng.integers(0, 3, 32)

def train(weights=None):
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, activation="softmax")])
    if weights is not None:
        model.set_weights(weights)
    start = model.get_weights()
    model.compile(keras.optimizers.SGD(1.0), "sparse_categorical_crossentropy")
    history = model.fit(
        x, y, batch_size=32, epochs=4, shuffle=False, verbose=0, callbacks=[SIGUA(METHOD)]
    )
    return start, model, history.history
"""

TWO = """
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
tf.config.set_logical_device_configuration(cpu, two)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
"""

MIRRORED = """
with strategy.scope():
    start, model, history = train()
assert strategy.num_replicas_in_sync == 2
# Each replica ranks its own 16: floor(16 * rho) + 1 of them are good, twice.
np.testing.assert_allclose(history["sigua_good"], [1, 26 / 32, 18 / 32, 18 / 32])
np.testing.assert_allclose(history["sigua_bad"], [0, 6 / 32, 8 / 32, 8 / 32])

# The step is that of two mini-batches of 16, averaged.
kernel, bias = start
for epoch in range(4):
    gradients = []
    for half in (slice(0, 16), slice(16, 32)):
        logits = x[half].astype("float64") @ kernel + bias
        step = sigua.reference.step(METHOD, logits, y[half], epoch)
        gradients.append((x[half].T @ step.gradient / 2, step.gradient.sum(0) / 2))
    kernel = kernel - sum(g[0] for g in gradients)
    bias = bias - sum(g[1] for g in gradients)
np.testing.assert_allclose(model.get_weights()[0], kernel, rtol=0, atol=1e-5)
np.testing.assert_allclose(model.get_weights()[1], bias, rtol=0, atol=1e-5)

# Two heads, each with a method of its own, each of which is told its losses in either replica.
methods = {"a": METHOD, "b": sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.4, 3), gamma=0.5)}
with strategy.scope():
    inputs = keras.Input((5,))
    heads = [keras.layers.Dense(3, activation="softmax", name=name)(inputs) for name in methods]
    model = keras.Model(inputs, heads)
    model.compile(keras.optimizers.SGD(1.0), "sparse_categorical_crossentropy")
before = {name: model.get_layer(name).get_weights() for name in methods}
callbacks = [SIGUA(method, output=name) for name, method in methods.items()]
model.fit(x, [y, y], batch_size=32, shuffle=False, verbose=0, callbacks=callbacks)
for name, method in methods.items():
    kernel, bias = before[name]
    for half in (slice(0, 16), slice(16, 32)):
        logits = x[half].astype("float64") @ before[name][0] + before[name][1]
        kernel = kernel - x[half].T @ sigua.reference.step(method, logits, y[half]).gradient / 2
    np.testing.assert_allclose(model.get_layer(name).get_weights()[0], kernel, rtol=0, atol=1e-5)
"""

PARALLEL = """
import jax

assert len(jax.devices()) == 2
start, single, alone = train()
keras.distribution.set_distribution(keras.distribution.DataParallel())
_, model, history = train(start)
np.testing.assert_allclose(history["sigua_good"], [1, 25 / 32, 17 / 32, 17 / 32])
np.testing.assert_allclose(history["sigua_bad"], [0, 7 / 32, 8 / 32, 8 / 32])
np.testing.assert_allclose(history["loss"], alone["loss"], rtol=1e-5)
for a, b in zip(single.get_weights(), model.get_weights(), strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
"""

AGREEMENT = """
from sigua.confidence import moved, rates

AG = sigua.sigua_ag(warmup=3)
sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

def agree(parts):
    # Nothing is learnt, so that each part's state is known.
    inner = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    model = SIGUAModel(inner, AG)
    model.compile(keras.optimizers.SGD(0.0), sparse)
    history = model.fit(x, y, batch_size=32, epochs=6, shuffle=False, verbose=0).history
    logits = x.astype("float64") @ inner.get_weights()[0]
    states, shares = np.zeros((len(parts), 2, 3)), []
    for epoch in range(6):
        bad = 0
        for i, part in enumerate(parts):
            own = logits[part], y[part]
            step = sigua.reference.step(AG, *own, epoch, confidence=rates(states[i]))
            bad += step.split.bad.sum()
            states[i] = moved(states[i], sigua.reference.confidence_sums(*own))
        shares.append(bad / 32)
    np.testing.assert_allclose(history["sigua_bad"], shares, rtol=1e-6)
    assert shares[-1] > 0.2
    store = {}
    model.save_own_variables(store)
    np.testing.assert_allclose(store["sigua_confidence"], states.mean(0), rtol=1e-5)
"""

MIRRORED_AGREEMENT = """
with strategy.scope():
    agree([slice(0, 16), slice(16, 32)])
"""

PARALLEL_AGREEMENT = """
keras.distribution.set_distribution(keras.distribution.DataParallel())
agree([slice(0, 32)])
"""


SCRIPTS = {
    ("tensorflow", "replicas rank their own part, and gradients are averaged"): TWO + MIRRORED,
    ("tensorflow", "replicas judge by what they saw, and the mean is saved"): TWO
    + AGREEMENT
    + MIRRORED_AGREEMENT,
    ("jax", "devices rank all examples, as a single one does"): PARALLEL,
    ("jax", "devices have one class confidence, of all examples"): AGREEMENT + PARALLEL_AGREEMENT,
}


@pytest.mark.parametrize(("backend", "claim"), SCRIPTS)
def test_under_mirrored_strategy_and_data_parallel(backend, claim):
    """Of TensorFlow's replicas each selects for itself; on JAX the whole mini-batch is one."""
    if backend != keras.config.backend():
        pytest.skip(f"of {backend}")
    launch("-c", COMMON + SCRIPTS[backend, claim], **devices(2))
