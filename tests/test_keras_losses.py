"""Losses besides cross-entropy in Keras: against the core's, and under every kind of method."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import ops
from keras_shift import SL, array, close, step

import sigua
from sigua import losses as spec
from sigua import reference
from sigua_keras import losses

PAIRS = {
    "sce": (losses.SymmetricCrossEntropy, {}, spec.symmetric_cross_entropy),
    "sce alpha=6": (
        losses.SymmetricCrossEntropy,
        {"alpha": 6.0, "beta": 0.1, "log_zero": -6.0},
        spec.symmetric_cross_entropy,
    ),
    "soft": (losses.Bootstrapping, {}, spec.bootstrapping),
    "hard": (losses.Bootstrapping, {"hard": True}, spec.bootstrapping),
}
each = pytest.mark.parametrize("name", PAIRS)


def pair(name):
    """Return the loss, on logits or scores, and the core's."""
    cls, parameters, core = PAIRS[name]
    return cls(**parameters, from_logits=True), partial(core, **parameters)


def batch(n=24, k=4):
    rng = np.random.default_rng(0)
    return rng.normal(scale=2, size=(n, k)).astype("float32"), rng.integers(0, k, n)


@each
def test_values_are_the_cores(name):
    """From logits and from probabilities; labels may be integers (n,), (n, 1), or one-hot rows."""
    loss, core = pair(name)
    cls, parameters, _ = PAIRS[name]
    logits, labels = batch()
    expected = core(logits, labels)
    for given in (labels, labels[:, None], np.eye(4, dtype="float32")[labels]):
        close(array(loss.call(given, logits)), expected)
    log_p = reference.log_softmax(logits / 4)
    p = np.exp(log_p).astype("float32")
    close(array(cls(**parameters).call(labels, p)), core(log_p, labels))


@each
def test_one_sigmoid_unit_is_two_classes(name):
    """For predictions (n, 1) the probabilities are (1 - p, p)."""
    loss, core = pair(name)
    z = np.array([0.3, -2.0, 1.5], dtype="float32")
    labels = np.array([0, 1, 1])
    expected = core(two(z), labels)
    close(array(loss.call(labels[:, None], z[:, None])), expected)
    close(array(loss.call(labels, z[:, None])), expected)


def two(z):
    """Return the logits of the two-way softmax that equals a sigmoid."""
    z = np.asarray(z, dtype=np.float64).ravel()
    return np.stack([np.zeros_like(z), z], axis=1)


def test_soft_labels():
    """Probabilities as labels average what is linear, and enter the reverse part as logarithms."""
    logits, _ = batch(6)
    soft = np.random.default_rng(1).dirichlet(np.ones(4), 6)
    for name in ("soft", "hard"):
        loss, core = pair(name)
        table = np.stack([core(logits, np.full(6, j)) for j in range(4)], axis=1)
        close(array(loss.call(soft, logits)), (table * soft).sum(axis=1))
    reverse = losses.SymmetricCrossEntropy(alpha=0.0)
    close(array(reverse.call([[0.5, 0.5]], ops.array([[0.25, 0.75]]))), [np.log(2)])


@each
def test_extreme_logits(name):
    """Logits of 1e4 either way, and a masked class, have finite losses and gradients."""
    loss, _ = pair(name)
    logits = np.array([[1e4, -1e4, 0.0]] * 3)
    assert np.isfinite(array(loss.call(np.arange(3), logits.astype("float32")))).all()
    gradient, logs = step(sigua.standard(), logits, np.arange(3), loss)
    assert np.isfinite(gradient).all()
    assert np.isfinite(logs["loss"])
    logits = np.array([[0.5, -0.5, -np.inf]] * 2)
    gradient, _ = step(sigua.standard(), logits, np.arange(2), loss)
    assert np.isfinite(gradient).all()


@each
def test_saving(name, tmp_path):
    """A loss survives its config, and a saved model compiles with it again."""
    loss, _ = pair(name)
    logits, labels = batch()
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.get_config() == loss.get_config()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    model.compile("sgd", loss)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.loss) is type(loss)
    assert loaded.loss.get_config() == loss.get_config()
    np.testing.assert_array_equal(
        loaded.evaluate(logits, labels, verbose=0), model.evaluate(logits, labels, verbose=0)
    )


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(losses.SymmetricCrossEntropy, alpha=-1), "^alpha: must be a number"),
        (partial(losses.SymmetricCrossEntropy, log_zero=1), "^log_zero: must be a number"),
        (partial(losses.Bootstrapping, beta=2), "^beta: must be a number"),
        (
            lambda: losses.SymmetricCrossEntropy()(np.zeros((2, 3)), np.full((2, 4), 0.25)),
            "^y: must be integers",
        ),
    ],
)
def test_refused_parameters_and_labels(make, message):
    """A parameter out of range, at construction, and labels neither one nor one per class."""
    with pytest.raises(ValueError, match=message):
        make()
