"""Training by `fit`: the schedule in the compiled step, and a model left as it was."""

import csv

import keras
import numpy as np
import pytest
from keras_shift import compiled, cross_entropy, is_plain
from test_conditions import Rule

import sigua
from sigua_keras import SIGUA, SIGUAModel

BACKEND = keras.config.backend()
METHOD = sigua.sigua_sl(noise_rate=0.6, delta=0.25, gamma=0.25, warmup=6)
N = 40


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 5)).astype("float32"), rng.integers(0, 3, N)


class Counting(keras.layers.Layer):
    """Counts how often the training step is traced (or run, if it is eager)."""

    def __init__(self):
        super().__init__()
        self.traces = 0

    def call(self, inputs, training=None):
        self.traces += bool(training)
        return inputs


def sequential():
    return keras.Sequential([keras.layers.Dense(3, activation="softmax")])


def functional():
    inputs = keras.Input((5,))
    hidden = keras.layers.Dense(4, activation="tanh")(inputs)
    return keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(hidden))


class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(3, activation="softmax")

    def call(self, inputs):
        return self.dense(inputs)


class OldStyle(Subclassed):
    """Overrides `compute_loss` as it was before Keras 3.3, without `training`."""

    def compute_loss(self, x, y, y_pred, sample_weight):
        return super().compute_loss(x, y, y_pred, sample_weight)


def built():
    model = Subclassed()
    model(np.zeros((1, 5), "float32"))
    return model


def trained():
    model = compiled(functional())
    # Of the same shapes and types, so that nothing but force makes the step be traced anew.
    model.fit(np.ones((N, 5), "float32"), np.zeros(N, "int64"), batch_size=16, verbose=0)
    return model


def executions():
    return compiled(sequential(), steps_per_execution=3)


def model_of(make):
    """Return a function that makes a SIGUAModel, which trains by itself."""
    return lambda: compiled(SIGUAModel(make(), METHOD))


def shares(method, epochs, sizes=(N,), start=0):
    """Return the shares that untied losses must give, per epoch, by the paper's inequalities."""
    good, bad = [], []
    for t in range(start, epochs):
        keep, reach = (parts / 1e9 for parts in method.condition.at(t))
        # floor(n * rate) + 1 losses have at most n * rate smaller ones, and never more than n.
        counts = [[min(int(n * rate + 1e-6) + 1, n) for n in sizes] for rate in (keep, reach)]
        good.append(sum(counts[0]) / sum(sizes))
        bad.append((sum(counts[1]) - sum(counts[0])) / sum(sizes))
    return np.array([good, bad])


def shown(history):
    return np.array([history.history["sigua_good"], history.history["sigua_bad"]])


KINDS = [sequential, functional, Subclassed, OldStyle, built, trained]
KINDS += [model_of(functional), model_of(sequential)]
KINDS += [executions] if BACKEND != "torch" else []  # Keras has none there


@pytest.mark.parametrize("make", KINDS)
def test_any_kind_of_model_follows_the_schedule(make, data):
    """Built or not, trained or not; validation, evaluation and all other logs are plain."""
    model, seen = make(), []
    model = model if model.compiled else compiled(model)
    evaluate = lambda *_: seen.append(model.evaluate(*data, verbose=0, return_dict=True))  # noqa: E731
    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=evaluate)]
    callbacks += [] if isinstance(model, SIGUAModel) else [SIGUA(METHOD)]
    options = {"batch_size": 16, "epochs": 8, "validation_data": data, "verbose": 0}
    history = model.fit(*data, callbacks=callbacks, **options)
    np.testing.assert_allclose(shown(history), shares(METHOD, 8, (16, 16, 8)), rtol=1e-6)
    logs, plain = history.history, cross_entropy(model, *data)
    own = {"loss", "accuracy"}
    assert set(logs) == own | {"val_loss", "val_accuracy", "sigua_good", "sigua_bad"}
    assert logs["val_loss"][-1] == pytest.approx(plain, rel=1e-5)
    assert all(logs.keys() == own for logs in seen)
    assert seen[-1]["loss"] == pytest.approx(plain, rel=1e-5)


MODES = [{}, {"jit_compile": True}, {"jit_compile": False}, {"run_eagerly": True}]


@pytest.mark.parametrize("mode", MODES if BACKEND != "torch" else MODES[2:], ids=str)
def test_the_schedule_reaches_the_step_without_a_retrace(mode, data):
    """In 12 epochs the step is traced once, and once more for a smaller last batch at most."""
    counting = Counting()
    model = compiled(keras.Sequential([counting, *sequential().layers]), **mode)
    model.build((None, 5))
    history = model.fit(*data, batch_size=16, epochs=12, verbose=0, callbacks=[SIGUA(METHOD)])
    np.testing.assert_allclose(shown(history), shares(METHOD, 12, (16, 16, 8)), rtol=1e-6)
    eager = "run_eagerly" in mode or (BACKEND != "tensorflow" and mode.get("jit_compile") is False)
    assert counting.traces == 36 if eager else counting.traces <= 2


