"""A layer whose trained weight is a gradient: how tests of Keras see what a step did."""

import keras
import numpy as np


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


def is_plain(model):
    """Return whether a model has its own class, and no metric of ours."""
    own = type(model) is model.__class__
    return own and not any("sigua" in metric.name for metric in model.metrics)
