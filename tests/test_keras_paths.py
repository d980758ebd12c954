"""Every way to train: the callback, the attached callback, and `SIGUAModel`.

While everybody is good, or T says that no label is wrong, each is the plain training of Keras, to
its weights, statistics and draws; what a path leaves out is seen there.
"""

import keras
import numpy as np
import pytest
from contract import name
from keras_shift import in_precision

import sigua
from sigua_keras import SIGUA, SIGUAModel

N, BATCH = 40, 16  # 16, 16 and a partial last batch of 8
CE = keras.losses.CategoricalCrossentropy
SMOOTH = CE(label_smoothing=0.2)
METHODS = [sigua.standard(), sigua.backward_correction(sigua.TransitionMatrix(np.eye(3)))]


@pytest.fixture(params=["float32", "mixed_bfloat16", "mixed_float16"])
def policy(request):
    with in_precision(request.param):
        yield request.param


def network(heads=1):
    """Return a model with batch normalisation, dropout, a regulariser and an added loss."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((5,))
    x = keras.layers.Dense(8, "relu", kernel_regularizer=keras.regularizers.L2(0.01))(inputs)
    x = keras.layers.BatchNormalization(momentum=0.5)(x)
    x = keras.layers.Dropout(0.5, seed=2)(x)
    x = keras.layers.ActivityRegularization(l2=0.001, dtype="float32")(x)
    outputs = [
        keras.layers.Dense(3, "softmax", dtype="float32", name=name)(x) for name in "ab"[:heads]
    ]
    return keras.Model(inputs, outputs if heads > 1 else outputs[0])


class Plain:
    """Keras alone."""

    def __init__(self, method=None, heads=1):
        self.inner = self.model = network(heads)

    def compile(self, loss, **kwargs):
        self.model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, **kwargs)

    def fit(self, x, y, **kwargs):
        options = {"batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0} | kwargs
        return self.model.fit(x, y, **options).history

    def state(self):
        return [w.astype("float32") for w in self.inner.get_weights()]


class Callback(Plain):
    def __init__(self, method, heads=1):
        super().__init__(heads=heads)
        self.callback = SIGUA(method, output="a" if heads > 1 else None)

    def fit(self, x, y, **kwargs):
        return super().fit(x, y, callbacks=[self.callback], **kwargs)


class Attached(Callback):
    attached = False

    def fit(self, x, y, **kwargs):
        if not self.attached:
            self.callback.attach(self.model)
            self.attached = True
        return Plain.fit(self, x, y, **kwargs)


class Model(Plain):
    def __init__(self, method, heads=1):
        super().__init__(heads=heads)
        self.model = SIGUAModel(self.inner, method, "a" if heads > 1 else None)


PATHS = [Callback, Attached, Model]
every_path = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
every_method = pytest.mark.parametrize("method", METHODS, ids=name)


def trained(path, steps, method=None, heads=1):
    """Return the weights after the steps, each a function of the path, and the logs of the last."""
    run = path(method, heads)
    for step in steps:
        logs = step(run)
    return run.state(), logs


def same_as_plain(path, steps, method, heads=1, atol=2e-6):
    """Assert what the first line of this file says, and return the weights."""
    known = steps, heads, keras.config.dtype_policy().name
    if known not in PLAIN:
        PLAIN[known] = trained(Plain, steps, None, heads)
    plain, expected = PLAIN[known]
    ours, logs = trained(path, steps, method, heads)
    for one, other in zip(ours, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)
    for each, values in expected.items():
        np.testing.assert_allclose(logs[each], values, rtol=0, atol=10 * atol)
    return ours


PLAIN = {}
X = np.random.default_rng(0).normal(size=(N, 5)).astype("float32")
Y = np.eye(3, dtype="float32")[np.arange(N) % 3]
ONE_FIT = (lambda run: run.compile(CE()), lambda run: run.fit(X, Y))
WHOLE = {"batch_size": N, "epochs": 1}  # one shape, hence one compilation on JAX
TWO_COMPILES = (
    lambda run: run.compile(CE()),
    lambda run: run.fit(X, Y, **WHOLE),
    lambda run: run.fit(X, Y, **WHOLE),
    lambda run: run.compile(SMOOTH),
    lambda run: run.fit(X, Y, **WHOLE),
)
TWO_HEADS = (
    lambda run: run.compile({"a": CE(), "b": SMOOTH}, loss_weights={"a": 0.5, "b": 2.0}),
    lambda run: run.fit(X, [Y, Y[::-1]], **WHOLE),
    lambda run: run.compile({"a": CE(), "b": SMOOTH}, loss_weights={"a": 3.0, "b": 0.25}),
    lambda run: run.fit(X, [Y, Y[::-1]], **WHOLE),
)
TOLERANCE = {"float32": 2e-6, "mixed_bfloat16": 2**-6, "mixed_float16": 2**-9}


@every_path
def test_statistics_dropout_and_a_partial_batch_are_those_of_plain_training(path, policy):
    """Batch normalisation learns its statistics, dropout drops, regularisers and add_loss count."""
    state = same_as_plain(path, ONE_FIT, METHODS[0], atol=TOLERANCE[policy])
    moving = [i for i, w in enumerate(network().weights) if "moving" in w.path]
    assert len(moving) == 2
    for i, fresh in zip(moving, (0, 1), strict=True):  # where means and variances begin
        assert np.abs(state[i] - fresh).max() > 0.01


@every_method
@every_path
def test_a_second_compile_takes_the_new_loss_and_a_second_fit_goes_on(path, method):
    """Not the loss that was compiled first, on any backend."""
    same_as_plain(path, TWO_COMPILES, method)


@every_method
@every_path
def test_one_of_two_outputs_and_new_loss_weights(path, method):
    """The other output, the loss weights, and each output's own loss in the logs are Keras's."""
    same_as_plain(path, TWO_HEADS, method, heads=2)


@keras.saving.register_keras_serializable(package="tests")
class Drawn(keras.losses.Loss):
    """Cross-entropy times a number drawn at each call, and a count of the calls."""

    def __init__(self, name="drawn", reduction="sum_over_batch_size"):
        super().__init__(name, reduction)
        self.calls = 0

    def call(self, y_true, y_pred):
        self.calls += 1
        return self.calls * keras.losses.categorical_crossentropy(y_true, y_pred)


@pytest.mark.parametrize("times", [1, 3], ids=["forward", "backward"])
@every_path
def test_a_loss_is_measured_once_a_step(path, times):
    """Keras asks it symbolically as well, before; backward correction asks once for each class."""
    drawn, plain = Drawn(), Drawn()
    correct = sigua.forward_correction if times == 1 else sigua.backward_correction
    run, other = path(correct(sigua.TransitionMatrix.pair(0.2, 3))), Plain()
    for each, loss in ((run, drawn), (other, plain)):
        each.compile(loss, run_eagerly=True)
        each.fit(X, Y, epochs=1)
    symbolic = plain.calls - 3
    assert drawn.calls == symbolic + 3 * times
