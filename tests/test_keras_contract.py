"""The callback keeps the contract in one compiled step of `fit`, on the backend of this process."""

import keras
import numpy as np
import pytest
from contract import Contract, Step
from keras_shift import gradient

from sigua_keras import SIGUA

# Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


class TestKeras(Contract):
    every = 12
    sees_masks = False

    def run(self, method, logits, labels, epoch=0):
        labels = np.asarray(labels)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        slopes, logs = gradient(logits, labels, loss, SIGUA(method), epoch=epoch)
        # What is descended on has a larger logit at the label afterwards.
        at_label = slopes[np.arange(len(labels)), labels]
        return Step(logs["loss"], slopes, at_label < 0, at_label > 0)
