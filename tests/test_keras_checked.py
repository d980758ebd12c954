"""Checked examples in each mini-batch of Keras."""

import keras
import numpy as np
import pytest

import sigua
from sigua_keras import SIGUA, with_checked

# Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def data(n=60):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    x = (np.eye(3)[y] + 0.1 * rng.standard_normal((n, 3))).astype("float32")
    return x, y, np.arange(n) < 12


def model(compiled=True):
    keras.utils.set_random_seed(0)
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax")])
    if compiled:
        net.compile(keras.optimizers.SGD(0.5), "sparse_categorical_crossentropy")
    return net


def cross_entropy(net, x, y):
    p = np.asarray(net.predict(x, verbose=0), dtype=np.float64)
    return -np.log(p[np.arange(len(y)), y]).mean()


def test_a_step_descends_on_the_sum_of_both_mean_losses():
    """One mini-batch, plain training: the loss that Keras reports is worked out by hand."""
    x, y, checked = data(24)
    net = model()
    both, batches = with_checked(net, x, y, checked, 24, seed=0)
    assert len(batches) == 1
    want = cross_entropy(net, x[checked], y[checked]) + cross_entropy(net, x[~checked], y[~checked])
    got = both.fit(batches, callbacks=[SIGUA(sigua.standard(), output="noisy")], verbose=0)
    assert got.history["loss"][0] == pytest.approx(want, rel=1e-6)


def test_it_trains_the_model_itself_by_right_labels_where_all_others_are_wrong():
    """Known, all bad and ignored: what is learnt comes from the twelve checked ones."""
    x, y, checked = data()
    given = np.where(checked, y, (y + 1) % 3)
    net = model()
    both, batches = with_checked(net, x, given, checked, 16, seed=0)
    nobody = sigua.custom(sigua.SmallLoss(0.97, 0.0, 0.01))
    both.fit(batches, epochs=20, callbacks=[SIGUA(nobody, output="noisy")], verbose=0)
    assert (net.predict(x, verbose=0).argmax(1) == y).mean() > 0.95


def test_an_epoch_has_each_unchecked_example_once_and_the_next_is_another():
    _, y, checked = data()
    _, batches = with_checked(model(), np.arange(60), y, checked, 16, seed=0)
    epochs = []
    for _ in range(2):
        epochs.append(np.concatenate([batches[i][0]["noisy"] for i in range(len(batches))]))
        batches.on_epoch_end()
    assert sorted(epochs[0]) == np.flatnonzero(~checked).tolist() == sorted(epochs[1])
    assert epochs[0].tolist() != epochs[1].tolist()


def test_what_cannot_be_is_refused():
    x, y, checked = data()
    with pytest.raises(ValueError, match="model: must be compiled with a loss, got none"):
        with_checked(model(compiled=False), x, y, checked)
    with pytest.raises(ValueError, match="checked: must be True for some examples, got none"):
        with_checked(model(), x, y, np.zeros(60, dtype=bool))
    with pytest.raises(ValueError, match=r"x: must have an entry .* got 60, 59 and 60"):
        with_checked(model(), x, y[1:], checked)
