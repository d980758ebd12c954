"""What a watched `fit` notes after each epoch is what a pass of one's own says."""

import keras
import numpy as np
import pytest

import sigua
from sigua_keras import SIGUA
from sigua_keras.diagnostics import LabelWatch

# Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def data(size=96, classes=3):
    rng = np.random.default_rng(0)
    clean = np.arange(size) % classes
    x = (np.eye(classes)[clean] + 0.3 * rng.standard_normal((size, classes))).astype("float32")
    y = sigua.corrupt_labels(clean, sigua.TransitionMatrix.symmetric(0.4, classes), seed=1)
    return x, y, clean == y


def model(activation="softmax"):
    keras.utils.set_random_seed(0)
    net = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(3, activation)])
    logits = activation is None
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=logits)
    net.compile(keras.optimizers.Adam(0.01), loss)
    return net


@pytest.mark.parametrize("activation", ["softmax", None])
def test_the_last_epoch_is_what_a_pass_after_fit_says(activation):
    """With SIGUA in the callbacks, too; losses in float32 are exact to a few of its eps."""
    x, y, intact = data()
    net = model(activation)
    watch = LabelWatch(x, y, intact, from_logits=activation is None)
    method = sigua.self_teaching(0.4, warmup=1)
    history = net.fit(x, y, batch_size=32, epochs=3, callbacks=[SIGUA(method), watch], verbose=0)
    p = np.asarray(net.predict(x, verbose=0), dtype=np.float64)
    if activation is None:
        p = np.exp(p) / np.exp(p).sum(axis=1, keepdims=True)
    own = p[np.arange(len(y)), y]
    assert watch.losses.shape == watch.margins.shape == (3, len(y))
    np.testing.assert_allclose(watch.losses[-1], -np.log(own), rtol=0, atol=1e-5)
    np.testing.assert_allclose(watch.margins[-1], sigua.label_margins(p, y), rtol=0, atol=1e-5)
    right = p.argmax(axis=1) == y
    logged = {name: values[-1] for name, values in history.history.items()}
    assert logged["accuracy_given"] == right.mean()
    assert logged["accuracy_intact"] == right[intact].mean()
    assert logged["accuracy_flipped"] == right[~intact].mean()
    assert 0 < logged["sigua_good"] < 1
    assert not np.array_equal(watch.losses[0], watch.losses[1])


def test_suspects_are_found_and_training_with_a_watch_is_training_without_one():
    x, y, intact = data()
    watched, plain = model(), model()
    watch = LabelWatch(x, y)
    history = watched.fit(
        x, y, epochs=12, batch_size=8, callbacks=[watch], shuffle=False, verbose=0
    )
    plain.fit(x, y, epochs=12, batch_size=8, shuffle=False, verbose=0)
    for a, b in zip(watched.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    assert "accuracy_flipped" not in history.history
    issues = sigua.rank_label_issues(margins=watch.margins, noise_rate=(~intact).mean())
    assert (~intact)[issues.suspects].mean() > 0.8


def test_the_selection_is_judged_by_whose_label_is_right():
    """By counting, over the batches of 32, what the rule's order statistic keeps of the losses."""
    x, y, intact = data()
    method = sigua.sigua_sl(0.5, delta=0.25, warmup=0)
    watch = LabelWatch(x, y, intact, method=method)
    history = model().fit(x, y, epochs=2, callbacks=[watch], verbose=0)
    ranks = watch.losses[-1].reshape(3, 32).argsort(axis=1).argsort(axis=1)
    good, bad = (ranks <= 16).ravel(), ((ranks > 16) & (ranks <= 24)).ravel()
    want = {
        "good_precision": (good & intact).sum() / good.sum(),
        "good_recall": (good & intact).sum() / intact.sum(),
        "bad_precision": (bad & ~intact).sum() / bad.sum(),
        "bad_recall": (bad & ~intact).sum() / (~intact).sum(),
    }
    assert {name: history.history[name][-1] for name in want} == pytest.approx(want, rel=1e-12)
    with pytest.raises(ValueError, match=r"^intact: a selection is judged by it"):
        LabelWatch(x, y, method=method)


def test_nobody_flipped_is_nan():
    x, _, _ = data()
    clean = np.arange(96) % 3
    watch = LabelWatch(x, clean, np.ones(96, dtype=bool))
    history = model().fit(x, clean, callbacks=[watch], verbose=0)
    assert np.isnan(history.history["accuracy_flipped"][0])


def test_what_cannot_be_watched_is_refused():
    x, y, intact = data()
    with pytest.raises(ValueError, match=r"^y: must be integers of shape \(n,\)"):
        LabelWatch(x, y[:, None])
    with pytest.raises(ValueError, match=r"^intact: must have an entry for each of y"):
        LabelWatch(x, y, intact[:5])
    with pytest.raises(ValueError, match=r"^probabilities: .*apply softmax"):
        model(None).fit(x, y, callbacks=[LabelWatch(x, y)], verbose=0)
    with pytest.raises(ValueError, match=r"^labels: must lie in \[0, 3\)"):
        model().fit(x, y, callbacks=[LabelWatch(x, y + 1)], verbose=0)
