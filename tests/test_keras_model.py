"""`SIGUAModel`, and training steps of one's own."""

import pickle

import keras
import numpy as np
import pytest
from contract import name
from keras_shift import compiled, cross_entropy, is_plain, network

import sigua
from sigua import TransitionMatrix
from sigua_keras import SIGUA, SIGUAModel

BACKEND = keras.config.backend()
METHOD = sigua.sigua_sl(noise_rate=0.5, delta=0.25, gamma=0.25, warmup=4)
N = 20
T = TransitionMatrix([[0.7, 0.2, 0.1], [0.2, 0.8, 0.0], [0.0, 0.3, 0.7]])


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 5)).astype("float32"), rng.integers(0, 3, N)


@pytest.mark.parametrize(
    "method", [METHOD, sigua.sigua_bc(T), sigua.forward_correction(T)], ids=name
)
def test_the_model_is_saved_with_its_method_and_its_epoch(method, data, tmp_path):
    """Reloaded, it predicts the same, has the same method and epoch, and trains on."""
    model, path = compiled(SIGUAModel(network(), method)), str(tmp_path / "model.keras")
    model.fit(*data, epochs=3, verbose=0)
    model.save(path)
    loaded = keras.models.load_model(path)
    assert loaded.method == method
    assert loaded.epoch == 2
    found, want = (each.predict(data[0], verbose=0) for each in (loaded, model))
    np.testing.assert_array_equal(found, want)
    logs = loaded.train_on_batch(*data, return_dict=True)
    if method is METHOD:
        assert float(logs["sigua_good"]) == pytest.approx(0.8)  # (floor(20 * .75) + 1) / 20


def test_a_model_is_pickled_as_one_of_its_own_class(data):
    """A SIGUAModel goes on with its epoch; of a model with a callback attached there is nothing."""
    model, attached = compiled(SIGUAModel(network(), METHOD)), compiled(network())
    SIGUA(METHOD).attach(attached)
    for each in (model, attached):
        each.fit(*data, epochs=3, verbose=0)
    model, plain = (pickle.loads(pickle.dumps(each)) for each in (model, attached))
    assert model.epoch == 2
    assert "sigua_good" in model.fit(*data, verbose=0).history
    assert is_plain(plain)


def test_a_callback_on_a_sigua_model_is_refused(data):
    """A SIGUAModel needs no callback, and takes none."""
    model = compiled(SIGUAModel(network(), METHOD))
    with pytest.raises(ValueError, match=r"^model: must have one SIGUA"):
        model.fit(*data, verbose=0, callbacks=[SIGUA(METHOD)])


def own_step(base):
    """Return a model class whose `train_step` is written as Keras's guides show."""

    class Eager(base):
        def train_step(self, data):
            x, y = data
            loss, y_pred = self.descend(x, y)
            for metric in self.metrics:
                metric.update_state(*((loss,) if metric.name == "loss" else (y, y_pred)))
            return {metric.name: metric.result() for metric in self.metrics}

    class TensorFlow(Eager):
        def descend(self, x, y):
            import tensorflow as tf

            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(y=y, y_pred=y_pred)
            weights = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            return loss, y_pred

    class Torch(Eager):
        def descend(self, x, y):
            import torch

            self.zero_grad()
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
            loss.backward()
            weights = list(self.trainable_weights)
            with torch.no_grad():
                self.optimizer.apply([v.value.grad for v in weights], weights)
            return loss, y_pred

    class JAX(base):
        def loss_and_updates(self, trainable, non_trainable, x, y):
            y_pred, non_trainable = self.stateless_call(trainable, non_trainable, x, training=True)
            return self.compute_loss(x, y, y_pred), (y_pred, non_trainable)

        def train_step(self, state, data):
            import jax

            trainable, non_trainable, optimizer, metrics_variables = state
            x, y = data
            descend = jax.value_and_grad(self.loss_and_updates, has_aux=True)
            (loss, (y_pred, non_trainable)), slopes = descend(trainable, non_trainable, x, y)
            trainable, optimizer = self.optimizer.stateless_apply(optimizer, slopes, trainable)
            new, logs = [], {}
            for metric in self.metrics:
                own = metrics_variables[len(new) : len(new) + len(metric.variables)]
                args = (loss,) if metric.name == "loss" else (y, y_pred)
                own = metric.stateless_update_state(own, *args)
                logs[metric.name] = metric.stateless_result(own)
                new += own
            return logs, (trainable, non_trainable, optimizer, new)

    return {"tensorflow": TensorFlow, "torch": Torch, "jax": JAX}[BACKEND]


def deaf_step(base):
    """Return a model class whose `train_step` never calls `compute_loss`."""

    class Deaf(base):
        def train_step(self, *args):
            *state, (x, _) = args
            logs = {"loss": keras.ops.sum(x)}
            return (logs, *state) if state else logs

    return Deaf


def made(kind, method, change=lambda base: base):
    """Return a model of a changed class, and the callbacks to fit it with."""
    if kind == "model":
        return change(SIGUAModel)(network(), method), []
    return network(kind=change(keras.Model)), [SIGUA(method)]


every_kind = pytest.mark.parametrize("kind", ["callback", "model"])


@every_kind
@pytest.mark.parametrize("method", [METHOD, sigua.sigua_ag(warmup=2)], ids=name)
def test_a_training_step_of_ones_own_is_trained_as_keras_s(kind, method, data):
    """A `train_step` from Keras's guides: scheduled, with class confidence, validated plainly."""
    found = []
    for change in (own_step, lambda base: base):
        keras.utils.set_random_seed(0)
        model, callbacks = made(kind, method, change)
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
        options = {"batch_size": 5, "epochs": 6, "verbose": 0, "callbacks": callbacks}
        found.append(model.fit(*data, validation_data=data, **options).history)
    assert found[0]["sigua_good"][-1] < found[0]["sigua_good"][0]
    assert found[0].keys() == found[1].keys()
    for each in ("val_loss", "sigua_good", "sigua_bad"):
        np.testing.assert_allclose(found[0][each], found[1][each], rtol=1e-5)
    assert found[1]["val_loss"][-1] == pytest.approx(cross_entropy(model, *data), rel=1e-5)


@every_kind
def test_a_step_that_does_not_ask_for_the_loss_is_told_in_the_first_epoch(kind, data):
    """Who computes the loss by other means learns it after one epoch."""
    model, callbacks = made(kind, METHOD, deaf_step)
    model.compile("sgd", "sparse_categorical_crossentropy")
    begun = []
    count = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: begun.append(epoch))
    with pytest.raises(ValueError, match=r"^train_step: must call self\.compute_loss"):
        model.fit(*data, epochs=3, verbose=0, callbacks=[*callbacks, count])
    assert begun == [0]
    assert kind == "model" or is_plain(model)
