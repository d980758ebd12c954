"""What would train wrongly without a word is refused, before the model is touched, or warned of."""

import warnings
from typing import get_args

import keras
import numpy as np
import pytest

import sigua
from sigua._method import Correction
from sigua_keras import SIGUA, SIGUALoss, SIGUAModel
from sigua_keras._correct import CORRECTIONS

# Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

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


def test_a_negative_weight_is_refused_where_it_can_be_read():
    """`SIGUALoss` outside a trace names the first one, in an array or a list."""
    y, p = np.zeros(4, "int64"), np.full((4, 3), 1 / 3, "float32")
    for weight in (np.array([1.0, -2.0, 1.0, 1.0]), [1.0, -2.0, 1.0, 1.0]):
        with pytest.raises(ValueError, match=r"^sample_weight: must not be negative.*got -2;"):
            SIGUALoss(sigua.standard())(y, p, weight)


def test_booleans_are_no_marks(data):
    """For Known, a bool sample weight is refused with the line that is right, in `fit`, too."""
    marks = np.arange(N) % 2 == 0
    with pytest.raises(ValueError, match=r"^sample_weight: .*np\.where\(trusted, 1\.0, -1\.0\)"):
        SIGUALoss(KNOWN)(data[1], np.full((N, 3), 1 / 3, "float32"), marks)
    with pytest.raises(ValueError, match=r"^sample_weight: .*np\.where\(trusted, 1\.0, -1\.0\)"):
        compiled(functional()).fit(*data, sample_weight=marks, verbose=0, callbacks=[SIGUA(KNOWN)])


@pytest.mark.parametrize("make", [two_heads, named_heads])
def test_other_outputs_see_no_signs(make, data):
    """With marks for one head, the other one trains as with their magnitudes and no SIGUA."""
    x, y = data
    signs = np.where(np.arange(N) % 4 == 0, -2.0, 1.0)
    labels = {"a": y, "b": y} if make is named_heads else [y, y]
    marked, plain = make(), make()
    plain.set_weights(marked.get_weights())
    for model, weight, callbacks in (
        (marked, signs, [SIGUA(KNOWN, output="a")]),
        (plain, abs(signs), []),
    ):
        weights = {"a": weight, "b": weight} if make is named_heads else weight
        model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
        model.fit(x, labels, sample_weight=weights, batch_size=N, verbose=0, callbacks=callbacks)
    for name, same in (("a", False), ("b", True)):
        ours, theirs = (
            keras.ops.convert_to_numpy(m.get_layer(name).kernel) for m in (marked, plain)
        )
        assert np.allclose(ours, theirs, rtol=0, atol=1e-6) is same


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
    assert "compute_loss" not in vars(first)
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


def test_siguas_own_loss_is_not_weighed_again(data):
    """A compiled SIGUALoss and the callback are one too many."""
    model = compiled(functional(), SIGUALoss(sigua.standard()))
    with pytest.raises(ValueError, match=r"^loss: .*got a SIGUALoss;"):
        model.fit(*data, verbose=0, callbacks=[SIGUA(METHOD)])


class Between:
    """A rule of a user's own, which does not say that it never changes."""

    def at(self, epoch):
        return (0.5,)

    def split(self, batch, low):
        return sigua.Split(batch.losses <= low, batch.losses > low)


class Constant(Between):
    horizon = 0


def test_a_loss_says_how_a_rule_of_ones_own_is_constant():
    """The sentence names `horizon = 0`, which helps."""
    with pytest.raises(ValueError, match=r"^method: .*horizon = 0 on the condition"):
        SIGUALoss(sigua.custom(Between()))
    SIGUALoss(sigua.custom(Constant()))


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
    y, p = data[1], np.full((N, 3), 1 / 3, "float32")
    signs = np.where(np.arange(N) % 4 == 0, -1.0, 1.0)
    marked = SIGUALoss(sigua.custom(ReadsMarks(), gamma=0.5))(y, p, signs)
    assert float(marked) == pytest.approx(np.log(3) * (0.75 - 0.5 * 0.25), rel=1e-5)
    method = sigua.custom(ReadsNothing(), gamma=0.5)
    with pytest.raises(ValueError, match=r"^sample_weight: must not be negative"):
        SIGUALoss(method)(y, p, signs)
    history = compiled(functional()).fit(
        *data, sample_weight=signs, batch_size=N, verbose=0, callbacks=[SIGUA(method)]
    )
    assert np.isnan(history.history["loss"][0])


@pytest.mark.parametrize("per_class", [False, True])
def test_a_rule_that_asks_for_class_sums_is_told_who_has_them(per_class, data):
    """In one sentence, in the first step."""
    callback = SIGUA(sigua.custom(AsksForSums()), per_class=per_class)
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


@pytest.mark.parametrize("make", [functional, sequential])
def test_a_computed_floor_is_refused_for_another_loss_than_cross_entropy(make, data):
    """Before training where the loss is compiled, and without a change to the model."""
    smooth = keras.losses.CategoricalCrossentropy(label_smoothing=0.1)
    x, labels = data
    for loss in (smooth, "mse"):
        model = compiled(make(), loss)
        before = model.get_weights()
        with pytest.raises(ValueError, match=r"loss: must be plain cross-entropy, .* sigua_nf"):
            model.fit(x, np.eye(3)[labels], callbacks=[SIGUA(sigua.sigua_nf(0.5, 3))], verbose=0)
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("loss", ["crossentropy", "mse"])
def test_a_floor_of_ones_own_serves_any_loss(loss, data):
    """Training goes on; a mean of 0 cannot be below 0, so that everybody is good."""
    x, labels = data
    model = compiled(functional(), loss)
    method = sigua.custom(sigua.NoiseFloor(0.0), gamma=1.0)
    logs = model.fit(x, np.eye(3)[labels], callbacks=[SIGUA(method)], verbose=0).history
    assert logs["sigua_good"] == [1.0]


def test_every_correction_of_the_core_has_a_class_here():
    assert tuple(CORRECTIONS) == get_args(Correction)
