"""What one training step of Keras does: masks, gradients and the value of the loss."""

import keras
import numpy as np
import pytest
from contract import name
from keras_shift import DENSE, SL, SPARSE, Shift, T, close, gradient, step

import sigua
from sigua import TransitionMatrix, reference
from sigua_keras import SIGUA


@pytest.fixture
def mini_batch():
    rng = np.random.default_rng(0)
    return rng.normal(scale=2, size=(32, 4)).astype("float32"), rng.integers(0, 4, 32)


SYMMETRIC = TransitionMatrix.symmetric(0.4, 4)


METHODS = [
    sigua.standard(),
    sigua.sigua_sl(0.5, delta=0.25, gamma=0.25, warmup=10),
    sigua.sigua_sl(0.5, delta=0.25, gamma=0.25, warmup=10, variant="official"),
    sigua.sigua_bc(T, gamma=0.5, over="batch"),
    sigua.sigua_bc(T, gamma=0.5),
    sigua.forward_correction(T),
]


def one_hot(labels):
    return np.eye(4, dtype="float32")[labels]


def column(labels):
    return labels[:, None]


EAGER = {"run_eagerly": True}


@pytest.mark.parametrize(
    ("loss", "activation", "form"),
    [
        ("sparse_categorical_crossentropy", "softmax", np.asarray),
        ("sparse_categorical_crossentropy", "softmax", column),
        ("categorical_crossentropy", "softmax", one_hot),
        ("crossentropy", "softmax", np.asarray),
        ("crossentropy", "softmax", one_hot),
        (SPARSE(), "softmax", np.asarray),
        (SPARSE(from_logits=True), "linear", column),
        (DENSE(from_logits=True), "linear", one_hot),
        ("SparseCategoricalCrossentropy", "softmax", np.asarray),
        (keras.losses.sparse_categorical_crossentropy, "softmax", np.asarray),
    ],
)
@pytest.mark.parametrize("method", [METHODS[1], METHODS[4], METHODS[5]], ids=name)
def test_cross_entropies_and_labels_of_every_form(loss, activation, form, method, mini_batch):
    """Names, functions and objects, probabilities and logits, and labels of any shape agree."""
    logits, labels = mini_batch
    slopes, _ = step(method, logits, form(labels), loss, activation, epoch=6, compile=EAGER)
    close(slopes, reference.step(method, logits, labels, epoch=6).gradient)


@pytest.mark.parametrize("form", [np.asarray, column])
@pytest.mark.parametrize(
    ("loss", "activation"),
    [
        ("binary_crossentropy", "sigmoid"),
        ("crossentropy", "sigmoid"),
        (keras.losses.BinaryCrossentropy(from_logits=True), "linear"),
    ],
)
@pytest.mark.parametrize(
    "method",
    [
        SL,
        sigua.sigua_bc(TransitionMatrix([[0.8, 0.2], [0.4, 0.6]])),
        sigua.forward_correction(TransitionMatrix([[0.8, 0.2], [0.4, 0.6]])),
    ],
    ids=name,
)
def test_one_sigmoid_unit_is_two_classes(loss, activation, form, method):
    """Binary cross-entropy on one unit z equals the reference on the logits (0, z)."""
    rng = np.random.default_rng(1)
    z, labels = rng.normal(size=(16, 1)).astype("float32"), rng.integers(0, 2, 16)
    slopes, _ = step(method, z, form(labels), loss, activation, compile=EAGER)
    expected = reference.step(method, np.concatenate([0 * z, z], axis=1), labels)
    close(slopes, expected.gradient[:, 1:])


