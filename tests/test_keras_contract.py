"""The callback keeps the contract in one compiled step of `fit`, on the backend of this process."""

import keras
import numpy as np
import pytest
from contract import Contract, Step
from keras_shift import Shift

from sigua_keras import SIGUA

# Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class TestKeras(Contract):
    every = 12
    sees_masks = False

    def run(self, method, logits, labels, epoch=0):
        logits, labels = np.asarray(logits, "float32"), np.asarray(labels)
        layer = Shift(logits.shape)
        model = keras.Sequential([layer])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(1.0), loss)
        history = model.fit(
            logits,
            labels,
            batch_size=len(labels),
            initial_epoch=epoch,
            epochs=epoch + 1,
            shuffle=False,
            verbose=0,
            callbacks=[SIGUA(method)],
        ).history
        gradient = -keras.ops.convert_to_numpy(layer.shift.value).astype("float64")
        # What is descended on has a larger logit at the label afterwards.
        at_label = gradient[np.arange(len(labels)), labels]
        return Step(history["loss"][0], gradient, at_label < 0, at_label > 0)
