"""The reference, PyTorch and Keras choose alike and have the same gradients: NumPy in, NumPy out.

The rules are written once, so that agreement cannot see a wrong rule; it sees wrong primitives.
"""

import keras
import numpy as np
import pytest
import torch

import sigua
from sigua import TransitionMatrix, reference
from sigua_keras import SIGUA
from sigua_torch import SIGUALoss

# Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

EPS = float(np.finfo(np.float32).eps)
N, K = 300, 10


@pytest.fixture
def samples():
    """300 samples drawn from 40 distinct ones, so that losses tie."""
    rng = np.random.default_rng(5)
    rows, labels = rng.normal(scale=2, size=(40, K)).astype("float32"), rng.integers(0, K, 40)
    drawn = rng.integers(0, 40, N)
    return rows[drawn], labels[drawn]


class ByReference:
    """What the other two must equal, in float64."""

    @staticmethod
    def from_losses(method, losses):
        return reference.split(method, losses)

    @staticmethod
    def from_logits(method, logits, labels):
        done = reference.step(method, logits, labels)
        return done.split, done.gradient


class ByTorch:
    """`sigua_torch.SIGUALoss` under autograd."""

    @staticmethod
    def from_losses(method, losses):
        criterion = SIGUALoss(method, base=lambda logits, target: logits[:, 0])
        inputs = torch.tensor(losses)[:, None].requires_grad_()
        criterion(inputs, torch.zeros(len(losses), dtype=torch.int64))
        return sigua.Split(*(mask.numpy() for mask in criterion.split))

    @staticmethod
    def from_logits(method, logits, labels):
        criterion = SIGUALoss(method)
        inputs = torch.tensor(logits, requires_grad=True)
        criterion(inputs, torch.tensor(labels)).backward()
        return sigua.Split(*(mask.numpy() for mask in criterion.split)), inputs.grad.numpy()


class Shift(keras.layers.Layer):
    """Adds a trainable zero: after a step of SGD(1) it is minus the gradient."""

    def __init__(self, shape):
        super().__init__()
        self.shift = self.add_weight(shape=shape, initializer="zeros")

    def call(self, inputs):
        return inputs + self.shift


class ByKeras:
    """The callback in one compiled step of `fit`, on the backend of this process."""

    @staticmethod
    def gradient(method, inputs, labels, loss):
        layer = Shift(inputs.shape)
        model = keras.Sequential([layer])
        model.compile(keras.optimizers.SGD(1.0), loss)
        callbacks = [SIGUA(method)]
        model.fit(
            inputs, labels, batch_size=len(inputs), shuffle=False, verbose=0, callbacks=callbacks
        )
        return -keras.ops.convert_to_numpy(layer.shift.value)

    @classmethod
    def from_losses(cls, method, losses):
        zeros = np.zeros(len(losses), dtype="int64")
        weights = cls.gradient(method, losses[:, None], zeros, lambda y, p: p[:, 0])[:, 0]
        return sigua.Split(weights > 0, weights < 0)

    @classmethod
    def from_logits(cls, method, logits, labels):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        gradient = cls.gradient(method, logits, labels, loss)
        # Who is descended on loses loss at the label, where a plain gradient is negative.
        at_label = gradient[np.arange(len(labels)), labels]
        return sigua.Split(at_label < 0, at_label > 0), gradient


RHO = [0.0, 0.21, 0.39, 0.67, 0.9]


def small_loss(rho, variant):
    noise_rate = min(1 - rho, float(np.nextafter(1, 0)))  # the smallest rho that is allowed
    return sigua.sigua_sl(noise_rate, delta=0.2, gamma=0.25, warmup=0, variant=variant)


@pytest.mark.filterwarnings("ignore:a mini-batch of 300 is too small")  # at rho = 0 nobody is kept
@pytest.mark.parametrize("variant", ["paper", "official"])
@pytest.mark.parametrize("rho", RHO)
@pytest.mark.parametrize("by", [ByTorch, ByKeras])
def test_small_loss_agrees_with_the_reference(by, rho, variant, samples):
    """Masks are equal, from losses and from logits with ties, and gradients within 8 eps / n."""
    method = small_loss(rho, variant)
    logits, labels = samples
    losses = reference.cross_entropy(logits, labels).astype("float32")
    for actual, expected in zip(
        by.from_losses(method, losses), ByReference.from_losses(method, losses), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)
    split, gradient = by.from_logits(method, logits, labels)
    expected, slopes = ByReference.from_logits(method, logits, labels)
    np.testing.assert_array_equal(split.good, expected.good)
    np.testing.assert_array_equal(split.bad, expected.bad)
    # Separate averages weigh an example by n over the number of its kind.
    scale = max(1, N / max(expected.good.sum(), 1)) if variant == "official" else 1
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=8 * EPS / N * scale)


MATRICES = [
    TransitionMatrix.symmetric(0.5, K),
    TransitionMatrix.pair(0.4, K),
    TransitionMatrix(0.7 * np.eye(K) + 0.3 * np.tile(np.arange(1, K + 1) / 55, (K, 1))),
]
CORRECTIONS = [
    method
    for T in MATRICES
    for method in (
        sigua.backward_correction(T),
        sigua.sigua_bc(T, gamma=0.5),
        sigua.sigua_bc(T, gamma=0.5, over="batch"),
        sigua.forward_correction(T),
        sigua.sigua_fc(T, gamma=0.5, floor=0.0),
        sigua.sigua_fc(T, gamma=0.5, floor=9.0),
    )
]


@pytest.mark.parametrize("method", CORRECTIONS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("by", [ByTorch, ByKeras])
def test_corrections_agree_with_the_reference(by, method, samples):
    """Corrected losses have the reference's gradients, within 8 eps / n times T^-1's entries."""
    logits, labels = samples
    _, gradient = by.from_logits(method, logits, labels)
    _, slopes = ByReference.from_logits(method, logits, labels)
    scale = np.abs(method.T.inverse).max()
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=8 * EPS / N * scale)