@pytest.mark.skipif(BACKEND != "torch", reason="what jit_compile=True means on PyTorch")
@pytest.mark.filterwarnings("ignore")  # torch.compile and Keras's own step under it warn a lot
def test_torch_compile_is_not_asked_twice(data):
    """With `jit_compile=True` on PyTorch, the schedule makes no graph after the first epoch."""
    from torch._dynamo.utils import counters

    model, graphs = compiled(sequential(), jit_compile=True), []
    model.build((None, 5))
    count = lambda *_: graphs.append(counters["stats"]["unique_graphs"])  # noqa: E731
    callbacks = [SIGUA(METHOD), keras.callbacks.LambdaCallback(on_epoch_end=count)]
    history = model.fit(*data, batch_size=16, epochs=12, verbose=0, callbacks=callbacks)
    np.testing.assert_allclose(shown(history), shares(METHOD, 12, (16, 16, 8)), rtol=1e-6)
    assert 0 < graphs[0] == graphs[-1]


def test_an_unknown_batch_size(data):
    """Batches whose size is not known when the step is traced are counted when it runs."""
    x, y = data
    sizes = (7, 12, 12, 9)
    ends = np.cumsum(sizes)

    def batches():
        while True:
            for size, end in zip(sizes, ends, strict=True):
                yield x[end - size : end], y[end - size : end]

    feed = batches()
    if BACKEND == "tensorflow":
        import tensorflow as tf

        rows = tf.TensorSpec((None, 5), tf.float32), tf.TensorSpec((None,), tf.int64)
        feed = tf.data.Dataset.from_generator(batches, output_signature=rows)
    model = compiled(sequential())
    model.build((None, 5))
    callbacks = [SIGUA(METHOD)]
    history = model.fit(
        feed, steps_per_epoch=4, epochs=8, shuffle=False, verbose=0, callbacks=callbacks
    )
    np.testing.assert_allclose(shown(history), shares(METHOD, 8, sizes), rtol=1e-6)


def trains_plainly(model, data):
    """Assert that nothing of SIGUA is left in any way of using the model."""
    x, y = data
    plain = cross_entropy(model, x, y)
    assert model.evaluate(x, y, verbose=0, return_dict=True).keys() == {"loss", "accuracy"}
    logs = model.train_on_batch(x, y, return_dict=True)
    assert logs.keys() == {"loss", "accuracy"}
    assert float(logs["loss"]) == pytest.approx(plain, rel=1e-5)
    plain = cross_entropy(model, x, y)
    history = model.fit(x, y, batch_size=N, verbose=0).history
    assert history.keys() == {"loss", "accuracy"}
    assert history["loss"][0] == pytest.approx(plain, rel=1e-5)
    assert is_plain(model)
    assert not any(metric.name.startswith("sigua") for metric in model.metrics)


def interrupt(error, where):
    """Return a callback that raises an error in the second epoch or step."""

    def stop(index, logs=None):
        if index == 1:
            raise error

    return keras.callbacks.LambdaCallback(**{where: stop})


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (KeyboardInterrupt, "on_train_batch_begin"),
        (KeyboardInterrupt, "on_epoch_end"),
        (RuntimeError, "on_epoch_begin"),
    ],
)
def test_an_interrupted_fit_leaves_the_model_as_it_was(error, where, data):
    """Whatever ends `fit`, the next use of the model is plain; the callback can be attached."""
    model, callback = compiled(functional()), SIGUA(METHOD)
    callbacks = [callback, interrupt(error, where)]
    with pytest.raises(error):
        model.fit(*data, batch_size=16, epochs=9, verbose=0, callbacks=callbacks)
    callback.attach(model)
    assert float(model.train_on_batch(*data, return_dict=True)["sigua_good"]) == 1
    callback.detach()
    with pytest.raises(error):
        model.fit(*data, batch_size=16, epochs=9, verbose=0, callbacks=callbacks)
    trains_plainly(model, data)


