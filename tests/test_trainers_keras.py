"""What `fit` of Keras returns is drawn as it is."""

import keras
import numpy as np
import pytest

import sigua
from sigua import plot
from sigua_keras import SIGUA


# Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_the_history_of_keras_is_drawn():
    """Of 64 floor(64 * rho) + 1 are kept once anybody is dropped; rho is 1, .75, .5, .5."""
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    x, method = np.random.default_rng(0).normal(size=(64, 5)), sigua.sigua_sl(0.5, 0.25, warmup=2)
    fitted = model.fit(x, np.arange(64) % 3, 64, epochs=4, verbose=0, callbacks=[SIGUA(method)])
    for recorded in (fitted, fitted.history):
        good, bad, _ = (line.get_ydata() / 100 for line in plot.selection(recorded).get_lines())
        np.testing.assert_allclose(good, np.array([64, 49, 33, 33]) / 64, rtol=1e-6)
        np.testing.assert_allclose(bad, fitted.history["sigua_bad"], rtol=1e-6)
