"""What a loss of Keras is asked for is obeyed, and the two functions under the callback."""

import importlib

import keras
import numpy as np
import pytest
from keras_shift import EPS, SL, T, array, gradient
from test_demo_sparse import confusions

import sigua
from sigua import TransitionMatrix, reference
from sigua.confidence import rates
from sigua_keras import SIGUA, SIGUAModel, corrected_losses, select

N, K = 24, 4
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(scale=2, size=(N, K)).astype("float32")
Y = RNG.integers(0, K, N)
ROWS = np.eye(K, dtype="float32")[Y]
METHODS = [SL, sigua.sigua_ag(warmup=0, gamma=0.25), sigua.sigua_bc(T, gamma=0.5)]
METHODS += [sigua.sigua_bc(T, gamma=0.5, over="batch"), sigua.forward_correction(T)]
LOSSES = [
    keras.losses.BinaryFocalCrossentropy(True, 0.3, from_logits=True, label_smoothing=0.1),
    keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.2),
    keras.losses.CategoricalFocalCrossentropy(0.3, 1.5, from_logits=True, label_smoothing=0.1),
    keras.losses.CosineSimilarity(),
    keras.losses.Huber(delta=0.3),
    keras.losses.LogCosh(),
]
CE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
EAGER = {"compile": {"run_eagerly": True}}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_every_argument_of_a_loss_is_obeyed(loss):
    """Where everything is good the step is that of plain training."""
    ours, logs = gradient(LOGITS, ROWS, loss, SIGUA(sigua.standard()), **EAGER)
    plain, expected = gradient(LOGITS, ROWS, loss, **EAGER)
    np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-7)
    assert logs["loss"] == pytest.approx(expected["loss"], rel=1e-6)


MAPS = RNG.normal(scale=2, size=(3, K, 2, 5)).astype("float32")  # channels first
TARGETS = np.moveaxis(np.eye(K, dtype="float32")[RNG.integers(0, K, (3, 2, 5))], -1, 1)


@pytest.mark.parametrize("method", [sigua.standard(), *METHODS], ids=lambda m: repr(m)[:24])
def test_the_axis_of_the_classes_may_be_another_one(method):
    """Channels first give what channels last give."""
    first = keras.losses.CategoricalCrossentropy(from_logits=True, axis=1)
    last = keras.losses.CategoricalCrossentropy(from_logits=True)
    ours, logs = gradient(MAPS, TARGETS, first, SIGUA(method), **EAGER)
    moved = [np.moveaxis(x, 1, -1) for x in (MAPS, TARGETS)]
    want, expected = gradient(*moved, last, SIGUA(method), **EAGER)
    np.testing.assert_allclose(np.moveaxis(ours, 1, -1), want, rtol=0, atol=1e-6)
    for name, value in expected.items():
        assert logs[name] == pytest.approx(value, rel=1e-5)


class Whole(keras.losses.Loss):
    """Does all by itself."""

    def __call__(self, y_true, y_pred, sample_weight=None):
        y_true = keras.ops.convert_to_tensor(y_true, "float32")
        return keras.ops.mean((y_true - y_pred) ** 2, axis=-1)


def test_a_loss_that_is_called_as_a_whole_is_asked_for_a_value_per_example():
    _, logs = gradient(LOGITS, ROWS, "mse", SIGUA(SL, loss=Whole()), **EAGER)
    _, want = gradient(LOGITS, ROWS, "mse", SIGUA(SL), **EAGER)
    assert logs == pytest.approx(want, rel=1e-6)


def test_a_loss_per_image_selects_images():
    """Dice over height, width and channels: four images, of which floor(4 / 2) + 1 are good."""
    p, y = RNG.random((4, 3, 2, 1)).astype("float32"), RNG.integers(0, 2, (4, 3, 2, 1))
    loss = keras.losses.Dice(axis=(1, 2, 3))
    _, logs = gradient(p, y, loss, SIGUA(SL), **EAGER)
    values = 1 - 2 * (p * y).sum((1, 2, 3)) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1e-7)
    split = reference.split(SL, values)
    assert split.good.sum() == 3
    want = sigua.objective(values, sigua.signed_weights(split, 0.25))
    assert logs["loss"] == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: repr(m)[:24])
