"""Losses of Keras besides those of a softmax: several labels a row, and regression."""

import keras
import numpy as np
import pytest
from keras_shift import SL, close, step

import sigua
from sigua import reference


def two(z):
    """Return the logits of the two-way softmax that equals a sigmoid."""
    z = np.asarray(z, dtype=np.float64).ravel()
    return np.stack([np.zeros_like(z), z], axis=1)


def test_several_labels_are_one_example():
    """Keras averages binary cross-entropy over the labels, so that a row is an example."""
    rng = np.random.default_rng(3)
    z, labels = rng.normal(size=(8, 3)).astype("float32"), rng.integers(0, 2, (8, 3))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    gradient, logs = step(SL, z, labels.astype("float32"), loss)
    rows = reference.cross_entropy(two(z), labels.ravel()).reshape(8, 3).mean(axis=1)
    split = reference.split(SL, rows)
    weights = sigua.signed_weights(split, 0.25)
    close(logs["loss"], sigua.objective(rows, weights))
    slopes = (1 / (1 + np.exp(-z.astype("float64"))) - labels) / 3
    close(gradient * 8, slopes * weights[:, None])


@pytest.mark.parametrize("loss", ["mean_squared_error", "huber"])
@pytest.mark.parametrize("column", [True, False])
def test_small_loss_on_regression(loss, column):
    """Squared (or Huber) errors select as any loss does: the largest are dropped or climbed on."""
    target = np.arange(10, dtype="float32")
    errors = np.array([0.1, 4.0, 0.3, 0.2, 9.0, 0.5, 0.4, 3.0, 5.0, 0.6])
    method = sigua.sigua_sl(0.5, delta=0.2, gamma=0.5, warmup=0)
    given = target[:, None] if column else target
    gradient, _ = step(method, (target + errors)[:, None], given, loss)
    weights = np.where(errors < 1, 1, np.where(np.isin(errors, [3, 4]), -0.5, 0))
    slopes = 2 * errors if loss == "mean_squared_error" else np.minimum(errors, 1)
    # target + error - target has the roundings of numbers near 10
    close(gradient[:, 0] * 10, slopes * weights, 64)
