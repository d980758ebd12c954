"""Which epoch of the method it is: told, counted in steps, or gone on with."""

import warnings

import keras
import numpy as np
import pytest
from keras_shift import network

import sigua
from sigua_keras import SIGUA, SIGUAModel, _training

BACKEND = keras.config.backend()
N, BATCH = 40, 8  # five steps an epoch
METHOD = sigua.self_teaching(noise_rate=0.6, warmup=4)
X = np.random.default_rng(0).normal(size=(N, 5)).astype("float32")
Y = np.arange(N) % 3


def kept(epoch, size=N):
    """Return the share of a mini-batch that is good: at most n rho losses are smaller, so one more.

    rho falls from 1 to 0.4 in four epochs, by 0.15 each.
    """
    rho = 1 - 0.15 * min(epoch, 4)
    return min(int(size * rho + 1e-6) + 1, size) / size


class Run:
    """A model that is trained with the callback, attached to it, or that is a SIGUAModel."""

    def __init__(self, way, method=METHOD, model=None, **kwargs):
        self.way = way
        self.model = network() if model is None else model
        self.sigua = SIGUA(method, **kwargs)
        if way == "model":
            self.model = self.sigua = SIGUAModel(self.model, method, **kwargs)
        self.model.compile("sgd", "sparse_categorical_crossentropy")
        if way == "attached":
            self.sigua.attach(self.model)

    def fit(self, *args, **kwargs):
        kwargs = ({} if args else {"batch_size": N}) | kwargs
        callbacks = kwargs.pop("callbacks", [])
        if self.way == "callback":
            callbacks = [*callbacks, self.sigua]
        data = args or (X, Y)
        options = {"verbose": 0, "shuffle": False, "callbacks": callbacks}
        return self.model.fit(*data, **options, **kwargs).history["sigua_good"]


@pytest.mark.parametrize("way", ["callback", "model"])
def test_a_loop_of_fits_goes_on_where_the_last_one_stood(way):
    """Unless initial_epoch says otherwise; an epoch of the user's is the next one's first."""
    run = Run(way)
    good = [run.fit(epochs=1)[0] for _ in range(5)]
    np.testing.assert_allclose(good, [kept(t) for t in range(5)])
    assert run.sigua.epoch == 4
    np.testing.assert_allclose(run.fit(epochs=3, initial_epoch=1), [kept(1), kept(2)])
    np.testing.assert_allclose(run.fit(epochs=2), [kept(3), kept(4)])


@pytest.mark.parametrize("way", ["attached", "model"])
def test_the_epoch_that_was_said_is_the_one_that_fit_begins_with(way):
    run = Run(way)
    run.sigua.set_epoch(2.5)
    assert run.fit(epochs=1)[0] == pytest.approx(kept(2.5))
    assert run.sigua.epoch == 2.5


def test_another_model_or_another_callback_begins_at_the_beginning():
    run = Run("callback")
    run.fit(epochs=3)
    run.model = network()
    run.model.compile("sgd", "sparse_categorical_crossentropy")
    assert run.fit(epochs=2) == [1.0, pytest.approx(kept(1))]
    run.sigua = SIGUA(METHOD)
    assert run.fit(epochs=1) == [1.0]


@pytest.mark.parametrize("saved", ["after", "within", "said"])
def test_a_loaded_model_goes_on(saved, tmp_path):
    """After the last epoch that was finished, also if a callback saved it, or where it was said."""
    run, path = Run("model"), tmp_path / "model.keras"
    callbacks = [keras.callbacks.ModelCheckpoint(str(path))] if saved == "within" else []
    run.fit(epochs=2, callbacks=callbacks)
    if saved == "said":
        run.model.set_epoch(1.5)
    if saved != "within":
        run.model.save(path)
    run.model = keras.saving.load_model(path)
    assert run.fit(epochs=1)[0] == pytest.approx(kept(1.5 if saved == "said" else 2))


