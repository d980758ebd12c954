"""A layer whose trained weight is a gradient: how tests of Keras see what a step did."""

from contextlib import contextmanager

import keras
import numpy as np
import pytest

import sigua
from sigua_keras import SIGUA

EPS = float(np.finfo(np.float32).eps)
SPARSE = keras.losses.SparseCategoricalCrossentropy
DENSE = keras.losses.CategoricalCrossentropy
SL = sigua.sigua_sl(0.5, delta=0.25, gamma=0.25, warmup=0)
ROWS = [[0.7, 0.1, 0.1, 0.1], [0.2, 0.8, 0, 0], [0, 0.3, 0.6, 0.1], [0, 0, 0.4, 0.6]]
T = sigua.TransitionMatrix(ROWS)


@keras.saving.register_keras_serializable(package="tests")
class Shift(keras.layers.Layer):
    """Adds a trainable zero: after a step of SGD(1) it is minus the gradient. Keeps masks."""

    def __init__(self, shape, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.shift = self.add_weight(shape=shape, initializer="zeros", name="shift")

    def call(self, inputs):
        return inputs + keras.ops.cast(self.shift, inputs.dtype)

    def get_config(self):
        return super().get_config() | {"shape": self.shift.shape}


def gradient(
    inputs, labels, loss, *callbacks, before=(), after=(), layer=None, epoch=0, compile=None, **fit
):
    """Return the gradient with respect to the inputs, and the logs, of one step of `fit`.

    Args:
        inputs: what the layer shifts.
        labels: of any form.
        loss: which is compiled.
        *callbacks: of `fit`.
        before: layers that the inputs pass first.
        after: layers between the shifted inputs and the loss.
        layer: in place of a `Shift`.
        epoch: in which the step is.
        compile: further arguments of `compile`.
        **fit: further arguments of `fit`.
    """
    inputs = np.asarray(inputs, dtype="float32")
    layer = layer or Shift(inputs.shape)
    model = keras.Sequential([*before, layer, *after])
    model.compile(keras.optimizers.SGD(1.0), loss, **(compile or {}))
    history = model.fit(
        inputs,
        np.asarray(labels),
        batch_size=len(inputs),
        initial_epoch=epoch,
        epochs=epoch + 1,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
        **fit,
    )
    logs = {name: values[-1] for name, values in history.history.items()}
    return -keras.ops.convert_to_numpy(layer.shift.value).astype("float64"), logs


def step(method, inputs, labels, loss, activation="linear", **options):
    """Return the same of a step by a method, with an activation before the loss."""
    after = [keras.layers.Activation(activation)]
    return gradient(inputs, labels, loss, SIGUA(method), after=after, **options)


def close(actual, expected, factor=16):
    """Assert equal within some roundings of the largest entry."""
    expected = np.asarray(expected).reshape(np.shape(actual))
    atol = factor * EPS * np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def assert_step(found, want, there=True, scale=1):
    """Assert the step of the spec, times a scale, of who takes part, and nothing of the others."""
    slopes, logs = found
    there = np.broadcast_to(there, slopes.shape[:-1])
    close(slopes[there], scale * want.gradient)
    assert not slopes[~there].any()
    assert logs["loss"] == pytest.approx(scale * want.objective, rel=1e-5)
    assert logs["sigua_good"] == pytest.approx(want.split.good.mean())
    assert logs["sigua_bad"] == pytest.approx(want.split.bad.mean())


def array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def network(units=3, kind=keras.Model):
    """Return a model of five inputs and probabilities."""
    inputs = keras.Input((5,))
    return kind(inputs, keras.layers.Dense(units, "sigmoid" if units == 1 else "softmax")(inputs))


def compiled(model, **kwargs):
    kwargs = {"metrics": ["accuracy"]} | kwargs
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", **kwargs)
    return model


def cross_entropy(model, x, y):
    """Return the plain loss of a model."""
    p = array(model(x))
    return -np.log(p[np.arange(len(y)), y]).mean()


@contextmanager
def in_precision(policy):
    """Make layers of another precision."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def is_plain(model):
    """Return whether a model has its own class, and no metric of ours."""
    own = type(model) is model.__class__
    return own and not any("sigua" in metric.name for metric in model.metrics)
