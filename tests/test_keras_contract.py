"""The callback keeps the contract in a step of `fit`, on the backend of this process."""

import keras
import numpy as np
import pytest
from contract import COMPOSED, Contract, Step, composed, name, samples
from keras_shift import Shift, gradient

import sigua
from sigua import reference
from sigua_keras import SIGUA


class TestKeras(Contract):
    """Soft labels, groups, marks and who takes part, as `fit` takes them; eagerly, which is quick.

    Class weights are sample weights in Keras, which no correction sees.
    """

    every = 12
    sees_masks = False

    def run(self, method, logits, labels, epoch=0, *, where=None, trusted=None, **options):
        soft, groups = np.ndim(labels) == 2, options.get("groups")
        if "weight" in options or (soft and method.T is not None):
            pytest.skip("not a way to call Keras")
        if groups is not None and isinstance(method.condition, sigua.Agreement):
            pytest.skip("refused")
        labels, n = np.asarray(labels), len(labels)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        rows = labels
        if soft or "smoothing" in options:
            smoothing = options.get("smoothing", 0.0)
            loss = keras.losses.CategoricalCrossentropy(True, smoothing)
            rows = labels if soft else np.eye(np.shape(logits)[1])[labels]
        given = groups if isinstance(groups, str) or groups is None else lambda y, y_pred: groups
        weight = None
        if where is not None or trusted is not None:
            weight = np.ones(n) if where is None else 1.0 * where
            weight = weight if trusted is None else np.where(trusted, weight, -weight)
        call = {"epoch": epoch, "sample_weight": weight, "compile": {"run_eagerly": True}}
        slopes, logs = gradient(logits, rows, loss, SIGUA(method, groups=given), **call)
        scale = 1 if where is None else n / where.sum()  # Keras's mean is over all
        if rows.ndim == 1:  # what is descended on has a larger logit at the label afterwards
            down = -slopes[np.arange(n), labels]
        else:
            plain = sigua.custom(sigua.AllGood(), 0.0, method.correction, method.T)
            down = (slopes * composed(plain, logits, labels, 0, **options)[0].gradient).sum(1)
        return Step(logs["loss"] * scale, slopes * scale, down > 0, down < 0)


@pytest.mark.parametrize("method", COMPOSED, ids=name)
def test_a_compiled_step_follows_the_epochs(method):
    """One compilation serves all of them, and does what the reference does."""
    logits, labels = samples()
    layer = Shift(logits.shape)
    model = keras.Sequential([keras.Input(logits.shape[1:], batch_size=len(logits)), layer])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1.0), loss)
    callback = SIGUA(method)
    callback.attach(model)
    for epoch in (0, 4, 10):
        layer.shift.assign(np.zeros(logits.shape))
        callback.set_epoch(epoch)
        callback._objective.shares.forget()  # so that the class confidence is that of no step
        logs = model.train_on_batch(logits, labels, return_dict=True)
        want = reference.step(method, logits, labels, epoch)
        slopes = -np.array(keras.ops.convert_to_numpy(layer.shift.value), dtype="float64")
        scale = 16 if method.T is None else 16 * np.abs(method.T.inverse).max()
        scale *= len(labels) if method.separate else 1
        atol = np.finfo("float32").eps * scale / len(labels)
        np.testing.assert_allclose(slopes, want.gradient, rtol=0, atol=atol)
        assert logs["loss"] == pytest.approx(want.objective, rel=1e-5)
        assert logs["sigua_good"] == pytest.approx(want.split.good.mean())
        assert logs["sigua_bad"] == pytest.approx(want.split.bad.mean())
