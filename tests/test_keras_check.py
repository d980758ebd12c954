"""What would train wrongly without a word is refused, before the model is touched, or warned of."""

import warnings

import keras
import numpy as np
import pytest

import sigua
from sigua_keras import SIGUA, SIGUAModel

METHOD = sigua.sigua_sl(noise_rate=0.5, delta=0.25, gamma=0.25, warmup=0)
KNOWN = sigua.custom(sigua.Known(), gamma=0.25)
OTHER_SIZE = sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.3, 5))
CE = "sparse_categorical_crossentropy"
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


def sequential():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "softmax")])


def two_heads():
    inputs = keras.Input((4,))
    heads = [keras.layers.Dense(3, "softmax", name=name)(inputs) for name in ("a", "b")]
    return keras.Model(inputs, heads)


def named_heads():
    model = two_heads()
    return keras.Model(model.input, dict(zip("ab", model.outputs, strict=True)))


SIGNLESS = [
    sigua.standard(),
    METHOD,
    sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.3, 3), gamma=0.5),
]


@pytest.mark.parametrize("method", SIGNLESS, ids=lambda m: type(m).__name__)
def test_a_negative_weight_is_nan_where_signs_are_not_read(method, data):
    """In a compiled step the loss is NaN, not climbed on."""
    weight = np.ones(N)
    weight[3] = -1
    history = compiled(functional()).fit(
        *data, sample_weight=weight, batch_size=N, verbose=0, callbacks=[SIGUA(method)]
    )
    assert np.isnan(history.history["loss"][0])


def test_booleans_are_no_marks(data):
    """For Known, a bool sample weight is refused with the line that is right, in `fit`, too."""
    marks = np.arange(N) % 2 == 0
    with pytest.raises(ValueError, match=r"^sample_weight: .*np\.where\(trusted, 1\.0, -1\.0\)"):
        compiled(functional()).fit(*data, sample_weight=marks, verbose=0, callbacks=[SIGUA(KNOWN)])


MISTAKES = [
    (functional, OTHER_SIZE, None, r"^T: .*5 rows and predictions of 3"),
    (sequential, OTHER_SIZE, None, r"^T: .*5 rows and predictions of 3"),
    (two_heads, METHOD, None, r"^output: must be one of 'a', 'b', got None;"),
    (two_heads, METHOD, "c", r"^output: must be one of 'a', 'b', got 'c';"),
    (named_heads, METHOD, 0, r"^output: must be one of 'a', 'b', got 0;"),
    (named_heads, METHOD, "z", r"^output: must be one of 'a', 'b', got 'z';"),
]


@pytest.mark.parametrize("wrap", [False, True], ids=["callback", "model"])
@pytest.mark.parametrize(("make", "method", "output", "match"), MISTAKES)
def test_a_mistake_does_not_cost_the_weights(make, method, output, match, wrap, data):
    """What a built model's outputs say is refused before the first step, on JAX as elsewhere."""
    x, y = data
    loss = dict.fromkeys("ab", CE) if make is named_heads else CE
    inner = compiled(make(), loss)
    before = inner.get_weights()
    model = compiled(SIGUAModel(inner, method, output), loss) if wrap else inner
    callbacks = [] if wrap else [SIGUA(method, output)]
    labels = {"a": y, "b": y} if make is named_heads else [y, y] if make is two_heads else y
    with pytest.raises(ValueError, match=match):
        model.fit(x, labels, verbose=0, callbacks=callbacks)
    for actual, expected in zip(inner.get_weights(), before, strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert inner.predict(x, verbose=0) is not None


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
    for output in (True, 1.0):
        with pytest.raises(ValueError, match=r"^output: must be the name or the index"):
            SIGUA(METHOD, output=output)
        with pytest.raises(ValueError, match=r"^output: must be the name or the index"):
            SIGUAModel(functional(), METHOD, output=output)


class Between:
    """A rule of a user's own, which does not say that it never changes."""

    def at(self, epoch):
        return (0.5,)

    def split(self, batch, low):
        return sigua.Split(batch.losses <= low, batch.losses > low)


class Constant(Between):
    horizon = 0


class ReadsNothing(Constant):
    reads = ()


class ReadsMarks(Constant):
    reads = ("trusted",)

    def split(self, batch, low):
        return sigua.Split(batch.trusted, ~batch.trusted)


class AsksForSums(Constant):
    def split(self, batch, low):
        return sigua.Split(batch.class_sums() >= low, batch.class_sums() < low)


def test_a_rule_says_whether_it_reads_the_signs(data):
    """Read, minus is bad; not read, minus is refused, or NaN in a compiled step, as for ours."""
    signs = np.where(np.arange(N) % 4 == 0, -1.0, 1.0)
    options = {"sample_weight": signs, "batch_size": N, "verbose": 0}
    for rule, good in ((ReadsMarks(), 0.75), (ReadsNothing(), None)):
        callback = SIGUA(sigua.custom(rule, gamma=0.5))
        logs = compiled(functional()).fit(*data, **options, callbacks=[callback]).history
        assert np.isnan(logs["loss"][0]) == (good is None)
        assert good is None or logs["sigua_good"] == [good]


@pytest.mark.parametrize("groups", [None, "class"])
def test_a_rule_that_asks_for_class_sums_is_told_who_has_them(groups, data):
    """In one sentence, in the first step."""
    callback = SIGUA(sigua.custom(AsksForSums()), groups=groups)
    with pytest.raises(ValueError, match=r"^class_sums: must come from backward correction"):
        compiled(functional()).fit(*data, verbose=0, callbacks=[callback])


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
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fit(16)


@pytest.mark.parametrize("loss", ["crossentropy", "mse"])
def test_a_floor_of_ones_own_serves_any_loss(loss, data):
    """Training goes on; a mean of 0 cannot be below 0, so that everybody is good."""
    x, labels = data
    model = compiled(functional(), loss)
    method = sigua.custom(sigua.NoiseFloor(0.0), gamma=1.0)
    logs = model.fit(x, np.eye(3)[labels], callbacks=[SIGUA(method)], verbose=0).history
    assert logs["sigua_good"] == [1.0]


@pytest.mark.parametrize(
    "make", [SIGUA, lambda *args, **kw: SIGUAModel(keras.Model(), *args, **kw)]
)
def test_what_does_not_fit_is_refused(make):
    """At construction, in a sentence; an argument that was names the new one."""
    with pytest.raises(
        ValueError, match=r"^groups: must be 'class', 'image' or a function .* 'row'"
    ):
        make(METHOD, groups="row")
    with pytest.raises(ValueError, match=r"^groups: must be left out, for Agreement"):
        make(sigua.sigua_ag(), groups="class")
    with pytest.raises(TypeError, match=r"^per_class: must be left out, .*try groups='class'"):
        make(METHOD, per_class=True)
    with pytest.raises(TypeError, match=r"^rank_by: must be left out, .*try sigua_keras\.select"):
        make(METHOD, rank_by="mse")
    with pytest.raises(ValueError, match=r"loss identifier: ce2"):
        make(METHOD, loss="ce2")
