"""Keras trains by a sparse T as the reference does, and on 100,000 classes."""

import keras
import numpy as np
import pytest
from keras_shift import EPS, gradient
from test_demo_sparse import confusions

import sigua
from sigua import TransitionMatrix
from sigua_keras import SIGUA


def batch(k, n=100):
    rng = np.random.default_rng(k)
    return rng.normal(scale=2, size=(n, k)).astype("float32"), rng.integers(0, k, n)


@pytest.mark.parametrize("make", [sigua.sigua_bc, sigua.forward_correction])
def test_other_losses_are_corrected_as_by_the_dense_matrix(make):
    rows, loss = confusions(5), keras.losses.CategoricalFocalCrossentropy()
    logits, labels = batch(5)
    one_hot = np.eye(5, dtype="float32")[labels]
    softmax = [keras.layers.Softmax()]
    sparse, dense = (
        gradient(logits, one_hot, loss, SIGUA(make(TransitionMatrix(r))), after=softmax)
        for r in (rows, rows.toarray())
    )
    np.testing.assert_allclose(sparse[0], dense[0], rtol=0, atol=32 * EPS / len(labels))
    assert sparse[1]["sigua_bad"] == dense[1]["sigua_bad"]


K = 100_000


@pytest.mark.parametrize("kind", ["symmetric", "groups"])
def test_a_network_trains_on_a_hundred_thousand_classes(kind):
    """Without T as an array of 80 GB, and the loss falls."""
    keras.utils.set_random_seed(0)
    symmetric = kind == "symmetric"
    T = TransitionMatrix.symmetric(0.5, K) if symmetric else TransitionMatrix(confusions(K))
    method = sigua.sigua_bc(T) if symmetric else sigua.forward_correction(T)
    model = keras.Sequential([keras.layers.Embedding(16, 8), keras.layers.Dense(K)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.1), loss)
    x, y = np.arange(16), np.random.default_rng(0).integers(0, K, 16)
    history = model.fit(x, y, epochs=8, batch_size=16, verbose=0, callbacks=[SIGUA(method)])
    losses = history.history["loss"]
    assert losses[-1] < losses[0] - 1
    assert not {"_rows", "inverse"} & vars(T).keys()