class Look(keras.callbacks.Callback):
    """Notes the share of good examples after each step, and may say the epoch before or after."""

    def __init__(self, before=None, after=None):
        super().__init__()
        self.before, self.after, self.totals = before, after, []

    def on_train_batch_begin(self, batch, logs=None):
        if self.before:
            self.before(batch)

    def on_train_batch_end(self, batch, logs=None):
        self.totals.append(logs["sigua_good"] * (batch + 1))
        if self.after:
            self.after(batch)

    @property
    def shares(self):
        """Of each step, from the running means of an epoch."""
        totals = np.array(self.totals).reshape(-1, N // BATCH)
        return np.diff(totals, axis=1, prepend=0).ravel()


@pytest.mark.parametrize("way", ["callback", "attached", "model"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_epoch_said_between_two_steps_reaches_the_next_one(way, when):
    """On every backend; JAX's trainer holds what the step reads while it runs."""
    run = Run(way)
    say = lambda batch: run.sigua.set_epoch(batch / 2)  # noqa: E731
    look = Look(**{when: say})
    run.fit(X, Y, batch_size=BATCH, epochs=1, callbacks=[look])
    said = [0, *range(4)] if when == "after" else range(5)
    np.testing.assert_allclose(look.shares, [kept(b / 2, BATCH) for b in said], rtol=1e-5)


def stream():
    while True:
        for start in range(0, N, BATCH):
            yield X[start : start + BATCH], Y[start : start + BATCH]


@pytest.mark.parametrize("way", ["callback", "attached", "model"])
def test_a_single_epoch_of_an_endless_stream_has_its_ramp(way):
    """Counted in steps: 20 of them are four epochs of five."""
    run, look = Run(way, steps_per_epoch=5), Look()
    run.fit(stream(), steps_per_epoch=25, epochs=1, callbacks=[look])
    totals = np.diff(look.totals, prepend=0)
    np.testing.assert_allclose(totals, [kept(s / 5, BATCH) for s in range(25)], rtol=1e-5)
    assert run.sigua.epoch == 5


@pytest.mark.parametrize("way", ["callback", "attached", "model"])
def test_steps_are_counted_over_fits(way):
    """Over epochs, over fits, and over mini-batches of a loop of one's own."""
    run, looks = Run(way, steps_per_epoch=10), [Look(), Look()]
    for look in looks:
        run.fit(X, Y, batch_size=BATCH, epochs=2, callbacks=[look])
    shares = np.concatenate([look.shares for look in looks])
    np.testing.assert_allclose(shares, [kept(s / 10, BATCH) for s in range(20)], rtol=1e-5)
    if way != "callback":
        logs = run.model.train_on_batch(X, Y, return_dict=True)
        assert logs["sigua_good"] == pytest.approx(kept(2))
        assert run.sigua.epoch == 2.1


def test_a_run_that_is_resumed_counts_the_steps_before(tmp_path):
    """By initial_epoch, in epochs of fit, which are five steps here; or by the loaded model."""
    run, look = Run("callback", steps_per_epoch=10), Look()
    run.fit(X, Y, batch_size=BATCH, epochs=4, initial_epoch=3, callbacks=[look])
    np.testing.assert_allclose(look.shares, [kept(s / 10, BATCH) for s in range(15, 20)], rtol=1e-5)
    run = Run("model", steps_per_epoch=10)
    run.fit(X, Y, batch_size=BATCH, epochs=3)
    run.model.save(tmp_path / "model.keras")
    run.model = keras.saving.load_model(tmp_path / "model.keras")
    assert run.model.epoch == 1.5
    assert run.fit(epochs=1)[0] == pytest.approx(kept(1.5))


def test_counting_by_oneself_and_by_set_epoch_is_refused():
    run = Run("attached", steps_per_epoch=5)
    with pytest.raises(ValueError, match=r"^set_epoch: must not be called if .* in steps"):
        run.sigua.set_epoch(1)
    with pytest.raises(ValueError, match=r"^steps_per_epoch: must be a whole number"):
        SIGUA(METHOD, steps_per_epoch=1.5)
    y_pred = run.model(X)
    with pytest.raises(ValueError, match=r"^steps_per_epoch: .*set_epoch\(step / steps_per_epoch"):
        run.model.compute_loss(X, keras.ops.convert_to_tensor(Y), y_pred)


def forgotten(run, **kwargs):
    """Return how often it was asked whether the epoch was forgotten."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", UserWarning)
        run(**kwargs)
    return len([w for w in seen if "still at epoch 0" in str(w.message)])


@pytest.mark.parametrize("way", ["callback", "attached", "model"])
def test_whoever_stays_at_epoch_0_is_asked_once(way, monkeypatch):
    """After 1,000 steps (here 12), in one epoch of a fit, or where nobody says an epoch."""
    monkeypatch.setattr(_training, "FORGOTTEN_AFTER", 12)
    run = Run(way)
    assert forgotten(run.fit, batch_size=2, epochs=1) == 1
    assert way == "attached" or forgotten(Run(way).fit, batch_size=2, epochs=2) == 0
    if way == "attached":
        assert forgotten(run.fit, batch_size=2, epochs=3) == 0
    other = Run(way)
    if way != "callback":
        other.sigua.set_epoch(0)  # does not disarm it
    assert forgotten(other.fit, batch_size=2, epochs=1) == 1
    for kind, kwargs in (("constant", {}), ("counted", {"steps_per_epoch": 100})):
        method = METHOD if kind == "counted" else sigua.self_teaching(0.5, warmup=0)
        other = Run(way, method, **kwargs)
        assert forgotten(other.fit, batch_size=2, epochs=1) == 0


def test_new_callbacks_in_a_loop_are_asked(monkeypatch):
    """Each begins at epoch 0, with six steps of the twelve; and so does a loop of one's own."""
    monkeypatch.setattr(_training, "FORGOTTEN_AFTER", 12)
    model = network()

    def fits(count):
        for _ in range(count):
            run = Run("callback", model=model)
            run.fit(X[:12], Y[:12], batch_size=2, epochs=1)

    assert forgotten(fits, count=1) == 0
    assert forgotten(fits, count=1) == 1
    run = Run("attached")
    steps = lambda: [run.model.train_on_batch(X, Y) for _ in range(12)]  # noqa: E731
    assert forgotten(steps) == 1
