"""Which places of an output are examples: each time step or pixel, unless its label is no class.

Who has several classes is refused or NaN.
"""

import keras
import numpy as np
import pytest
from contract import name
from keras_shift import DENSE, EPS, SL, SPARSE, T, assert_step, close, gradient

import sigua
from sigua import reference
from sigua_keras import SIGUA, SIGUAModel

K = 4
BC = sigua.sigua_bc(T, gamma=0.5)
METHODS = [SL, sigua.sigua_ag(warmup=0, gamma=0.25), BC]
SHAPES = [(6, 5), (3, 4, 2)]


def batch(shape, k=K):
    rng = np.random.default_rng(0)
    logits = rng.normal(scale=2, size=(*shape, k)).astype("float32")
    labels = rng.integers(0, k, shape)
    known = rng.integers(0, 2, shape)[..., None]
    return logits + 3 * np.eye(k, dtype="float32")[labels] * known, labels


def flat(logits, labels):
    return logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_each_place_is_an_example(method, shape):
    """The step of the spec on a column of all places, for time steps and for pixels."""
    logits, labels = batch(shape)
    found = gradient(logits, labels, SPARSE(from_logits=True), SIGUA(method))
    assert_step(found, reference.step(method, *flat(logits, labels)))


@pytest.mark.parametrize(
    ("loss", "form"),
    [
        (keras.losses.CategoricalCrossentropy(from_logits=True), lambda y: np.eye(K)[y]),
        (SPARSE(from_logits=True), lambda y: y[..., None]),
    ],
    ids=["one-hot", "column"],
)
def test_labels_of_other_forms_agree(loss, form):
    logits, labels = batch((6, 5))
    found = gradient(logits, form(labels), loss, SIGUA(SL))
    assert_step(found, reference.step(SL, *flat(logits, labels)))


def test_a_sigmoid_per_pixel_is_two_classes():
    z, labels = batch((3, 4, 2), k=1)[0], np.random.default_rng(1).integers(0, 2, (3, 4, 2))
    slopes, _ = gradient(z, labels[..., None], keras.losses.BinaryCrossentropy(True), SIGUA(SL))
    column = z.reshape(-1, 1)
    want = reference.step(SL, np.concatenate([0 * column, column], 1), labels.reshape(-1))
    close(slopes, want.gradient[:, 1:])


def test_images_are_judged_apart():
    logits, labels = batch((4, 6, 5))
    images = np.repeat(np.arange(4), 30)
    found = gradient(logits, labels, SPARSE(from_logits=True), SIGUA(SL, groups="image"))
    assert_step(found, reference.step(SL, *flat(logits, labels), groups=images))


@pytest.mark.parametrize("method", METHODS, ids=["SL", "AG", "BC"])
@pytest.mark.parametrize("ignored", [-1, 0, 255])
def test_an_ignored_class_takes_no_rank_and_is_not_in_the_mean(method, ignored):
    """As padding and borders are marked: outside of the classes, or one of them."""
    logits, labels = batch((3, 4, 2))
    kept = np.random.default_rng(2).random(labels.shape) < 0.6
    kept &= labels != ignored
    given = np.where(kept, labels, ignored)
    loss = SPARSE(from_logits=True, ignore_class=ignored)
    found = gradient(logits, given, loss, SIGUA(method))
    assert_step(found, reference.step(method, logits[kept], labels[kept]), kept)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum"])
@pytest.mark.parametrize("shape", [(30,), (6, 5)], ids=["examples", "places"])
@pytest.mark.parametrize("method", METHODS, ids=["SL", "AG", "BC"])
def test_what_a_mask_hides_takes_no_rank(method, shape, reduction):
    """Sequences are padded with zeros, which `Masking` hides; the mean is over the others."""
    logits, labels = batch(shape)
    there = np.random.default_rng(1).random(shape) < 0.6
    logits[~there] = 0
    loss = SPARSE(from_logits=True, reduction=reduction)
    found = gradient(logits, labels, loss, SIGUA(method), before=[keras.layers.Masking()])
    want = reference.step(method, logits[there], labels[there])
    assert_step(found, want, there, there.sum() if reduction == "sum" else 1)


@pytest.mark.parametrize("form", ["places", "column", "examples"])
def test_weights_of_places_and_of_examples(form):
    """A weight of 0 takes no rank; others scale losses but do not rank them."""
    logits, labels = batch((6, 5))
    rng = np.random.default_rng(3)
    weight = rng.integers(0, 3, (6, 1) if form == "examples" else (6, 5)).astype("float32")
    given = {"places": weight, "column": weight[..., None], "examples": weight}[form]
    slopes, _ = gradient(logits, labels, SPARSE(from_logits=True), SIGUA(SL), sample_weight=given)
    everywhere = np.broadcast_to(weight, (6, 5))
    taken = everywhere > 0
    want = reference.step(SL, logits[taken], labels[taken]).gradient
    scale = everywhere[taken][:, None] * taken.mean()
    close(slopes[taken], want * scale)
    assert not slopes[~taken].any()


def test_signs_of_weights_mark_places():
    logits, labels = batch((6, 5))
    trusted = np.random.default_rng(4).random((6, 5)) < 0.7
    method = sigua.custom(sigua.Known(), gamma=0.25)
    marks = np.where(trusted, 1.0, -1.0)
    found = gradient(logits, labels, SPARSE(from_logits=True), SIGUA(method), sample_weight=marks)
    want = reference.step(method, *flat(logits, labels), trusted=trusted.reshape(-1))
    assert_step(found, want)


# Labels that are no class take no part.

N = 32
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
@pytest.mark.parametrize("method", [SL, BC], ids=name)
def test_a_label_that_is_no_class_takes_no_part(method, form, groups, mini_batch, lost):
    """The others are chosen, and descended on, as if these were not there, or had weight 0."""
    logits, labels = mini_batch
    loss = (DENSE if "row" in form else SPARSE)(from_logits=True)
    callback = SIGUA(method, groups=groups)
    found = gradient(logits, without(labels, lost, form), loss, callback)
    kept = labels[~lost]
    done = reference.step(method, logits[~lost], kept, groups=kept if groups else None)
    assert_step(found, done, ~lost, (~lost).mean())


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


@pytest.mark.parametrize("wrap", [False, True], ids=["callback", "model"])
def test_labels_that_are_no_class_are_told_once_and_refused_if_none_is_one(wrap, mini_batch, lost):
    """By a warning after the first epoch, in each way to fit, or by an error."""
    logits, labels = mini_batch

    def fit(y):
        inner = keras.Sequential([keras.Input((K,)), keras.layers.Dense(K)])
        model = SIGUAModel(inner, SL) if wrap else inner
        model.compile("sgd", SPARSE(from_logits=True))
        model.fit(logits, y, epochs=3, verbose=0, callbacks=[] if wrap else [SIGUA(SL)])

    with pytest.warns(UserWarning, match=WARNING) as seen:
        fit(without(labels, lost, "-1"))
    assert len([w for w in seen if "not a class" in str(w.message)]) == 1
    with pytest.raises(ValueError, match=rf"^y: must be class indices .* is one \({N} are not\);"):
        fit(labels + K)


@pytest.mark.parametrize("method", [SL, BC, sigua.sigua_ag(warmup=0)], ids=name)
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
