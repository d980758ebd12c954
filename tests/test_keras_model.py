"""`SIGUAModel`, and training steps of one's own."""

import keras
import numpy as np
import pytest
from keras_shift import is_plain

import sigua
from sigua import TransitionMatrix
from sigua_keras import SIGUA, SIGUAModel

BACKEND = keras.config.backend()
METHOD = sigua.sigua_sl(noise_rate=0.5, delta=0.25, gamma=0.25, warmup=4)
N = 20
GOOD = [1.0, 0.9, 0.8, 0.65, 0.55, 0.55]  # (floor(20 * rho) + 1) / 20, rho = 1, .875, .75, ...
T = TransitionMatrix([[0.7, 0.2, 0.1], [0.2, 0.8, 0.0], [0.0, 0.3, 0.7]])


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 5)).astype("float32"), rng.integers(0, 3, N)


def short(method):
    return type(method).__name__


def network():
    inputs = keras.Input((5,))
    return keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(inputs))


def compiled(model):
    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


def cross_entropy(model, x, y):
    p = keras.ops.convert_to_numpy(model(x))
    return -np.log(p[np.arange(len(y)), y]).mean()


@pytest.mark.parametrize(
    "inner", [network, lambda: keras.Sequential([keras.layers.Dense(3, activation="softmax")])]
)
def test_the_model_trains_by_itself_and_evaluates_plainly(inner, data):
    """`fit` follows the schedule without a callback; validation is plain."""
    model = compiled(SIGUAModel(inner(), METHOD))
    history = model.fit(*data, batch_size=N, epochs=6, validation_data=data, verbose=0).history
    np.testing.assert_allclose(history["sigua_good"], GOOD, rtol=1e-6)
    assert not any(name.startswith("val_sigua") for name in history)
    plain = cross_entropy(model, *data)
    assert history["val_loss"][-1] == pytest.approx(plain, rel=1e-5)
    logs = model.evaluate(*data, verbose=0, return_dict=True)
    assert logs.keys() == {"loss", "accuracy"}
    assert logs["loss"] == pytest.approx(plain, rel=1e-5)


def test_model_and_callback_are_one_objective(data):
    """The weights after `fit` are the same, whichever of the two was used."""
    for method in (METHOD, sigua.sigua_bc(T)):
        one = compiled(network())
        other = network()
        other.set_weights(one.get_weights())
        one.fit(*data, epochs=5, shuffle=False, verbose=0, callbacks=[SIGUA(method)])
        compiled(SIGUAModel(other, method)).fit(*data, epochs=5, shuffle=False, verbose=0)
        for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_the_model_follows_set_epoch_in_train_on_batch(data):
    """`train_on_batch` reads the numbers of the epoch that was set."""
    model = compiled(SIGUAModel(network(), METHOD))
    for t, share in enumerate(GOOD):
        model.set_epoch(t)
        logs = model.train_on_batch(*data, return_dict=True)
        assert float(logs["sigua_good"]) == pytest.approx(share)
        assert model.test_on_batch(*data, return_dict=True).keys() == {"loss", "accuracy"}


@pytest.mark.parametrize(
    "method", [METHOD, sigua.sigua_bc(T), sigua.forward_correction(T)], ids=short
)
def test_the_model_is_saved_with_its_method_and_its_epoch(method, data, tmp_path):
    """Reloaded, it predicts the same, has the same method and epoch, and trains on."""
    model, path = compiled(SIGUAModel(network(), method)), str(tmp_path / "model.keras")
    model.fit(*data, epochs=3, verbose=0)
    model.save(path)
    loaded = keras.models.load_model(path)
    assert loaded.method == method
    assert loaded.epoch == 2
    np.testing.assert_array_equal(
        loaded.predict(data[0], verbose=0), model.predict(data[0], verbose=0)
    )
    logs = loaded.train_on_batch(*data, return_dict=True)
    if method is METHOD:
        assert float(logs["sigua_good"]) == pytest.approx(GOOD[2])


def test_weights_alone_carry_the_epoch(data, tmp_path):
    """`save_weights` and `load_weights` keep the epoch, too."""
    one, other = (compiled(SIGUAModel(network(), METHOD)) for _ in range(2))
    one.fit(*data, epochs=4, verbose=0)
    other.fit(*data, epochs=1, verbose=0)  # builds it, and its optimizer
    one.save_weights(str(tmp_path / "model.weights.h5"))
    other.load_weights(str(tmp_path / "model.weights.h5"))
    assert other.epoch == 3


def test_a_callback_on_a_sigua_model_is_refused(data):
    """A SIGUAModel needs no callback, and takes none."""
    model = compiled(SIGUAModel(network(), METHOD))
    with pytest.raises(ValueError, match=r"^model: must have one SIGUA"):
        model.fit(*data, verbose=0, callbacks=[SIGUA(METHOD)])
    model = SIGUAModel(network(), METHOD)
    model.compile("sgd")
    with pytest.raises(ValueError, match=r"^loss: must be compiled, .* got None;"):
        model.fit(*data, verbose=0)


