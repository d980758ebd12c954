"""Several outputs with a SIGUA each, and what is refused: early, with the model as it was."""

import keras
import numpy as np
import pytest
from keras_shift import is_plain

import sigua
from sigua import reference
from sigua_keras import SIGUA, SIGUAModel

N = 24
SL = sigua.sigua_sl(0.5, delta=0.25, gamma=0.25, warmup=0)
BC = sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.4, 4), gamma=0.5)
KNOWN = sigua.custom(sigua.Known(), gamma=0.25)
CE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
X = np.random.default_rng(0).normal(size=(N, 5)).astype("float32")
Y = {"a": np.arange(N) % 3, "b": np.random.default_rng(1).integers(0, 4, N)}
CLASSES = {"a": 3, "b": 4}


def network(kind="dict", **more):
    """Return a model whose heads are linear, so that a gradient is X' times that of the logits."""
    inputs = keras.Input((5,))
    heads = {name: keras.layers.Dense(k, name=name)(inputs) for name, k in CLASSES.items()}
    return keras.Model(inputs, heads if kind == "dict" else list(heads.values()))


def labels(kind):
    return Y if kind == "dict" else list(Y.values())


def parts(model):
    return {name: model.get_layer(name).get_weights() for name in CLASSES}


def same(model, before):
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


def follows(before, after, method, name, trusted=None, scale=1.0):
    """Assert that a head took one step of SGD(1) on the method's reference."""
    kernel, bias = before[name]
    logits = X.astype("float64") @ kernel + bias
    gradient = reference.step(method, logits, Y[name], trusted=trusted).gradient * scale
    np.testing.assert_allclose(after[name][0], kernel - X.T @ gradient, rtol=0, atol=2e-6)
    np.testing.assert_allclose(after[name][1], bias - gradient.sum(axis=0), rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", ["dict", "list"])
@pytest.mark.parametrize("methods", [(SL, BC), (sigua.standard(), SL)], ids=["sl bc", "plain sl"])
def test_two_noisy_heads_have_a_callback_each(methods, kind):
    """Each head has its own method; metrics are named after the outputs, as Keras names its own."""
    model = network(kind)
    before = parts(model)
    model.compile(keras.optimizers.SGD(1.0), CE)
    callbacks = [SIGUA(method, output=name) for name, method in zip("ab", methods, strict=True)]
    options = {"batch_size": N, "shuffle": False, "verbose": 0, "callbacks": callbacks}
    logs = model.fit(X, labels(kind), **options).history
    after = parts(model)
    for name, method in zip("ab", methods, strict=True):
        follows(before, after, method, name)
        logits = X @ before[name][0] + before[name][1]
        good = reference.step(method, logits, Y[name]).split.good.mean()
        assert logs[f"{name}_sigua_good"][0] == pytest.approx(good)
    assert "sigua_good" not in logs
    assert is_plain(model)
    one = model.fit(X, labels(kind), verbose=0, callbacks=callbacks[:1]).history
    assert "sigua_good" in one


def test_the_marks_of_one_head_are_weights_to_the_other():
    """Known reads the signs; small loss, which has its own callback, sees magnitudes."""
    model = network()
    before = parts(model)
    marks = np.where(np.arange(N) % 3 == 0, -1.0, 1.0)
    model.compile(keras.optimizers.SGD(1.0), CE)
    callbacks = [SIGUA(SL, output="b"), SIGUA(KNOWN, output="a")]
    weights = {"a": marks, "b": marks}
    options = {"batch_size": N, "shuffle": False, "verbose": 0, "callbacks": callbacks}
    model.fit(X, Y, sample_weight=weights, **options)
    after = parts(model)
    follows(before, after, KNOWN, "a", trusted=marks > 0)
    follows(before, after, SL, "b")


def test_two_attached_callbacks_leave_one_by_one():
    model = network()
    model.compile(keras.optimizers.SGD(1.0), CE)
    first, second = SIGUA(SL, output="a"), SIGUA(BC, output="b")
    first.attach(model)
    second.attach(model)
    for ways in ((SL, BC), (SL, sigua.standard()), (sigua.standard(),) * 2):
        before = parts(model)
        model.train_on_batch(X, Y)
        after = parts(model)
        for name, method in zip("ab", ways, strict=True):
            follows(before, after, method, name)
        (second if ways[1] is BC else first).detach()
    assert is_plain(model)


def test_an_output_has_one_sigua():
    """By the same name, or by name and index."""
    model = network("list")
    model.compile("sgd", CE)
    before = model.get_weights()
    for second in ("a", 0):
        callbacks = [SIGUA(SL, output="a"), SIGUA(SL, output=second)]
        with pytest.raises(ValueError, match=r"^model: must have one SIGUA"):
            model.fit(X, labels("list"), verbose=0, callbacks=callbacks)
        assert is_plain(model)
        same(model, before)


WAYS = ["callback", "model"]


def training(way, model, method=SL, **kwargs):
    """Return what is fitted, and with which callbacks."""
    if way == "model":
        return SIGUAModel(model, method, **kwargs), []
    return model, [SIGUA(method, **kwargs)]


NO_LOSS = [
    ("dict", None, "a"),
    ("dict", {"b": CE}, "a"),
    ("dict", {"a": None, "b": CE}, "a"),
    ("list", [None, CE], "a"),
    ("list", [None, CE], 0),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "loss", "output"), NO_LOSS)
