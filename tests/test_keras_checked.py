"""Checked examples in each mini-batch of Keras."""

import keras
import numpy as np
import pytest
from keras_shift import in_precision

import sigua
from sigua_keras import SIGUA, with_checked

PLAIN = SIGUA(sigua.standard(), output="noisy")
ONE_STEP = {"callbacks": [PLAIN], "verbose": 0}


def data(n=60):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    x = (np.eye(3)[y] + 0.1 * rng.standard_normal((n, 3))).astype("float32")
    return x, y, np.arange(n) < 12


def model(*layers, **compile):
    keras.utils.set_random_seed(0)
    net = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(3, "softmax")])
    net.compile(keras.optimizers.SGD(0.5), "sparse_categorical_crossentropy", **compile)
    return net


def losses(net, x, y):
    p = np.asarray(net.predict(x, verbose=0), dtype=np.float64)
    return -np.log(np.take_along_axis(p, y[..., None], -1))[..., 0]


def accuracy(net, x, y):
    return (net.predict(x, verbose=0).argmax(1) == y).mean()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_descends_on_the_sum_of_both_mean_losses(weighted):
    """One mini-batch, plain training; validation is that of the model, with its metrics."""
    x, y, checked = data(24)
    weight = np.arange(24.0) if weighted else None
    net = model(metrics=["accuracy"])
    both, batches = with_checked(net, x, y, checked, 24, seed=0, sample_weight=weight)
    assert len(batches) == 1
    each = losses(net, x, y) * (1 if weight is None else weight)
    shares = {"noisy": accuracy(net, x[~checked], y[~checked])}
    shares["checked"] = accuracy(net, x[checked], y[checked])
    logs = both.fit(batches, validation_data=(x, y), **ONE_STEP).history
    assert logs["loss"][0] == pytest.approx(each[checked].mean() + each[~checked].mean(), rel=1e-6)
    for name, share in shares.items():
        assert logs[f"{name}_accuracy"][0] == pytest.approx(share)
    assert logs["val_accuracy"][0] == pytest.approx(accuracy(net, x, y))
    assert logs["val_loss"][0] == pytest.approx(losses(net, x, y).mean(), rel=1e-5)