@pytest.mark.parametrize("wrap", [False, True], ids=["callback", "model"])
def test_backup_and_restore_resumes_the_schedule(wrap, data, tmp_path):
    """A run that is restarted goes on with the numbers of the epoch where it stopped."""
    model, options = compiled(functional()), {"batch_size": N, "epochs": 8, "verbose": 0}
    model = model_of(functional)() if wrap else model

    def fit(*others):
        backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
        callbacks = [backup, *([] if wrap else [SIGUA(METHOD)]), *others]
        return model.fit(*data, callbacks=callbacks, **options)

    with pytest.raises(RuntimeError):
        fit(interrupt(RuntimeError, "on_epoch_begin"))
    np.testing.assert_allclose(shown(fit()), shares(METHOD, 8, start=1), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.* monitors val_loss:UserWarning")
def test_the_usual_callbacks_work_beside_it(data, tmp_path):
    """EarlyStopping, ReduceLROnPlateau, CSVLogger and ModelCheckpoint see plain val_ metrics."""
    model, log = compiled(functional()), tmp_path / "log.csv"
    path, by_loss = str(tmp_path / "best.keras"), {"monitor": "val_loss"}
    beside = [
        keras.callbacks.ModelCheckpoint(path, save_best_only=True, **by_loss),
        keras.callbacks.EarlyStopping(min_delta=9, patience=3, **by_loss),
        keras.callbacks.ReduceLROnPlateau(min_delta=9, patience=1, **by_loss),
        SIGUA(METHOD),
        keras.callbacks.CSVLogger(str(log)),
    ]
    options = {"batch_size": N, "epochs": 6, "validation_data": data, "verbose": 0}
    model.fit(*data, callbacks=beside, **options)
    with log.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4  # the first is the best there can be, and three more were waited for
    np.testing.assert_allclose([float(row["sigua_good"]) for row in rows], shares(METHOD, 4)[0])
    assert float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)) < 0.01
    best = keras.models.load_model(path)
    losses = [float(row["val_loss"]) for row in rows]
    assert best.evaluate(*data, verbose=0)[0] == pytest.approx(min(losses), rel=1e-5)


def test_a_callback_that_stops_by_val_loss_is_warned_of(data):
    """Validation labels are wrong as well; their loss rises where a model stops believing them."""

    def fit(monitor):
        callbacks = [keras.callbacks.EarlyStopping(monitor), SIGUA(METHOD)]
        compiled(functional()).fit(*data, validation_data=data, verbose=0, callbacks=callbacks)

    with pytest.warns(UserWarning, match="EarlyStopping monitors val_loss"):
        fit("val_loss")
    fit("val_accuracy")  # a warning would be an error


def test_a_saved_model_does_not_contain_sigua(data, tmp_path):
    """Saved while it trains, the file loads without this package's objects."""
    model, path = compiled(functional()), str(tmp_path / "model.keras")
    save = keras.callbacks.ModelCheckpoint(path)
    model.fit(*data, epochs=2, verbose=0, callbacks=[SIGUA(METHOD), save])
    loaded = keras.models.load_model(path)
    assert "sigua" not in str(loaded.get_config()) + str(loaded.get_compile_config())
    one, other = (each.predict(data[0], verbose=0) for each in (loaded, model))
    np.testing.assert_array_equal(one, other)
    trains_plainly(loaded, data)


def test_attach_set_epoch_detach_in_a_loop_of_ones_own(data):
    """`train_on_batch` follows `set_epoch`; evaluation between is plain; `detach` ends it."""
    counting = Counting()
    model = compiled(keras.Sequential([counting, *sequential().layers]))
    model.build((None, 5))
    callback = SIGUA(METHOD)
    callback.attach(model)
    for t in range(8):
        callback.set_epoch(t)
        model.reset_metrics()  # as Keras does by itself from 3.15 on
        logs = model.train_on_batch(*data, return_dict=True)
        seen = np.array([[float(logs["sigua_good"])], [float(logs["sigua_bad"])]])
        np.testing.assert_allclose(seen, shares(METHOD, t + 1, start=t), rtol=1e-6)
        plain = cross_entropy(model, *data)
        model.reset_metrics()
        logs = model.test_on_batch(*data, return_dict=True)
        assert float(logs["loss"]) == pytest.approx(plain, rel=1e-5)
        assert logs.keys() == {"loss", "accuracy"}
        if t == 0:
            first = counting.traces
    assert BACKEND == "torch" or counting.traces == first
    callback.detach()
    trains_plainly(model, data)


def test_set_epoch_needs_a_model_and_an_epoch(data):
    """`set_epoch` is refused before `attach`, and for a negative epoch."""
    callback = SIGUA(METHOD)
    with pytest.raises(ValueError, match=r"^SIGUA: must be attached"):
        callback.set_epoch(1)
    callback.attach(compiled(functional()))
    with pytest.raises(ValueError, match=r"^epoch: "):
        callback.set_epoch(-1)


def test_numbers_that_change_their_type_are_refused(data):
    """A rule whose integer becomes a fraction is refused, not truncated."""
    model, rule = compiled(functional()), Rule(at=lambda epoch: (0.5 if epoch else 0,))
    with pytest.raises(ValueError, match=r"^condition: must return numbers of the same type"):
        model.fit(*data, epochs=2, verbose=0, callbacks=[SIGUA(sigua.custom(rule))])
    assert is_plain(model)