@pytest.mark.parametrize("given", [None, CE], ids=["no loss", "loss="])
def test_an_output_without_a_compiled_loss_is_refused(given, kind, loss, output, way):
    """Before training, whether `loss=` is given or not."""
    net = network(kind)
    model, callbacks = training(way, net, output=output, loss=given)
    model.compile("sgd", loss)
    before = net.get_weights()
    y = {"b": Y["b"]} if loss == {"b": CE} else labels(kind)
    with pytest.raises(ValueError, match=r"^loss: must be compiled for the output .*got None; try"):
        model.fit(X, y, verbose=0, callbacks=callbacks)
    same(net, before)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", [SL, BC], ids=["weights", "corrected"])
def test_the_given_loss_is_what_training_optimises(method, way):
    """And the compiled one that of the evaluation, whatever the method is."""
    inputs = keras.Input((5,))
    net = keras.Model(inputs, keras.layers.Dense(4, name="b")(inputs))
    before = parts_of_b = {"b": net.get_layer("b").get_weights()}
    model, callbacks = training(way, net, method, loss=CE)
    squared = lambda y_true, y_pred: (y_pred[:, 0] - 7) ** 2  # noqa: E731
    model.compile(keras.optimizers.SGD(1.0), squared)
    options = {"batch_size": N, "shuffle": False, "verbose": 0, "callbacks": callbacks}
    model.fit(X, Y["b"], **options)
    follows(parts_of_b, {"b": net.get_layer("b").get_weights()}, method, "b")
    predictions = net.predict(X, verbose=0)
    expected = ((predictions[:, 0] - 7) ** 2).mean()
    assert model.evaluate(X, Y["b"], verbose=0) == pytest.approx(expected, rel=1e-5)
    assert before is parts_of_b


class Late(keras.Model):
    """A model of which nothing is known before its first step."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (keras.layers.Dense(k) for k in CLASSES.values())

    def call(self, inputs):
        return {"a": self.a(inputs), "b": self.b(inputs)}


WRONG_SIZE = sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.3, 7))
LATE = [
    ("^T: .*7 rows and predictions of 3", WRONG_SIZE, {"output": "a"}),
    ("^output: must be one of 'a', 'b'", SL, {"output": "c"}),
    ("^sample_weight: .*got None;", KNOWN, {"output": "a"}),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("match", "method", "options"), LATE, ids=["T", "output", "weights"])
def test_a_refusal_of_the_first_step_costs_nothing(match, method, options, way):
    """Weights, optimizer and methods are as before, on JAX, too, and plain training goes on."""
    net = Late()
    net(X)
    model, callbacks = training(way, net, method, **options)
    model.compile(keras.optimizers.Adam(), CE)
    before = net.get_weights()
    with pytest.raises(ValueError, match=match):
        model.fit(X, Y, verbose=0, callbacks=callbacks)
    same(net, before)
    assert all(np.isfinite(np.array(v)).all() for v in model.optimizer.variables)
    if way == "callback":
        assert is_plain(model)
        assert set(model.fit(X, Y, verbose=0).history) == {"a_loss", "b_loss", "loss"}


class OwnError(Exception):
    """What no library raises."""


def failing(y_true, y_pred):
    raise OwnError


@pytest.mark.parametrize("way", [*WAYS, "attached"])
def test_an_error_of_any_kind_in_a_step_costs_nothing(way):
    """Such as PyTorch's RuntimeError for shapes: the model is as it was, and trains plainly."""
    net = network()
    model, callbacks = training(way, net, output="a", loss=failing)
    model.compile("sgd", CE)
    before = net.get_weights()
    if way == "attached":
        callbacks[0].attach(model)
    with pytest.raises(OwnError):
        model.fit(X, Y, verbose=0, callbacks=[] if way == "attached" else callbacks)
    same(net, before)
    if way == "attached":
        callbacks[0].detach()
    if way != "model":
        assert is_plain(model)
        assert set(model.fit(X, Y, verbose=0).history) == {"a_loss", "b_loss", "loss"}


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
@pytest.mark.parametrize("way", WAYS)
def test_data_of_unknown_length_end_without_an_error(way):
    """TensorFlow's train function raises when they do; the epoch has ended, and its shares stay."""
    inputs = keras.Input((5,))
    net = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    model, callbacks = training(way, net)
    model.compile("sgd", CE)
    batches = ((X[i : i + 8], Y["a"][i : i + 8]) for i in (0, 8, 16))
    logs = model.fit(batches, shuffle=False, verbose=0, callbacks=callbacks).history
    np.testing.assert_allclose(logs["sigua_good"], [5 / 8])  # floor(8 / 2) + 1