def own_step(base):
    """Return a model class whose `train_step` is written as Keras's guides show."""

    class TensorFlow(base):
        def train_step(self, data):
            import tensorflow as tf

            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(y=y, y_pred=y_pred)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {m.name: m.result() for m in self.metrics}

        def test_step(self, data):
            x, y = data
            y_pred = self(x, training=False)
            loss = self.compute_loss(y=y, y_pred=y_pred)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {m.name: m.result() for m in self.metrics}

    class Torch(TensorFlow):
        def train_step(self, data):
            import torch

            x, y = data
            self.zero_grad()
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
            loss.backward()
            weights = list(self.trainable_weights)
            with torch.no_grad():
                self.optimizer.apply([v.value.grad for v in weights], weights)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {m.name: m.result() for m in self.metrics}

    class JAX(base):
        def loss_and_updates(self, trainable, non_trainable, x, y, training=False):
            y_pred, non_trainable = self.stateless_call(
                trainable, non_trainable, x, training=training
            )
            loss = self.compute_loss(x, y, y_pred)
            return loss, (y_pred, non_trainable)

        def updated(self, metrics_variables, loss, y, y_pred):
            new, logs = [], {}
            for metric in self.metrics:
                own = metrics_variables[len(new) : len(new) + len(metric.variables)]
                args = (loss,) if metric.name == "loss" else (y, y_pred)
                own = metric.stateless_update_state(own, *args)
                logs[metric.name] = metric.stateless_result(own)
                new += own
            return logs, new

        def train_step(self, state, data):
            import jax

            trainable, non_trainable, optimizer_variables, metrics_variables = state
            x, y = data
            grad = jax.value_and_grad(self.loss_and_updates, has_aux=True)
            (loss, (y_pred, non_trainable)), gradients = grad(
                trainable, non_trainable, x, y, training=True
            )
            trainable, optimizer_variables = self.optimizer.stateless_apply(
                optimizer_variables, gradients, trainable
            )
            logs, metrics_variables = self.updated(metrics_variables, loss, y, y_pred)
            return logs, (trainable, non_trainable, optimizer_variables, metrics_variables)

        def test_step(self, state, data):
            trainable, non_trainable, metrics_variables = state
            x, y = data
            loss, (y_pred, non_trainable) = self.loss_and_updates(trainable, non_trainable, x, y)
            logs, metrics_variables = self.updated(metrics_variables, loss, y, y_pred)
            return logs, (trainable, non_trainable, metrics_variables)

    return {"tensorflow": TensorFlow, "torch": Torch, "jax": JAX}[BACKEND]


@pytest.mark.parametrize("kind", ["callback", "model"])
def test_a_training_step_of_ones_own_is_trained(kind, data):
    """A `train_step` and a `test_step` from Keras's guides: scheduled, and validated plainly."""
    if kind == "callback":
        inputs = keras.Input((5,))
        outputs = keras.layers.Dense(3, activation="softmax")(inputs)
        model, callbacks = own_step(keras.Model)(inputs, outputs), [SIGUA(METHOD)]
    else:
        model, callbacks = own_step(SIGUAModel)(network(), METHOD), []
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    history = model.fit(
        *data, batch_size=N, epochs=6, validation_data=data, verbose=0, callbacks=callbacks
    ).history
    np.testing.assert_allclose(history["sigua_good"], GOOD, rtol=1e-6)
    assert not any(name.startswith("val_sigua") for name in history)
    assert history["val_loss"][-1] == pytest.approx(cross_entropy(model, *data), rel=1e-5)


@pytest.mark.parametrize("kind", ["callback", "model"])
def test_a_training_step_of_ones_own_keeps_the_class_confidence(kind, data):
    """Agreement drops in such a step what it drops in Keras's own."""
    x, y = data
    found = []
    for own in (False, True):
        keras.utils.set_random_seed(0)
        if kind == "callback":
            inputs = keras.Input((5,))
            outputs = keras.layers.Dense(3, activation="softmax")(inputs)
            cls, callbacks = keras.Model, [SIGUA(sigua.sigua_ag(warmup=2))]
            model = (own_step(cls) if own else cls)(inputs, outputs)
        else:
            cls, callbacks = SIGUAModel, []
            model = (own_step(cls) if own else cls)(network(), sigua.sigua_ag(warmup=2))
        model.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
        history = model.fit(x, y, batch_size=5, epochs=5, verbose=0, callbacks=callbacks).history
        found.append(history["sigua_bad"])
    assert found[0][-1] > found[0][0]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def deaf_step(base):
    """Return a model class whose `train_step` never calls `compute_loss`."""

    class Deaf(base):
        def train_step(self, *args):
            if BACKEND == "jax":
                state, (x, _) = args
                return {"loss": keras.ops.sum(x)}, state
            x, _ = args[0]
            return {"loss": keras.ops.sum(x)}

    return Deaf


@pytest.mark.parametrize("kind", ["callback", "model"])
def test_a_step_that_does_not_ask_for_the_loss_is_told_in_the_first_epoch(kind, data):
    """Who computes the loss by other means learns it after one epoch."""
    if kind == "callback":
        inputs = keras.Input((5,))
        outputs = keras.layers.Dense(3, activation="softmax")(inputs)
        model, callbacks = deaf_step(keras.Model)(inputs, outputs), [SIGUA(METHOD)]
    else:
        model, callbacks = deaf_step(SIGUAModel)(network(), METHOD), []
    model.compile("sgd", "sparse_categorical_crossentropy")
    begun = []
    count = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: begun.append(epoch))
    with pytest.raises(ValueError, match=r"^train_step: must call self\.compute_loss"):
        model.fit(*data, epochs=3, verbose=0, callbacks=[*callbacks, count])
    assert begun == [0]
    assert kind == "model" or is_plain(model)
