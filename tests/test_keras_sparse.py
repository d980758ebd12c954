"""Keras trains by a sparse T as the reference does, and on 100,000 classes."""

import keras
import numpy as np
import pytest
import scipy.sparse as sp
from keras_shift import gradient

import sigua
from sigua import TransitionMatrix, reference
from sigua_keras import SIGUA, corrected_losses

# Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

EPS = float(np.finfo(np.float32).eps)
LEFT_OUT = 1e-8  # of a row of T^-1, in all


def confusions(k, size=5):
    """Each class of a group of `size` is confused with two others of it."""
    rng = np.random.default_rng(0)
    each = np.repeat(np.arange(k), 2)
    others = each // size * size + (each + rng.integers(1, size, 2 * k)) % size
    rates = rng.uniform(0, 0.4, k)
    shares = (rng.dirichlet([1, 1], k) * rates[:, None]).ravel()
    return sp.coo_array((shares, (each, others)), shape=(k, k)) + sp.diags_array(1 - rates)


def step(method, logits, labels, loss, activation="linear"):
    """Return the gradient with respect to the logits, and the logs, of one step of `fit`."""
    after = [keras.layers.Activation(activation)]
    return gradient(logits, labels, loss, SIGUA(method), after=after)


def batch(k, n=100):
    rng = np.random.default_rng(k)
    return rng.normal(scale=2, size=(n, k)).astype("float32"), rng.integers(0, k, n)


METHODS = {
    "BC": sigua.backward_correction,
    "label": lambda T: sigua.sigua_bc(T, gamma=0.5),
    "classes": lambda T: sigua.sigua_bc(T, gamma=0.5, over="classes"),
    "forward": sigua.forward_correction,
}
by_name = pytest.mark.parametrize("name", METHODS)
from_logits = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@by_name
@pytest.mark.parametrize("k", [5, 50])
@pytest.mark.filterwarnings("ignore:over='classes':UserWarning")  # for five it never fires
def test_a_step_equals_the_reference(name, k):
    """Masks are equal in number, and gradients within 8 eps / n times T^-1's entries."""
    method = METHODS[name](TransitionMatrix(confusions(k)))
    logits, labels = batch(k)
    gradient, logs = step(method, logits, labels, from_logits)
    want = reference.step(method, logits, labels)
    scale = np.abs(method.T.inverse).max()
    atol = (8 * EPS + LEFT_OUT) / len(labels) * scale
    np.testing.assert_allclose(gradient, want.gradient, rtol=0, atol=atol)
    assert logs["sigua_good"] == pytest.approx(want.split.good.mean(), abs=EPS)
    np.testing.assert_allclose(logs["loss"], want.objective, rtol=0, atol=64 * EPS * scale)


@by_name
@pytest.mark.filterwarnings("ignore:over='classes':UserWarning")
@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.CategoricalCrossentropy(from_logits=True),
        keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
        keras.losses.CategoricalFocalCrossentropy(),
    ],
    ids=["one-hot", "smoothed", "another"],
)
def test_other_losses_are_corrected_as_by_the_dense_matrix(name, loss):
    rows = confusions(5)
    logits, labels = batch(5)
    activation = "linear" if getattr(loss, "from_logits", False) else "softmax"
    one_hot = np.eye(5, dtype="float32")[labels]
    sparse, dense = (
        step(METHODS[name](TransitionMatrix(r)), logits, one_hot, loss, activation)
        for r in (rows, rows.toarray())
    )
    np.testing.assert_allclose(sparse[0], dense[0], rtol=0, atol=32 * EPS / len(labels))
    assert sparse[1]["sigua_bad"] == dense[1]["sigua_bad"]


@pytest.mark.parametrize(
    "T",
    [TransitionMatrix.symmetric(0.0, 3), TransitionMatrix(np.eye(3)), TransitionMatrix(sp.eye(3))],
    ids=["symmetric", "dense", "sparse"],
)
def test_a_masked_class_is_no_part_of_a_correction_without_noise(T):
    """The loss is cross-entropy: log(1 + e) - 1 for logits 0, 1, -inf and label 1, not NaN."""
    logits = np.array([[0.0, 1.0, -np.inf]], "float32")
    losses = corrected_losses(np.array([1]), logits, sigua.sigua_bc(T), from_logits)
    assert keras.ops.convert_to_numpy(losses)[0] == pytest.approx(np.log(1 + np.e) - 1, rel=1e-6)


K = 100_000
MANY = {
    "symmetric": lambda: TransitionMatrix.symmetric(0.5, K),
    "pair": lambda: TransitionMatrix.pair(0.45, K),
    "groups": lambda: TransitionMatrix(confusions(K)),
}


@pytest.mark.parametrize(
    ("kind", "make"),
    [("symmetric", sigua.sigua_bc), *((kind, sigua.forward_correction) for kind in MANY)],
)
def test_a_network_trains_on_a_hundred_thousand_classes(kind, make):
    """Without T as an array of 80 GB, and the loss falls."""
    keras.utils.set_random_seed(0)
    T = MANY[kind]()
    model = keras.Sequential([keras.layers.Embedding(16, 8), keras.layers.Dense(K)])
    model.compile(keras.optimizers.Adam(0.1), from_logits)
    x, y = np.arange(16), np.random.default_rng(0).integers(0, K, 16)
    history = model.fit(x, y, epochs=8, batch_size=16, verbose=0, callbacks=[SIGUA(make(T))])
    losses = history.history["loss"]
    assert losses[-1] < losses[0] - 1
    assert not {"_rows", "inverse"} & vars(T).keys()
