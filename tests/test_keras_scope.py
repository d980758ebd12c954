"""Who is compared with whom, and by what: per class, and by a ranking loss of its own."""

import keras
import numpy as np
import pytest
from keras_shift import gradient

import sigua
from sigua import reference
from sigua_keras import SIGUA

EPS = float(np.finfo(np.float32).eps)
SPARSE = keras.losses.SparseCategoricalCrossentropy
T = sigua.TransitionMatrix(0.6 * np.eye(5) + 0.4 * np.eye(5)[0])
SL = sigua.sigua_sl(0.5, delta=0.3, gamma=0.25, warmup=0)
METHODS = [
    SL,
    sigua.sigua_bc(T, gamma=0.5, over="batch"),
]


@pytest.fixture
def mini_batch():
    """Logits with tied rows, and labels of which class 4 is rare."""
    rng = np.random.default_rng(0)
    logits = rng.normal(scale=2, size=(60, 5)).astype("float32")
    labels = rng.choice(5, 60, p=[0.4, 0.3, 0.15, 0.12, 0.03])
    logits[30::3], labels[30::3] = logits[:30:3], 1
    return logits, labels


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=32 * EPS / len(expected))


@pytest.mark.parametrize("groups", [None, "class"])
def test_an_infinite_loss_does_not_hold_the_mean_below_a_floor(groups):
    """Losses inf, 2 and 2: at or above 1.5, so that two of three are good."""
    losses = np.array([[np.inf, 0], [2, 0], [2, 0]], dtype="float32")
    callback = SIGUA(sigua.custom(sigua.NoiseFloor(1.5), gamma=1.0), groups=groups)
    _, logs = gradient(losses, np.zeros(3), lambda y_true, y_pred: y_pred[:, 0], callback)
    assert logs["sigua_good"] == pytest.approx(2 / 3)
    assert logs["sigua_bad"] == 0


@pytest.mark.parametrize("method", METHODS, ids=lambda method: repr(method)[:40])
def test_per_class_judges_each_label_apart(method, mini_batch):
    """The gradient of a compiled step, and the shares, are the reference's with label groups."""
    logits, labels = mini_batch
    callback = SIGUA(method, groups="class")
    actual, logs = gradient(logits, labels, SPARSE(from_logits=True), callback)
    done = reference.step(method, logits, labels, groups=labels)
    close(actual, done.gradient)
    assert logs["sigua_good"] == pytest.approx(done.split.good.mean())
    assert logs["sigua_bad"] == pytest.approx(done.split.bad.mean())
