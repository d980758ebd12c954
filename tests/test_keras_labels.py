"""Who has no class or is masked takes no part; who has several classes is refused or NaN."""

import keras
import numpy as np
import pytest
from contract import name
from keras_shift import DENSE, EPS, SL, SPARSE, T, assert_step, gradient

import sigua
from sigua import reference
from sigua_keras import SIGUA, SIGUAModel, losses

N, K = 32, 4
METHODS = [SL, sigua.sigua_bc(T, gamma=0.5)]
FORMS = ["-1", "k", "NaN", "fraction", "rows", "a row of -1"]
WARNING = "epoch 0. 12 labels were not a class"  # a colon would end a filter


@pytest.fixture
def mini_batch():
    rng = np.random.default_rng(0)
    return rng.normal(scale=2, size=(N, K)).astype("float32"), rng.integers(0, K, N)


@pytest.fixture
def lost():
    """Who has no class: 12 of 32."""
    return np.isin(np.arange(N), np.random.default_rng(1).choice(N, 12, replace=False))


def without(labels, lost, form):
    """Return labels in a form, and none where they are lost."""
    if form == "rows":
        return np.eye(K, dtype="float32")[labels] * ~lost[:, None]
    if form == "a row of -1":
        return np.where(lost[:, None], -1, np.eye(K)[labels])
    if form == "fraction":
        return np.where(lost, np.arange(N) % (K - 1) + 0.5, labels)
    return np.where(lost, {"-1": -1, "k": K, "NaN": np.nan}[form], labels)


@pytest.mark.filterwarnings(f"ignore:{WARNING}")
@pytest.mark.parametrize(
    ("form", "groups"), [*((form, None) for form in FORMS), ("-1", "class"), ("rows", "class")]
)
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_a_label_that_is_no_class_takes_no_part(method, form, groups, mini_batch, lost):
    """The others are chosen, and descended on, as if these were not there, or had weight 0."""
    logits, labels = mini_batch
    loss = (DENSE if "row" in form else SPARSE)(from_logits=True)
    callback = SIGUA(method, groups=groups)
    found = gradient(logits, without(labels, lost, form), loss, callback)
    kept = labels[~lost]
    done = reference.step(method, logits[~lost], kept, groups=kept if groups else None)
    assert_step(found, done, ~lost, (~lost).mean())


OWN = [losses.SymmetricCrossEntropy(from_logits=True), losses.Bootstrapping(from_logits=True)]


@pytest.mark.filterwarnings(f"ignore:{WARNING}")
@pytest.mark.parametrize("form", ["k", "fraction", "rows"])
@pytest.mark.parametrize("loss", OWN, ids=name)
def test_our_losses_know_who_has_no_class(loss, form, mini_batch, lost):
    """Alone they are 0 there; and SIGUA chooses among the others."""
    logits, labels = mini_batch
    y = without(labels, lost, form)
    values = np.array(type(loss).from_config(loss.get_config() | {"reduction": None})(y, logits))
    assert not values[lost].any()
    assert (values[~lost] > 0).all()
    split = reference.split(SL, values[~lost])
    actual, _ = gradient(logits, y, loss, SIGUA(SL))
    weight = np.zeros(N)
    weight[~lost] = sigua.signed_weights(split, 0.25)
    expected, _ = gradient(logits, y, loss, sample_weight=weight)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=16 * EPS / N)


@pytest.mark.filterwarnings(f"ignore:{WARNING}")
@pytest.mark.parametrize("none", [-1.0, 2.0])
def test_of_one_sigmoid_unit_a_label_outside_0_and_1_is_no_class(none, lost):
    """Binary cross-entropy is linear in the label, and below zero there."""
    rng = np.random.default_rng(3)
    z, labels = rng.normal(size=(N, 1)).astype("float32"), rng.integers(0, 2, N)
    y = np.where(lost, none, labels)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    actual, logs = gradient(z, y, loss, SIGUA(SL))
    two = np.concatenate([0 * z, z], axis=1)
    done = reference.step(SL, two[~lost], labels[~lost])
    expected = done.gradient[:, 1:] * (~lost).mean()
    np.testing.assert_allclose(actual[~lost], expected, rtol=0, atol=16 * EPS)
    assert not actual[lost].any()
    assert logs["sigua_good"] == pytest.approx(done.split.good.mean())


def test_labels_that_are_no_class_are_told_once(mini_batch, lost):
    """By a warning after the first epoch, in each way to fit."""
    logits, labels = mini_batch
    y = without(labels, lost, "-1")
    for wrap in (False, True):
        inner = keras.Sequential([keras.Input((K,)), keras.layers.Dense(K)])
        model = SIGUAModel(inner, SL) if wrap else inner
        model.compile("sgd", SPARSE(from_logits=True))
        callbacks = [] if wrap else [SIGUA(SL)]
        with pytest.warns(UserWarning, match=WARNING) as seen:
            model.fit(logits, y, epochs=3, verbose=0, callbacks=callbacks)
        assert len([w for w in seen if "not a class" in str(w.message)]) == 1


@pytest.mark.parametrize("method", [SL, METHODS[1], sigua.sigua_ag(warmup=0)], ids=name)
def test_rows_of_several_classes_are_nan_where_one_is_needed(method, mini_batch):
    """A compiled step cannot refuse them; without T, groups and margins they are soft labels."""
    logits, labels = mini_batch
    y = np.eye(K, dtype="float32")[labels]
    groups = "class" if method is SL else None
    for row, one in (([1, 1, 0, 0], False), ([0.5, 0.5, 0, 0], True)):
        y[3] = row
        _, logs = gradient(logits, y, DENSE(from_logits=True), SIGUA(method, groups=groups))
        assert np.isfinite(logs["loss"]) == one
    y[3] = [1, 1, 0, 0]
    _, logs = gradient(logits, y, DENSE(from_logits=True), SIGUA(SL))
    assert np.isfinite(logs["loss"])
