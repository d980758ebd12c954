"""Several outputs with a SIGUA each, and what Keras does beside it."""

import keras
import numpy as np
import pytest
from keras_shift import SL, is_plain

import sigua
from sigua import reference
from sigua_keras import SIGUA, SIGUAModel

N = 24
BC = sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.4, 4), gamma=0.5)
KNOWN = sigua.custom(sigua.Known(), gamma=0.25)
CE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
X = np.random.default_rng(0).normal(size=(N, 5)).astype("float32")
Y = {"a": np.arange(N) % 3, "b": np.random.default_rng(1).integers(0, 4, N)}
CLASSES = {"a": 3, "b": 4}


def single(name, kind=keras.Model):
    inputs = keras.Input((5,))
    return kind(inputs, keras.layers.Dense(CLASSES[name], name=name)(inputs))


def network(kind="dict"):
    """Return a model whose heads are linear, so that a gradient is X' times that of the logits."""
    inputs = keras.Input((5,))
    heads = {name: keras.layers.Dense(k, name=name)(inputs) for name, k in CLASSES.items()}
    return keras.Model(inputs, heads if kind == "dict" else list(heads.values()))


def labels(kind):
    return Y if kind == "dict" else list(Y.values())


def parts(model):
    return {name: model.get_layer(name).get_weights() for name in CLASSES}


def follows(before, after, method, name, trusted=None, weight=1.0):
    """Assert that a head took one step of SGD(1) on the method's reference, times a weight."""
    kernel, bias = before[name]
    logits = X.astype("float64") @ kernel + bias
    gradient = weight * reference.step(method, logits, Y[name], trusted=trusted).gradient
    np.testing.assert_allclose(after[name][0], kernel - X.T @ gradient, rtol=0, atol=2e-6)
    np.testing.assert_allclose(after[name][1], bias - gradient.sum(axis=0), rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", ["dict", "list"])
def test_two_noisy_heads_have_a_callback_each(kind):
    """Each head has its own method; metrics are named after the outputs, as Keras names its own."""
    model, methods = network(kind), (SL, BC)
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


@pytest.mark.parametrize("weighed", [False, True], ids=["unweighed", "weighed"])
def test_losses_and_weights_by_name_stay_where_they_belong(weighed):
    """With labels by name, and, for which Keras takes a list, with a weight per output."""
    model, scales = network("list"), {"a": 0.5, "b": 2.0}
    before = parts(model)
    model.compile(keras.optimizers.SGD(1.0), dict.fromkeys("ab", CE), scales)
    weights = [np.linspace(0.5, 1.5, N), np.linspace(1.5, 0.5, N)] if weighed else None
    options = {"batch_size": N, "shuffle": False, "verbose": 0, "sample_weight": weights}
    y, callback = labels("list" if weighed else "dict"), SIGUA(SL, output="a")
    model.fit(X, y, callbacks=[callback], **options)
    after = parts(model)
    for i, (name, method) in enumerate({"a": SL, "b": sigua.standard()}.items()):
        weight = scales[name] * (weights[i][:, None] if weighed else 1.0)
        follows(before, after, method, name, weight=weight)


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
        for one, other in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(one, other)


WAYS = ["callback", "model"]


def training(way, model, method=SL, **kwargs):
    """Return what is fitted, and with which callbacks."""
    if way == "model":
        return SIGUAModel(model, method, **kwargs), []
    return model, [SIGUA(method, **kwargs)]


@pytest.mark.parametrize(("method", "way"), [(SL, "callback"), (BC, "model")])
def test_the_given_loss_is_what_training_optimises(method, way):
    """And the compiled one that of the evaluation, whatever the method is."""
    net = single("b")
    before = {"b": net.get_layer("b").get_weights()}
    model, callbacks = training(way, net, method, loss=CE)
    squared = lambda y_true, y_pred: (y_pred[:, 0] - 7) ** 2  # noqa: E731
    model.compile(keras.optimizers.SGD(1.0), squared)
    options = {"batch_size": N, "shuffle": False, "verbose": 0, "callbacks": callbacks}
    model.fit(X, Y["b"], **options)
    follows(before, {"b": net.get_layer("b").get_weights()}, method, "b")
    expected = ((net.predict(X, verbose=0)[:, 0] - 7) ** 2).mean()
    assert model.evaluate(X, Y["b"], verbose=0) == pytest.approx(expected, rel=1e-5)


@pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
@pytest.mark.parametrize("way", WAYS)
def test_data_of_unknown_length_end_without_an_error(way):
    """TensorFlow's train function raises when they do; the epoch has ended, and its shares stay."""
    net = single("a")
    model, callbacks = training(way, net)
    model.compile("sgd", CE)
    batches = ((X[i : i + 8], Y["a"][i : i + 8]) for i in (0, 8, 16))
    logs = model.fit(batches, shuffle=False, verbose=0, callbacks=callbacks).history
    np.testing.assert_allclose(logs["sigua_good"], [5 / 8])  # floor(8 / 2) + 1


@pytest.mark.parametrize("way", [*WAYS, "attached"])
def test_train_on_batch_returns_what_it_returned(way):
    """`loss, accuracy = model.train_on_batch(...)`; as a dict it has the shares, too."""
    net = single("a")
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


@pytest.mark.parametrize("has_model", [True, False])
def test_a_callback_list_is_taken_and_given_back(has_model):
    """`fit(callbacks=CallbackList(...))` of a SIGUAModel, with and without a model in it."""
    net = single("a")
    model = SIGUAModel(net, sigua.self_teaching(0.5, warmup=2))
    model.compile("sgd", CE)
    callbacks = keras.callbacks.CallbackList(add_history=True, model=model if has_model else None)
    kept = list(callbacks.callbacks)
    model.fit(X, Y["a"], batch_size=N, epochs=2, callbacks=callbacks)
    assert callbacks.callbacks == kept
    assert model.epoch == 1


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
    """Adds a term to the loss."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        own = keras.ops.mean(y_pred**2)
        return own + super().compute_loss(x, y, y_pred, sample_weight, training=training)


def test_a_compute_loss_of_ones_own_sees_predictions_and_labels():
    """A term of its own is added to the method's objective."""
    model = single("b", OwnTotal)
    model.compile(keras.optimizers.SGD(1.0), CE)
    options = {"batch_size": N, "shuffle": False, "verbose": 0}
    kernel, bias = model.get_layer("b").get_weights()
    logs = model.fit(X, Y["b"], callbacks=[SIGUA(BC)], **options).history
    logits = X.astype("float64") @ kernel + bias
    expected = reference.step(BC, logits, Y["b"]).objective + (logits**2).mean()
    assert logs["loss"][0] == pytest.approx(expected, rel=1e-5)
