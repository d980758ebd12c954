"""A layer whose trained weight is a gradient: how tests of Keras see what a step did."""

import keras


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