@pytest.mark.parametrize("form", [np.asarray, one_hot])
def test_backward_correction_of_any_loss_calls_it_once_per_class(form, mini_batch):
    """The corrected loss of a loss that is no cross-entropy is T^-1 times its values per class."""
    logits, labels = mini_batch
    squared = keras.losses.MeanSquaredError()
    if form is np.asarray:  # (1 - p_y)^2, which takes class indices

        def squared(y_true, y_pred):
            index = keras.ops.one_hot(keras.ops.cast(y_true, "int32"), 4)
            return (1 - keras.ops.sum(index * y_pred, axis=-1)) ** 2

    _, logs = step(sigua.backward_correction(T), logits, form(labels), squared, "softmax")
    p = np.exp(reference.log_softmax(logits))
    table = (1 - p) ** 2
    if form is one_hot:
        table = np.stack([((p - np.eye(4)[j]) ** 2).mean(axis=1) for j in range(4)], axis=1)
    expected = (table @ T.inverse.T)[np.arange(32), labels].mean()
    assert logs["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("matrix", [T, SYMMETRIC], ids=["dense", "symmetric"])
def test_forward_correction_of_any_loss_hands_it_noisy_predictions(matrix, mini_batch):
    """A loss that is no cross-entropy gets T'p."""
    logits, labels = mini_batch
    loss = keras.losses.CategoricalGeneralizedCrossEntropy(q=0.5)
    _, logs = step(sigua.forward_correction(matrix), logits, labels, loss, "softmax")
    noisy = np.exp(reference.log_softmax(logits)) @ matrix.rows
    expected = (2 * (1 - np.sqrt(noisy[np.arange(32), labels]))).mean()
    assert logs["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("method", [METHODS[2], METHODS[4]], ids=name)
@pytest.mark.parametrize("form", ["examples", "column", "classes"])
def test_weights_of_the_user_scale_and_do_not_rank(method, form, mini_batch):
    """They multiply the gradient of each example; those of weight 0 take no rank."""
    logits, labels = mini_batch
    weight = np.linspace(0, 3, 32).round(1)
    weight[::3] = 0
    fit = {"sample_weight": weight[:, None] if form == "column" else weight}
    if form == "classes":
        by_class = {0: 0.0, 1: 1.0, 2: 5.0, 3: 0.5}
        weight = np.array([by_class[y] for y in labels])
        fit = {"class_weight": by_class}
    kept = weight > 0
    slopes, logs = step(method, logits, labels, SPARSE(from_logits=True), epoch=6, **fit)
    expected = reference.step(method, logits[kept], labels[kept], epoch=6)
    close(slopes[kept], expected.gradient * (weight[kept, None] * kept.mean()))
    assert not slopes[~kept].any()
    assert logs["sigua_good"] == pytest.approx(expected.split.good.mean())


def test_known_reads_the_sign_of_the_sample_weight():
    """Plus is good, minus is bad, the magnitude scales, and 0 is neither."""
    marks, known = np.array([1.0, -1.0, 2.0, -0.5, 0.0]), sigua.custom(sigua.Known(), gamma=0.25)
    loss = lambda y_true, y_pred: y_pred[:, 0]  # noqa: E731
    slopes, logs = step(known, np.ones((5, 1)), np.zeros(5), loss, sample_weight=marks)
    weights = (slopes[:, 0] * 5).astype("float32")
    np.testing.assert_array_equal(weights, [1.0, -0.25, 2.0, -0.125, 0.0])
    assert logs["sigua_good"] == logs["sigua_bad"] == 0.5


@pytest.mark.parametrize("method", METHODS[1:4], ids=name)
def test_a_batch_without_weight_changes_nothing(method, mini_batch):
    """If all weights are 0, the loss is 0 and so is the gradient."""
    logits, labels = mini_batch
    fit = {"epoch": 6, "sample_weight": np.zeros(32)}
    slopes, logs = step(method, logits, labels, SPARSE(from_logits=True), **fit)
    assert logs["loss"] == 0
    assert not slopes.any()
    assert logs["sigua_good"] == 0


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_is_ranked_in_float32(policy):
    """With 300 classes, labels stay whole numbers and the selection is that of float32."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(64, 300)).astype("float32")
    half = keras.ops.cast(rows, policy.removeprefix("mixed_"))
    rows = keras.ops.convert_to_numpy(keras.ops.cast(half, "float32"))  # only the loss may round
    labels = np.concatenate([np.arange(32), 299 - np.arange(32)])
    layer = Shift(rows.shape, dtype=policy)
    slopes, logs = gradient(rows, labels, SPARSE(from_logits=True), SIGUA(SL), layer=layer)
    assert layer.compute_dtype == policy.removeprefix("mixed_")
    expected = reference.step(SL, rows, labels)
    assert logs["sigua_good"] == expected.split.good.mean()
    at_label = slopes[np.arange(64), labels]  # negative for who is descended on
    np.testing.assert_array_equal(at_label < 0, expected.split.good)
    np.testing.assert_array_equal(at_label > 0, expected.split.bad)
    np.testing.assert_allclose(slopes, expected.gradient, rtol=0, atol=2.0**-8 / 64)
