"""What would train wrongly without a word is refused, before the model is touched, or warned of."""

import keras
import numpy as np
import pytest

import sigua
from sigua_keras import SIGUA, SIGUAModel

METHOD = sigua.sigua_sl(noise_rate=0.5, delta=0.25, gamma=0.25, warmup=0)
KNOWN = sigua.custom(sigua.Known(), gamma=0.25)
N = 16


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 4)).astype("float32"), rng.integers(0, 3, N)


def compiled(model, loss="sparse_categorical_crossentropy"):
    model.compile(keras.optimizers.SGD(0.1), loss)
    return model


def functional():
    inputs = keras.Input((4,))
    return keras.Model(inputs, keras.layers.Dense(3, "softmax")(inputs))


def test_attach_keeps_to_one_model(data):
    """A second model is refused while the first is attached, which can still be detached."""
    first, second = compiled(functional()), compiled(functional())
    callback = SIGUA(METHOD)
    callback.attach(first)
    with pytest.raises(ValueError, match=r"^SIGUA: .*one model at a time.*detach\(\) first"):
        callback.attach(second)
    with pytest.raises(ValueError, match=r"^SIGUA: .*one model at a time"):
        second.fit(*data, verbose=0, callbacks=[callback])
    with pytest.raises(ValueError, match=r"^model: must have one SIGUA"):
        callback.attach(first)
    callback.detach()
    assert type(first) is first.__class__
    callback.attach(second)


def test_arguments_of_the_wrong_kind_are_refused():
    """No parts of a method, no model, no index: each in one sentence, at construction."""
    with pytest.raises(ValueError, match=r"^method: must be a method of sigua"):
        SIGUA(sigua.Method())
    for model in (None, "model", SIGUAModel(functional(), METHOD)):
        with pytest.raises(ValueError, match=r"^model: must be a plain model of Keras"):
            SIGUAModel(model, METHOD)
    for model in (None, "model", keras.Model):
        with pytest.raises(ValueError, match=r"^model: must be a model of Keras, got "):
            SIGUA(METHOD).attach(model)


class ReadsMarks:
    """A rule of a user's own."""

    reads = ("trusted",)

    def at(self, epoch):
        return ()

    def split(self, batch):
        return sigua.Split(batch.trusted, ~batch.trusted)


def test_a_rule_says_whether_it_reads_the_signs(data):
    """Read, minus is bad; not read, the loss is NaN, because a compiled step cannot refuse it."""
    signs = np.where(np.arange(N) % 4 == 0, -1.0, 1.0)
    options = {"sample_weight": signs, "batch_size": N, "verbose": 0}
    for method, good in ((sigua.custom(ReadsMarks(), gamma=0.5), 0.75), (METHOD, None)):
        callback = SIGUA(method)
        logs = compiled(functional()).fit(*data, **options, callbacks=[callback]).history
        assert np.isnan(logs["loss"][0]) == (good is None)
        assert good is None or logs["sigua_good"] == [good]


@pytest.mark.parametrize("wrap", [False, True], ids=["callback", "model"])
def test_an_idle_selection_is_warned_of_once(wrap, data):
    """In mini-batches of 2, floor(2 * 0.9) + 1 are good: all; in those of 16, 15 are."""
    method = sigua.sigua_sl(noise_rate=0.1, delta=0.05, warmup=1)

    def fit(batch_size):
        model = functional()
        model = compiled(SIGUAModel(model, method) if wrap else model)
        callbacks = [] if wrap else [SIGUA(method)]
        model.fit(*data, batch_size=batch_size, epochs=3, verbose=0, callbacks=callbacks)

    with pytest.warns(UserWarning, match="epoch 1: no example was ever dropped") as seen:
        fit(2)
    assert len([w for w in seen if "ever" in str(w.message)]) == 1
    fit(16)  # a warning would be an error


@pytest.mark.parametrize(
    "make", [SIGUA, lambda *args, **kw: SIGUAModel(keras.Model(), *args, **kw)]
)
def test_what_does_not_fit_is_refused(make):
    """At construction, in a sentence."""
    with pytest.raises(ValueError, match=r"^groups: must be one of 'class', 'image', got 'row'"):
        make(METHOD, groups="row")
    with pytest.raises(ValueError, match=r"^groups: must be left out, for Agreement"):
        make(sigua.sigua_ag(), groups="class")
    with pytest.raises(ValueError, match=r"loss identifier: ce2"):
        make(METHOD, loss="ce2")