ROWS = np.eye(4, dtype="float32")[Y["b"]]
MISFITS = [
    ({"loss": "mse"}, Y["b"], "one-hot rows or targets for mean_squared_error, got shape"),
    ({"loss": "hinge"}, Y["b"], "one-hot rows or targets for hinge, got shape"),
    ({"loss": keras.losses.MeanSquaredError}, Y["b"], "one-hot rows or targets for mean_squ"),
    ({"loss": "categorical_crossentropy"}, Y["b"][:, None], "one-hot rows or targets for cat"),
    ({"loss": "sparse_categorical_crossentropy"}, ROWS, "integers for sparse_categorical_cross"),
]


@pytest.mark.parametrize(("options", "y", "words"), MISFITS)
@pytest.mark.parametrize("size", [3, 4])
def test_labels_that_do_not_fit_a_loss_are_refused_in_a_sentence(options, y, words, size):
    """Also where n labels and k = n predictions would silently broadcast to n x n."""
    inputs = keras.Input((5,))
    net = keras.Model(inputs, keras.layers.Dense(4, "softmax")(inputs))
    net.compile("sgd", "crossentropy")
    before = net.get_weights()
    with pytest.raises(ValueError, match=rf"^y: must be {words}.*; try .*, or '"):
        net.fit(X, y, batch_size=size, verbose=0, callbacks=[SIGUA(SL, **options)])
    same(net, before)
    assert is_plain(net)


@pytest.mark.parametrize("way", [*WAYS, "attached"])
def test_train_on_batch_returns_what_it_returned(way):
    """`loss, accuracy = model.train_on_batch(...)`; as a dict it has the shares, too."""
    inputs = keras.Input((5,))
    net = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    model, callbacks = training(way, net)
    model.compile("sgd", CE, metrics=["accuracy"])
    if way == "callback":
        model.fit(X, Y["a"], verbose=0, callbacks=callbacks)
    for callback in callbacks if way == "attached" else []:
        callback.attach(model)
    loss, accuracy = model.train_on_batch(X, Y["a"])
    assert np.isfinite(loss)
    assert 0 <= accuracy <= 1
    logs = model.train_on_batch(X, Y["a"], return_dict=True)
    shares = set() if way == "callback" else {"sigua_good", "sigua_bad"}
    assert logs.keys() == {"loss", "accuracy"} | shares


def test_a_callback_list_is_taken_and_given_back():
    """`fit(callbacks=CallbackList(...))` of a SIGUAModel, with and without a model in it."""
    inputs = keras.Input((5,))
    model = SIGUAModel(
        keras.Model(inputs, keras.layers.Dense(3)(inputs)), sigua.self_teaching(0.5, warmup=2)
    )
    model.compile("sgd", CE)
    for given in (model, None):
        callbacks = keras.callbacks.CallbackList([], add_history=True, model=given)
        callbacks.set_model(model)
        kept = list(callbacks.callbacks)
        model.fit(X, Y["a"], batch_size=N, epochs=2, callbacks=callbacks)
        assert callbacks.callbacks == kept
    assert model.epoch == 3


def test_a_train_function_made_anew_within_fit_is_siguas():
    """As Keras's guides do after a change to the model: make_train_function(force=True)."""
    model = network()
    model.compile("sgd", CE)
    anew = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: model.make_train_function(force=True)
    )
    callbacks = [SIGUA(SL, output="a"), anew]
    logs = model.fit(X, Y, batch_size=N, epochs=3, verbose=0, callbacks=callbacks).history
    np.testing.assert_allclose(logs["sigua_good"], [13 / N] * 3)  # floor(24 / 2) + 1
    assert is_plain(model)


class OwnTotal(keras.Model):
    """Adds a term to the loss, or leaves the compiled one out."""

    whole = True

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        own = keras.ops.mean(y_pred**2)
        if not self.whole:
            return own
        return own + super().compute_loss(x, y, y_pred, sample_weight, training=training)


