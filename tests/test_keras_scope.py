"""Who is compared with whom, and by what: per class, and by a ranking loss of its own."""

import keras
import numpy as np
import pytest
from keras_shift import gradient

import sigua
from sigua import reference
from sigua_keras import SIGUA, SIGUALoss, SIGUAModel

# Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

EPS = float(np.finfo(np.float32).eps)
SPARSE = keras.losses.SparseCategoricalCrossentropy
DENSE = keras.losses.CategoricalCrossentropy
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


@pytest.mark.parametrize("per_class", [False, True])
def test_an_infinite_loss_does_not_hold_the_mean_below_a_floor(per_class):
    """Losses inf, 2 and 2: at or above 1.5, so that two of three are good."""
    losses = np.array([[np.inf, 0], [2, 0], [2, 0]], dtype="float32")
    callback = SIGUA(sigua.custom(sigua.NoiseFloor(1.5), gamma=1.0), per_class=per_class)
    _, logs = gradient(losses, np.zeros(3), lambda y_true, y_pred: y_pred[:, 0], callback)
    assert logs["sigua_good"] == pytest.approx(2 / 3)
    assert logs["sigua_bad"] == 0


@pytest.mark.parametrize("method", METHODS, ids=lambda method: repr(method)[:40])
def test_per_class_judges_each_label_apart(method, mini_batch):
    """The gradient of a compiled step, and the shares, are the reference's with label groups."""
    logits, labels = mini_batch
    callback = SIGUA(method, per_class=True)
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
    callback = SIGUA(SL, per_class=True)
    loss = SPARSE(from_logits=True)
    actual, _ = gradient(logits, labels, loss, callback, sample_weight=kept.astype("float32"))
    np.testing.assert_allclose(actual[kept] * 60 / kept.sum(), done.gradient, atol=32 * EPS / 48)
    loss = SPARSE(from_logits=True, ignore_class=-1)
    actual, logs = gradient(logits, np.where(kept, labels, -1), loss, SIGUA(SL, per_class=True))
    assert np.isfinite(actual).all()
    assert logs["sigua_good"] == pytest.approx(done.split.good.mean())


def test_a_ranking_loss_decides_and_the_other_is_optimised(mini_batch):
    """The masks of cross-entropy, the gradient of the smoothed loss with those as weights."""
    logits, labels = mini_batch
    one_hot = np.eye(5, dtype="float32")[labels]
    smooth, plain = DENSE(from_logits=True, label_smoothing=0.9), DENSE(from_logits=True)
    actual, _ = gradient(logits, one_hot, smooth, SIGUA(SL, rank_by=plain))
    split = reference.step(SL, logits, labels).split
    weights = (split.good - 0.25 * split.bad).astype("float32")
    expected, _ = gradient(logits, one_hot, smooth, sample_weight=weights)
    close(actual, expected)
    unlike, _ = gradient(logits, one_hot, smooth, SIGUA(SL))
    assert np.abs(unlike - actual).max() > 1e-3


def test_a_ranking_loss_lets_the_noise_floor_have_another_loss(mini_batch):
    """Refused without it, and then decided by cross-entropy."""
    logits, labels = mini_batch
    one_hot = np.eye(5, dtype="float32")[labels]
    smooth = DENSE(from_logits=True, label_smoothing=0.3)
    method = sigua.sigua_nf(0.5, 5)
    with pytest.raises(ValueError, match=r"loss: must be plain .* sigua_nf"):
        gradient(logits, one_hot, smooth, SIGUA(method))
    for other in ("mse", smooth):
        with pytest.raises(ValueError, match=r"rank_by: must be plain .* sigua_nf"):
            gradient(logits, one_hot, smooth, SIGUA(method, rank_by=other))
    callback = SIGUA(method, rank_by=DENSE(from_logits=True))
    _, logs = gradient(logits, one_hot, smooth, callback)
    assert logs["sigua_good"] == reference.step(method, logits, labels).split.good.mean()


def test_the_loss_and_the_model_take_both_and_save_them(mini_batch, tmp_path):
    """The loss gives the callback's value; configs and files hold both."""
    logits, labels = mini_batch
    done = reference.step(SL, logits, labels, groups=labels)
    loss = SIGUALoss(SL, SPARSE(from_logits=True), per_class=True)
    again = SIGUALoss.from_config(loss.get_config())
    for each in (loss, again):
        assert float(each(labels, logits)) == pytest.approx(done.objective, rel=1e-5)
    inner = keras.Sequential([keras.Input((5,)), keras.layers.Dense(5)])
    model = SIGUAModel(inner, SL, per_class=True, rank_by="sparse_categorical_crossentropy")
    model.compile("sgd", SPARSE(from_logits=True))
    model.fit(logits, labels, batch_size=60, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.get_config()["per_class"] is True
    assert loaded.get_config()["rank_by"] == "sparse_categorical_crossentropy"


@pytest.mark.parametrize("make", [SIGUA, lambda *args, **kw: SIGUALoss(*args, **kw)])
def test_what_does_not_fit_is_refused(make):
    """At construction, in a sentence."""
    floor = sigua.sigua_bc(T, over="batch")
    with pytest.raises(ValueError, match="per_class: must be True or False, got 1;"):
        make(SL, per_class=1)
    with pytest.raises(ValueError, match=r"rank_by: .* NonNegative judges the corrected loss"):
        make(floor, rank_by="mse")
    for method in (sigua.sigua_nf(0.5, 5), sigua.sigua_fc(T)):
        with pytest.raises(
            ValueError, match=f"per_class: .* the floor of {type(method).__name__} is"
        ):
            make(method, per_class=True)
    with pytest.raises(ValueError, match="loss: must be a plain one"):
        make(SL, rank_by=SIGUALoss(SL))
    with pytest.raises(ValueError, match=r"^rank_by: must be a loss of Keras .* got 'ce2';"):
        make(SL, rank_by="ce2")
    with pytest.raises(ValueError, match=r"^loss: must be a loss of Keras .* got 3;"):
        SIGUALoss(SL, loss=3)
