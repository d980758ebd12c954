"""Labels per time step and per pixel: each place is an example, in one compiled step of `fit`."""

import keras
import numpy as np
import pytest
from keras_shift import SL, SPARSE, T, assert_step, close, gradient

import sigua
from sigua import reference
from sigua_keras import SIGUA

K = 4
METHODS = [SL, sigua.sigua_ag(warmup=0, gamma=0.25), sigua.sigua_bc(T, gamma=0.5)]
SHAPES = [(6, 5), (3, 4, 2)]


def batch(shape, k=K):
    rng = np.random.default_rng(0)
    logits = rng.normal(scale=2, size=(*shape, k)).astype("float32")
    labels = rng.integers(0, k, shape)
    return logits + 3 * np.eye(k, dtype="float32")[labels] * rng.integers(0, 2, shape)[
        ..., None
    ], labels


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