@pytest.mark.parametrize("form", [Y, ROWS], ids=["index", "rows"])
def test_the_functions_are_the_reference(method, form):
    """Losses, masks and weights, of which the user makes the objective."""
    loss = CE if form is Y else keras.losses.CategoricalCrossentropy(from_logits=True)
    losses = corrected_losses(form, LOGITS, method, loss)
    state = np.array([[3.0, 1, 2, 1], [4.0, 4, 4, 2]])
    chosen = select(losses, 3, method, y_pred=LOGITS, y=form, confidence=state, from_logits=True)
    want = reference.step(method, LOGITS, Y, 3, confidence=rates(state))
    np.testing.assert_allclose(array(losses), want.losses, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(array(chosen.good), want.split.good)
    np.testing.assert_array_equal(array(chosen.bad), want.split.bad)
    total = keras.ops.sum(keras.ops.where(chosen.silent, 0.0, losses) * chosen.weights) / N
    assert float(total) == pytest.approx(want.objective, rel=1e-5)


def test_a_selection_takes_who_takes_part_marks_and_groups():
    losses = reference.cross_entropy(LOGITS, Y)
    where, groups = np.arange(N) % 4 > 0, np.arange(N) % 3
    chosen = select(losses, 0, SL, where=where)
    want = reference.split(SL, losses[where])
    np.testing.assert_array_equal(array(chosen.good)[where], want.good)
    assert array(chosen.silent).tolist() == (~where).tolist()
    given = {"y_pred": LOGITS, "y": Y, "from_logits": True}
    chosen = select(losses, 0, SL, groups=lambda y, y_pred: groups, **given)
    want = reference.split(SL, losses, groups=groups)
    np.testing.assert_array_equal(array(chosen.good), want.good)
    known = sigua.custom(sigua.Known(), gamma=0.5)
    for trusted in (where, sigua.Split(where, ~where)):
        np.testing.assert_array_equal(
            array(select(losses, 0, known, trusted=trusted).weights), np.where(where, 1, -0.5)
        )


def test_a_label_that_is_no_class_has_no_loss():
    losses = array(corrected_losses(np.where(Y == 1, -1, Y), LOGITS, sigua.standard()))
    np.testing.assert_array_equal(np.isnan(losses), Y == 1)


class Own(keras.Model):
    """Computes by the operators of its backend, so that Keras does not know its outputs."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(K)

    def call(self, inputs):
        backend = {"jax": "jax.numpy"}.get(keras.config.backend(), keras.config.backend())
        return importlib.import_module(backend).tanh(self.dense(inputs["x"]))


@pytest.mark.parametrize("wrap", [False, True], ids=["callback", "model"])
def test_agreement_with_a_model_of_ones_own_needs_no_call_before(wrap):
    model = inner = Own()
    callbacks = [SIGUA(sigua.sigua_ag(warmup=2))]
    if wrap:
        model, callbacks = SIGUAModel(inner, sigua.sigua_ag(warmup=2)), []
    model.compile(keras.optimizers.SGD(0.0), CE)
    options = {"batch_size": N, "epochs": 3, "verbose": 0, "callbacks": callbacks}
    options["shuffle"] = False
    logs = model.fit({"x": LOGITS}, Y, **options).history
    logits = array(inner({"x": LOGITS}))
    state, bad = np.zeros((2, K)), []
    for epoch in range(3):
        confidence = rates(state)
        step = reference.step(sigua.sigua_ag(warmup=2), logits, Y, epoch, confidence=confidence)
        bad.append(step.split.bad.mean())
        state = sigua.confidence.moved(state, reference.confidence_sums(logits, Y))
    np.testing.assert_allclose(logs["sigua_bad"], bad, rtol=1e-6)


@pytest.mark.skipif(keras.config.backend() == "torch", reason="no steps_per_execution there")
def test_a_part_of_an_execution_counts_as_a_part():
    """Three mini-batches an epoch, two an execution: after 18 steps it is epoch 6."""
    model = keras.Sequential([keras.Input((K,)), keras.layers.Dense(K)])
    model.compile("sgd", CE, steps_per_execution=2)
    callback = SIGUA(sigua.self_teaching(0.5, warmup=9), steps_per_epoch=3)
    model.fit(LOGITS, Y, batch_size=8, epochs=6, verbose=0, callbacks=[callback])
    assert callback.epoch == 6


class Looks:
    """Keeps what losses it was given."""

    reads, horizon = (), 0

    def at(self, epoch):
        return ()

    def split(self, batch):
        self.losses = batch.losses
        return sigua.Split(batch.losses <= 1, batch.losses > 1)


@pytest.mark.skipif(keras.config.backend() != "torch", reason="where steps are not eager")
def test_an_eager_step_selects_by_numpy():
    """But not a loop of one's own, which may be compiled, and whose loss is the same."""
    model, rule = keras.Sequential([keras.Input((K,)), keras.layers.Dense(K)]), Looks()
    model.compile(keras.optimizers.SGD(0.0), "mse")
    SIGUA(sigua.custom(rule, gamma=0.5)).attach(model)
    logs = model.train_on_batch(LOGITS, ROWS, return_dict=True)
    assert isinstance(rule.losses, np.ndarray)
    loss = model.compute_loss(None, keras.ops.convert_to_tensor(ROWS), model(LOGITS))
    assert not isinstance(rule.losses, np.ndarray)
    assert array(loss) == pytest.approx(float(logs["loss"]), rel=1e-6)


# A sparse T, and 100,000 classes.


@pytest.mark.parametrize("make", [sigua.sigua_bc, sigua.forward_correction])
def test_other_losses_are_corrected_as_by_the_dense_matrix(make):
    rows, loss = confusions(5), keras.losses.CategoricalFocalCrossentropy()
    logits = np.random.default_rng(5).normal(scale=2, size=(100, 5))
    one_hot = np.eye(5, dtype="float32")[np.arange(100) % 5]
    softmax = [keras.layers.Softmax()]
    sparse, dense = (
        gradient(logits, one_hot, loss, SIGUA(make(TransitionMatrix(r))), after=softmax)
        for r in (rows, rows.toarray())
    )
    np.testing.assert_allclose(sparse[0], dense[0], rtol=0, atol=32 * EPS / 100)
    assert sparse[1]["sigua_bad"] == dense[1]["sigua_bad"]


MANY = 100_000


@pytest.mark.parametrize("kind", ["symmetric", "groups"])
def test_a_network_trains_on_a_hundred_thousand_classes(kind):
    """Without T as an array of 80 GB, and the loss falls."""
    keras.utils.set_random_seed(0)
    symmetric = kind == "symmetric"
    T = TransitionMatrix.symmetric(0.5, MANY) if symmetric else TransitionMatrix(confusions(MANY))
    method = sigua.sigua_bc(T) if symmetric else sigua.forward_correction(T)
    model = keras.Sequential([keras.layers.Embedding(16, 8), keras.layers.Dense(MANY)])
    model.compile(keras.optimizers.Adam(0.1), CE)
    x, y = np.arange(16), np.random.default_rng(0).integers(0, MANY, 16)
    history = model.fit(x, y, epochs=8, batch_size=16, verbose=0, callbacks=[SIGUA(method)])
    losses = history.history["loss"]
    assert losses[-1] < losses[0] - 1
    assert not {"_rows", "inverse"} & vars(T).keys()