@pytest.mark.parametrize("form", [list, dict])
def test_a_model_may_have_several_inputs(form):
    x, y, checked = data(24)
    names = ["a", "b"]
    inputs = [keras.Input((3,), name=name) for name in names]
    outputs = keras.layers.Dense(3, "softmax")(keras.layers.Concatenate()(inputs))
    given, inputs = (
        ([x, -x], inputs)
        if form is list
        else (dict(zip(names, [x, -x], strict=True)), dict(zip(names, inputs, strict=True)))
    )
    net = keras.Model(inputs, outputs)
    net.compile("sgd", "sparse_categorical_crossentropy")
    each = losses(net, given, y)
    both, batches = with_checked(net, given, y, checked, 24, seed=0)
    logs = both.fit(batches, validation_data=(given, y), **ONE_STEP).history
    assert logs["loss"][0] == pytest.approx(each[checked].mean() + each[~checked].mean(), rel=1e-6)
    assert logs["val_loss"][0] == pytest.approx(losses(net, given, y).mean(), rel=1e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_batch_normalisation_sees_the_whole_mini_batch(policy):
    """Once a step: after one, with a momentum of 1/2, half of its mean was learnt."""
    x, y, checked = data(24)
    layer = keras.layers.BatchNormalization(momentum=0.5)
    with in_precision(policy):
        net = model(layer, keras.layers.Dropout(0.5), metrics=["accuracy"])
        both, batches = with_checked(net, x, y, checked, 24, seed=0)
        both.fit(batches, **ONE_STEP)
    found = keras.ops.convert_to_numpy(layer.moving_mean)
    np.testing.assert_allclose(found, x.mean(0) / 2, rtol=1e-5 if policy == "float32" else 0.02)


def test_what_a_mask_hides_stays_hidden():
    """Two of four time steps; tokens are integers."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(1, 9, (24, 4)), rng.integers(0, 3, (24, 4))
    x[:, 2:] = 0
    embedding = keras.layers.Embedding(9, 4, mask_zero=True)
    net = keras.Sequential([embedding, keras.layers.Dense(3, "softmax")])
    net.compile("sgd", "sparse_categorical_crossentropy")
    _, _, checked = data(24)
    both, batches = with_checked(net, x, y, checked, 24, seed=0)
    each = losses(net, x, y)[:, :2]
    logs = both.fit(batches, **ONE_STEP).history
    assert logs["loss"][0] == pytest.approx(each[checked].mean() + each[~checked].mean(), rel=1e-5)


def test_saturated_predictions_have_the_losses_of_the_model():
    """Which on TensorFlow are those of the logits behind a softmax."""
    x, y, checked = data(24)
    net = model()
    want = sum(net.evaluate(100 * x[i], y[i], verbose=0) for i in (checked, ~checked))
    both, batches = with_checked(net, 100 * x, y, checked, 24, seed=0)
    assert both.fit(batches, **ONE_STEP).history["loss"][0] == pytest.approx(want, rel=1e-5)


def test_it_trains_the_model_itself_by_right_labels_where_all_others_are_wrong(tmp_path):
    """Nearly all bad and ignored: what is learnt comes from the twelve checked ones.

    A second `fit` goes on, with mini-batches of 7 and of 6; the file that is saved is the model's.
    """
    x, y, checked = data()
    given = np.where(checked, y, (y + 1) % 3)
    net = model()
    both, batches = with_checked(net, x, given, checked, 14, seed=0)
    assert {len(batches[i][1]["noisy"]) for i in range(len(batches))} == {6, 7}
    nobody = SIGUA(sigua.custom(sigua.SmallLoss(0.97, 0.0, 0.01)), output="noisy")
    for epochs in (1, 19):
        both.fit(batches, epochs=epochs, callbacks=[nobody], verbose=0)
    assert nobody.epoch == 19
    assert accuracy(net, x, y) > 0.95
    both.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for found in (loaded, both):
        np.testing.assert_array_equal(found.predict(x, verbose=0), net.predict(x, verbose=0))


def test_an_epoch_has_each_unchecked_example_once_and_the_next_is_another():
    _, y, checked = data()
    net = keras.Sequential([keras.layers.Dense(3)])
    net.compile("sgd", "mse")
    _, batches = with_checked(net, np.arange(60)[:, None], y, checked, 16, seed=0)
    epochs = []
    for _ in range(2):
        epochs.append(np.concatenate([batches[i][0]["noisy"] for i in range(len(batches))]).ravel())
        batches.on_epoch_end()
    assert sorted(epochs[0]) == np.flatnonzero(~checked).tolist() == sorted(epochs[1])
    assert epochs[0].tolist() != epochs[1].tolist()


def two_outputs():
    inputs = keras.Input((3,))
    net = keras.Model(inputs, [keras.layers.Dense(3)(inputs) for _ in range(2)])
    net.compile("sgd", "mse")
    return net


X, Y, CHECKED = data()
REFUSED = {
    "model: must be compiled with a loss, got none": {"model": keras.Sequential()},
    "model: must have one output, ": {"model": two_outputs(), "y": [Y, Y]},
    "checked: must be True for some examples, got none": {"checked": CHECKED & False},
    "x: must have an entry for each of checked, got 59 for 60": {"x": X[1:]},
    "x: must be an array .*, got generator; try arrays": {"x": (row for row in X)},
    "y: must have an entry for each of checked, got 59 for 60": {"y": Y[1:]},
    "y: must be numbers, got <U1; try names, y = np.unique": {"y": np.array(list("abc"))[Y]},
    r"y: must be classes in \[0, 3\), got 3; try names, y = np.unique": {"y": Y + 1},
    r"y: must be classes in \[0, 3\), got -1; try": {"y": Y - 1},
    r"y: must be classes in \[0, 3\), got 0.5; try": {"y": Y / 2},
    "sample_weight: must have an entry for each": {"sample_weight": np.ones(3)},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused(message):
    given = {"model": model(), "x": X, "y": Y, "checked": CHECKED} | REFUSED[message]
    with pytest.raises(ValueError, match=f"^{message}"):
        with_checked(**given)


def test_options_of_fit_for_one_output_are_refused_before_training():
    both, batches = with_checked(model(), X, Y, CHECKED)
    with pytest.raises(ValueError, match=r"^class_weight: .* try with_checked\(\.\.\., sample_wei"):
        both.fit(batches, class_weight={0: 2.0}, callbacks=[PLAIN])
    with pytest.raises(ValueError, match=r"^validation_data: must be x and y of the model, .* try"):
        both.fit(batches, validation_data=(X, (Y, Y)), callbacks=[PLAIN])
