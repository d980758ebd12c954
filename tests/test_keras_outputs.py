"""Models with several outputs, and models in half precision."""

import keras
import numpy as np
import pytest
from keras_shift import Shift

import sigua
from sigua import reference
from sigua_keras import SIGUA

METHOD = sigua.sigua_sl(noise_rate=0.5, delta=0.25, gamma=0.25, warmup=0)
N = 16
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize("weighed", [False, True], ids=["unweighed", "weighed"])
def test_outputs_by_name_with_losses_and_weights_of_their_own(weighed):
    """Losses, loss weights and labels by name, and a weight per output, stay where they belong."""
    logits = np.random.default_rng(0).normal(size=(2, N, 3)).astype("float32")
    labels = np.random.default_rng(1).integers(0, 3, (2, N))
    inputs = [keras.Input((3,), batch_size=N) for _ in range(2)]
    names, scales = ("first", "second"), (0.5, 2.0)
    shifts = [Shift((N, 3), name=name) for name in names]
    model = keras.Model(inputs, [shift(x) for shift, x in zip(shifts, inputs, strict=True)])
    by_name = dict(zip(names, scales, strict=True))
    model.compile(keras.optimizers.SGD(1.0), dict.fromkeys(names, CROSS_ENTROPY), by_name)
    weights = [np.linspace(0.5, 1.5, N), np.linspace(1.5, 0.5, N)] if weighed else np.ones((2, N))
    # Keras takes labels by name for a list of outputs, but not sample weights.
    y = list(labels) if weighed else dict(zip(names, labels, strict=True))
    options = {"batch_size": N, "shuffle": False, "verbose": 0}
    options["sample_weight"] = weights if weighed else None
    model.fit(list(logits), y, callbacks=[SIGUA(METHOD, output="first")], **options)
    for i, method in enumerate((METHOD, sigua.standard())):
        want = reference.step(method, logits[i], labels[i]).gradient
        slopes = -keras.ops.convert_to_numpy(shifts[i].shift.value).astype("float64")
        np.testing.assert_allclose(slopes, scales[i] * weights[i][:, None] * want, atol=1e-7)


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