def test_a_compute_loss_of_ones_own_sees_predictions_and_labels():
    """A term of its own is added to the method's objective."""
    inputs = keras.Input((5,))
    model = OwnTotal(inputs, keras.layers.Dense(4, name="b")(inputs))
    model.compile(keras.optimizers.SGD(1.0), CE)
    options = {"batch_size": N, "shuffle": False, "verbose": 0}
    kernel, bias = model.get_layer("b").get_weights()
    logs = model.fit(X, Y["b"], callbacks=[SIGUA(BC)], **options).history
    logits = X.astype("float64") @ kernel + bias
    expected = reference.step(BC, logits, Y["b"]).objective + (logits**2).mean()
    assert logs["loss"][0] == pytest.approx(expected, rel=1e-5)


AG = sigua.sigua_ag(warmup=0)


@pytest.mark.parametrize("method", [BC, SL, AG, KNOWN], ids=["bc", "sl", "ag", "known"])
def test_a_compute_loss_that_leaves_out_what_the_method_changes_is_refused(method):
    """Training would be plain, with shares in the history as if it forgot."""
    inputs = keras.Input((5,))
    model = OwnTotal(inputs, keras.layers.Dense(4, name="b")(inputs))
    model.compile("sgd", CE)
    model.whole = False
    before = model.get_weights()
    with pytest.raises(ValueError, match=r"^compute_loss: must call super\(\)\.compute_loss"):
        model.fit(X, Y["b"], sample_weight=np.ones(N), verbose=0, callbacks=[SIGUA(method)])
    assert is_plain(model)
    same(model, before)


def test_a_compute_loss_may_leave_out_what_no_method_changes():
    """Under `standard()` the loss is the user's own; a penalty of `add_loss` is added as ever."""
    inputs = keras.Input((5,))
    model = OwnTotal(inputs, keras.layers.Dense(4, name="b")(inputs))
    model.compile(keras.optimizers.SGD(0.0), CE)
    model.whole = False
    logits = X.astype("float64") @ model.get_weights()[0]
    options = {"batch_size": N, "shuffle": False, "verbose": 0}
    logs = model.fit(X, Y["b"], callbacks=[SIGUA(sigua.standard())], **options).history
    assert logs["loss"][0] == pytest.approx((logits**2).mean(), rel=1e-5)


class Penalised(keras.layers.Layer):
    """Adds a loss of 3."""

    def call(self, inputs):
        self.add_loss(keras.ops.convert_to_tensor(3.0))
        return inputs


def test_a_loss_added_by_a_layer_and_a_plain_head_stay():
    """One head of two has a SIGUA: the total is its objective, the other's loss, and 3."""
    inputs = keras.Input((5,))
    hidden = Penalised()(inputs)
    layers = {name: keras.layers.Dense(k, name=name) for name, k in {"a": 3, "b": 4}.items()}
    model = keras.Model(inputs, {name: layer(hidden) for name, layer in layers.items()})
    model.compile(keras.optimizers.SGD(0.0), {"a": CE, "b": CE})
    options = {"batch_size": N, "shuffle": False, "verbose": 0}
    logs = model.fit(X, Y, callbacks=[SIGUA(SL, output="a")], **options).history
    logits = {name: X.astype("float64") @ layers[name].get_weights()[0] for name in "ab"}
    expected = 3.0
    for name, method in (("a", SL), ("b", sigua.standard())):
        expected += reference.step(method, logits[name], Y[name]).objective
    assert logs["loss"][0] == pytest.approx(expected, rel=1e-5)


def test_checked_examples_are_a_plain_output_of_the_same_network():
    """The guide's recipe: one step moves the weights by the method's gradient and the plain one.

    A linear model without bias, from 0: its gradient is x' times the logits' gradient.
    """
    rng = np.random.default_rng(0)
    x, checked = (rng.normal(size=(n, 5)).astype("float32") for n in (16, 8))
    y, y_checked = rng.integers(0, 3, 16), rng.integers(0, 3, 8)
    layer = keras.layers.Dense(3, use_bias=False, kernel_initializer="zeros")
    inputs = {name: keras.Input((5,), name=name) for name in ("noisy", "checked")}
    model = keras.Model(inputs, {name: layer(each) for name, each in inputs.items()})
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1.0), {"noisy": loss, "checked": loss})
    method = sigua.custom(sigua.Known(), gamma=0.5)
    marks = np.where(np.arange(16) < 10, 1.0, -1.0)
    callback = SIGUA(method, output="noisy")
    callback.attach(model)
    model.train_on_batch(
        {"noisy": x, "checked": checked},
        {"noisy": y, "checked": y_checked},
        sample_weight={"noisy": marks, "checked": np.ones(8)},
    )
    callback.detach()
    zeros = np.zeros((16, 3)), np.zeros((8, 3))
    noisy = reference.step(method, zeros[0], y, trusted=marks > 0).gradient
    plain = reference.step(sigua.standard(), zeros[1], y_checked).gradient
    want = -(x.T @ noisy + checked.T @ plain)
    np.testing.assert_allclose(layer.get_weights()[0], want, atol=1e-6)
