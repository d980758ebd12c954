"""Models with several outputs, and models in half precision."""

import keras
import numpy as np
import pytest
from keras_shift import Shift

import sigua
from sigua import TransitionMatrix, reference
from sigua_keras import SIGUA

METHOD = sigua.sigua_sl(noise_rate=0.5, delta=0.25, gamma=0.25, warmup=0)
CORRECTED = sigua.sigua_bc(TransitionMatrix.symmetric(0.3, 3), gamma=0.5)
N = 16
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(size=(2, N, 3)).astype("float32")


@pytest.fixture
def labels():
    return np.random.default_rng(1).integers(0, 3, (2, N))


class Two(keras.Model):
    """Predicts its two inputs, in the structure that is asked for."""

    def __init__(self, pack):
        super().__init__()
        self.a, self.b = Shift((N, 3)), Shift((N, 3))
        self.pack = pack

    def call(self, inputs):
        return self.pack(self.a(inputs[0]), self.b(inputs[1]))


PACKS = {
    "dict": lambda a, b: {"a": a, "b": b},
    "list": lambda a, b: [a, b],
    "tuple": lambda a, b: (a, b),
}


def gradients(model):
    return [
        -keras.ops.convert_to_numpy(s.shift.value).astype("float64") for s in (model.a, model.b)
    ]


def named(logits):
    """Return a functional model with the outputs "first" and "second"."""
    inputs = [keras.Input((3,), batch_size=N) for _ in range(2)]
    shifts = [Shift((N, 3), name="first"), Shift((N, 3), name="second")]
    model = keras.Model(inputs, [shift(x) for shift, x in zip(shifts, inputs, strict=True)])
    model.a, model.b = shifts
    return model


def train(model, method, x, y, output, loss=CROSS_ENTROPY, loss_weights=None, **kwargs):
    model.compile(keras.optimizers.SGD(1.0), loss, loss_weights=loss_weights)
    callbacks = [SIGUA(method, output=output)]
    arguments = {"batch_size": N, "shuffle": False, "verbose": 0, "callbacks": callbacks}
    return model.fit([x[0], x[1]], y, **arguments, **kwargs).history


@pytest.mark.parametrize("method", [METHOD, CORRECTED], ids=["weights", "corrected"])
@pytest.mark.parametrize("kind", PACKS)
def test_one_output_of_several_is_trained_with_sigua(kind, method, logits, labels):
    """The named output has SIGUA's gradient, the other one its plain gradient."""
    model = Two(PACKS[kind])
    y = PACKS[kind](*labels)
    history = train(model, method, logits, y, "b" if kind == "dict" else 1)
    plain = reference.step(sigua.standard(), logits[0], labels[0])
    chosen = reference.step(method, logits[1], labels[1])
    for actual, expected in zip(gradients(model), (plain, chosen), strict=True):
        np.testing.assert_allclose(actual, expected.gradient, rtol=0, atol=1e-7)
    assert history["loss"][0] == pytest.approx(plain.objective + chosen.objective, rel=1e-5)
    assert history["sigua_good"][0] == pytest.approx(chosen.split.good.mean())


@pytest.mark.parametrize("weighed", [False, True], ids=["unweighed", "weighed"])
@pytest.mark.parametrize("method", [METHOD, CORRECTED], ids=["weights", "corrected"])
def test_outputs_by_name_with_losses_and_weights_of_their_own(method, weighed, logits, labels):
    """Losses, loss weights and labels by name, and a weight per output, stay where they belong."""
    model = named(logits)
    weights = [np.linspace(0.5, 1.5, N), np.linspace(1.5, 0.5, N)] if weighed else np.ones((2, N))
    # Keras takes labels by name for a list of outputs, but not sample weights.
    y = list(labels) if weighed else {"first": labels[0], "second": labels[1]}
    train(
        model,
        method,
        logits,
        y,
        "first",
        loss={"first": CROSS_ENTROPY, "second": CROSS_ENTROPY},
        loss_weights={"first": 0.5, "second": 2.0},
        sample_weight=weights if weighed else None,
    )
    chosen = reference.step(method, logits[0], labels[0]).gradient
    plain = reference.step(sigua.standard(), logits[1], labels[1]).gradient
    first, second = gradients(model)
    np.testing.assert_allclose(first, 0.5 * weights[0][:, None] * chosen, rtol=0, atol=1e-7)
    np.testing.assert_allclose(second, 2.0 * weights[1][:, None] * plain, rtol=0, atol=1e-7)


POLICIES = ["mixed_float16", "mixed_bfloat16"]


@pytest.mark.parametrize("policy", POLICIES)
def test_half_precision_is_ranked_in_float32(policy):
    """With 300 classes, labels stay whole numbers and the selection is that of float32."""
    rng = np.random.default_rng(3)
    n, k = 64, 300
    rows = rng.normal(size=(n, k)).astype("float32")
    rows = keras.ops.convert_to_numpy(
        keras.ops.cast(keras.ops.cast(rows, policy.removeprefix("mixed_")), "float32")
    )  # representable, so that only the loss could round
    labels = np.concatenate([np.arange(n // 2), 299 - np.arange(n // 2)])
    shift = keras.layers.Dense(k, use_bias=False, kernel_initializer="zeros", dtype=policy)

    class Model(keras.Model):
        def __init__(self):
            super().__init__(dtype=policy)
            self.shift = shift

        def call(self, inputs):
            rows, which = inputs
            return keras.ops.cast(rows, self.compute_dtype) + self.shift(which)

    model = Model()
    model.compile(keras.optimizers.SGD(1.0), CROSS_ENTROPY)
    which = np.eye(n, dtype="float32")
    history = model.fit(
        [rows, which], labels, batch_size=n, shuffle=False, verbose=0, callbacks=[SIGUA(METHOD)]
    )
    expected = reference.step(METHOD, rows, labels)
    assert history.history["sigua_good"][0] == expected.split.good.mean()
    gradient = -keras.ops.convert_to_numpy(shift.kernel.value)
    at_label = gradient[np.arange(n), labels]  # negative for who is descended on
    np.testing.assert_array_equal(at_label < 0, expected.split.good)
    np.testing.assert_array_equal(at_label > 0, expected.split.bad)
    np.testing.assert_allclose(gradient, expected.gradient, rtol=0, atol=2.0**-8 / n)
