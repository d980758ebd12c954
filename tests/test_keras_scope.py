"""Who is compared with whom, and by what: per class, and by a ranking loss of its own."""

import keras
import numpy as np
import pytest
from keras_shift import gradient

import sigua
from sigua import reference
from sigua_keras import SIGUA, SIGUAModel

# Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

EPS = float(np.finfo(np.float32).eps)
SPARSE = keras.losses.SparseCategoricalCrossentropy
T = sigua.TransitionMatrix(0.6 * np.eye(5) + 0.4 * np.eye(5)[0])
SL = sigua.sigua_sl(0.5, delta=0.3, gamma=0.25, warmup=0)
METHODS = [
    sigua.self_teaching(0.5, warmup=0),
    SL,
    sigua.sigua_sl(0.5, delta=0.6, gamma=0.25, warmup=0, variant="official"),
    sigua.custom(sigua.NoiseFloor(2.0), gamma=0.5),
    sigua.sigua_bc(T, gamma=0.5, over="batch"),
    sigua.custom(sigua.SmallLoss(0.4, 0.3, 0), 0.25, "forward", T),
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


def test_who_takes_no_part_takes_no_rank_in_its_class(mini_batch):
    """A weight of 0 and an ignored class: the others are judged as if these were not there."""
    logits, labels = mini_batch
    kept = np.arange(60) % 5 > 0
    done = reference.step(SL, logits[kept], labels[kept], groups=labels[kept])
    callback = SIGUA(SL, groups="class")
    loss = SPARSE(from_logits=True)
    actual, _ = gradient(logits, labels, loss, callback, sample_weight=kept.astype("float32"))
    np.testing.assert_allclose(actual[kept] * 60 / kept.sum(), done.gradient, atol=32 * EPS / 48)
    loss = SPARSE(from_logits=True, ignore_class=-1)
    actual, logs = gradient(logits, np.where(kept, labels, -1), loss, SIGUA(SL, groups="class"))
    assert np.isfinite(actual).all()
    assert logs["sigua_good"] == pytest.approx(done.split.good.mean())


def test_annotators_are_judged_apart(mini_batch):
    """A function of labels and predictions says who is judged together."""
    logits, labels = mini_batch
    groups = 5 * np.random.default_rng(1).integers(0, 4, 60) - 7
    callback = SIGUA(SL, groups=lambda y, y_pred: groups)
    actual, _ = gradient(logits, labels, SPARSE(from_logits=True), callback)
    close(actual, reference.step(SL, logits, labels, groups=groups).gradient)


@pytest.mark.parametrize(
    "make", [SIGUA, lambda *args, **kw: SIGUAModel(keras.Model(), *args, **kw)]
)
def test_what_does_not_fit_is_refused(make):
    """At construction, in a sentence; an argument that was names the new one."""
    with pytest.raises(
        ValueError, match=r"^groups: must be 'class', 'image' or a function .* 'row'"
    ):
        make(SL, groups="row")
    with pytest.raises(ValueError, match=r"^groups: must be left out, for Agreement"):
        make(sigua.sigua_ag(), groups="class")
    with pytest.raises(TypeError, match=r"^per_class: must be left out, .*try groups='class'"):
        make(SL, per_class=True)
    with pytest.raises(TypeError, match=r"^rank_by: must be left out, .*try sigua_keras\.select"):
        make(SL, rank_by="mse")
    with pytest.raises(ValueError, match=r"^loss: must be a loss of Keras .* got 'ce2';"):
        make(SL, loss="ce2")
