"""Agreement in Keras: margins, the class confidence and its life from fit to fit."""

import keras
import numpy as np
import pytest
from contract import Memory
from keras_shift import EPS, Shift, in_precision

import sigua
from sigua import reference
from sigua.confidence import moved, rates
from sigua_keras import SIGUA, SIGUAModel

BACKEND = keras.config.backend()
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
N, K = 24, 4
T = sigua.TransitionMatrix([[0.5, 0.5, 0, 0], [0, 0.6, 0.4, 0], [0, 0, 1, 0], [0.3, 0, 0, 0.7]])


def shifted(units, method=None, **kwargs):
    """Return a model, with a method a SIGUAModel, that predicts its inputs and learns nothing."""
    model = keras.Sequential([keras.Input((units,)), Shift((units,))])
    model = SIGUAModel(model, method, **kwargs) if method else model
    model.compile(keras.optimizers.SGD(0.0), SPARSE)
    return model


def seen(model):
    """Return the class confidence, (2, k), as it is saved."""
    store = {}
    model.save_own_variables(store)
    return store["sigua_confidence"]


@pytest.fixture
def batches():
    """Logits and labels of six mini-batches, where class 0 is predicted with more confidence."""
    rng = np.random.default_rng(3)
    logits = rng.normal(scale=2, size=(6, N, K)).astype("float32")
    logits[..., 0] += 1.5
    return [(each, rng.choice(K, N, p=[0.2, 0.3, 0.3, 0.2])) for each in logits]


METHODS = [
    sigua.sigua_ag(gamma=0.25),
    sigua.sigua_ag(gamma=0.25, power=0.5),
    sigua.sigua_ag(gamma=0.25, warmup=0, threshold=-0.3),
    sigua.custom(sigua.Agreement(), 0.25, "backward", T),
]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_steps_equal_the_references(method, batches):
    """Over six steps the masks are its own, the gradient within eps, the state to a rounding."""
    layer = Shift((N, K))
    model = SIGUAModel(keras.Sequential([keras.Input((K,), batch_size=N), layer]), method)
    model.compile(keras.optimizers.SGD(1.0), SPARSE)
    memory, differs = Memory(K), False
    scale = 1 if method.T is None else np.abs(method.T.inverse).max()
    for epoch, (logits, labels) in zip((0, 2, 5, 9, 10, 30), batches, strict=True):
        model.set_epoch(epoch)
        layer.shift.assign(np.zeros((N, K)))
        logs = model.train_on_batch(logits, labels, return_dict=True)
        gradient = -np.array(layer.shift, dtype="float64")
        wanted = reference.step(method, logits, labels, epoch, **memory.given())
        np.testing.assert_allclose(gradient, wanted.gradient, rtol=0, atol=16 * EPS / N * scale)
        assert float(logs["sigua_good"]) == pytest.approx(wanted.split.good.mean(), rel=1e-6)
        assert float(logs["sigua_bad"]) == pytest.approx(wanted.split.bad.mean(), rel=1e-6)
        plain = reference.step(method, logits, labels, epoch).split
        differs |= (plain.bad != wanted.split.bad).any()
        memory.add(logits, labels)
    assert differs  # c decides here: a state that stays empty would be seen
    np.testing.assert_allclose(seen(model), memory.state(method), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:.*labels were not a class:UserWarning")
@pytest.mark.parametrize("how", ["weight", "ignored", "-1", "k", "row of zeros", "mask"])
def test_who_takes_no_part_is_not_counted(how, batches):
    """Out of shares and class confidence, whichever way it is said."""
    (logits, labels), loss, options = batches[0], SPARSE, {}
    out, before = np.arange(N) % 3 == 0, []
    rest = logits[~out], labels[~out]
    if how == "weight":
        options["sample_weight"] = 3.0 * ~out
    elif how == "ignored":
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    elif how == "mask":
        before, logits = [keras.layers.Masking(9.0)], np.where(out[:, None], np.float32(9), logits)
    elif how == "row of zeros":
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        labels = np.eye(K, dtype="float32")[labels] * ~out[:, None]
    if how in ("ignored", "-1", "k"):
        loss, none = (own, K) if how == "k" else (loss, -1)
        labels = np.where(out, none, labels)
    method = sigua.sigua_ag(warmup=0)
    model = SIGUAModel(keras.Sequential([keras.Input((K,)), *before, Shift((K,))]), method)
    model.compile(keras.optimizers.SGD(0.0), loss)
    logs = model.train_on_batch(logits, labels, return_dict=True, **options)
    wanted = reference.step(method, *rest).split.bad.mean()
    assert float(logs["sigua_bad"]) == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_allclose(seen(model), reference.confidence_sums(*rest), rtol=1e-5)


def own(y_true, y_pred):
    """A cross-entropy that is none of Keras's."""
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


own.from_logits = True


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_counts_in_float32(policy):
    """A thousand examples of one class are counted as in float64, whatever the model computes."""
    with in_precision(policy):
        model = shifted(2, sigua.sigua_ag())
    logits, labels = np.tile(np.log([[0.75, 0.25]]), (8, 1)).astype("float32"), np.zeros(8, int)
    state = np.zeros((2, 2))
    for _ in range(125):
        model.train_on_batch(logits, labels)
        state = moved(state, np.array([[6.0, 0.0], [8.0, 0.0]]))
    np.testing.assert_allclose(seen(model)[1], state[1], rtol=1e-5)
    np.testing.assert_allclose(seen(model)[0], state[0], rtol=0.01)  # half precision's logits


def expected_bad(fits, method, logits, labels, size):
    """Return each epoch's share of bad, with mini-batches in order and a model that stays."""
    found, state = [], np.zeros((2, K))
    for epochs in fits:
        for epoch in epochs:
            state = np.zeros((2, K)) if epoch == 0 else state
            count = 0
            for start in range(0, len(labels), size):
                part = logits[start : start + size], labels[start : start + size]
                done = reference.step(method, *part, epoch, confidence=rates(state))
                count += done.split.bad.sum()
                state = moved(state, reference.confidence_sums(*part))
            found.append(count / len(labels))
    return found


@pytest.mark.parametrize("by", ["callback", "model"])
def test_from_fit_to_fit(by, batches):
    """The class confidence goes on where the epochs go on, and is empty where epoch 0 begins.

    Mini-batches of 13, 13, 13 and 1; each fit is compiled anew. Validation leaves no trace.
    """
    method = sigua.sigua_ag(warmup=4)
    logits, labels = np.concatenate([x for x, _ in batches])[:40], np.zeros(40, int)
    labels[:] = np.concatenate([y for _, y in batches])[:40]
    fits = [(0, range(3)), (3, range(3, 6)), (0, range(6, 8)), (4, range(4, 5))]
    options = {"batch_size": 13, "shuffle": False, "verbose": 0, "validation_data": batches[0]}
    model = shifted(K, method if by == "model" else None)
    if by == "callback":
        options["callbacks"] = [SIGUA(method)]

    def fit(logits, initial, count):
        span = {"initial_epoch": initial, "epochs": initial + count}
        history = model.fit(logits, labels, **span, **options).history
        model.compile(keras.optimizers.SGD(0.0), SPARSE)
        return history["sigua_bad"]

    found = [fit(logits, initial, len(epochs)) for initial, epochs in fits]
    followed = [epochs for _, epochs in fits]
    wanted = expected_bad(followed, method, logits, labels, 13)
    np.testing.assert_allclose(np.concatenate(found), wanted, rtol=1e-6)
    for epochs, shares in zip(followed[2:], found[2:], strict=True):  # a state that matters
        assert shares[0] != pytest.approx(expected_bad([epochs], method, logits, labels, 13)[0])

    if by == "model":
        model.set_epoch(0)
    else:
        options["callbacks"] = [SIGUA(method)]
    logits = logits[:, ::-1].copy()  # which what was seen before does not fit
    wanted = expected_bad([range(4)], method, logits, labels, 13)
    np.testing.assert_allclose(fit(logits, 0, 4), wanted, rtol=1e-6)


def test_attach_begins_with_nothing_seen(batches):
    """In a loop of one's own the state goes on until `detach`, and `attach` begins anew."""
    method, (logits, labels) = sigua.sigua_ag(warmup=0), batches[0]
    model, callback = shifted(K), SIGUA(method)
    wanted = expected_bad([range(2)], method, logits, labels, N)
    for _ in range(2):
        callback.attach(model)
        for epoch in range(2):
            callback.set_epoch(epoch)
            logs = model.train_on_batch(logits, labels, return_dict=True)
            assert float(logs["sigua_bad"]) == pytest.approx(wanted[epoch], rel=1e-6)
        callback.detach()


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_the_model_is_saved_with_what_it_saw(batches, tmp_path, power):
    """A file holds the class confidence, of a model and of its weights alone."""
    method, memory = sigua.sigua_ag(power=power), Memory(K)
    model = shifted(K, method)
    for logits, labels in batches:
        model.train_on_batch(logits, labels)
        memory.add(logits, labels)
    state = seen(model)
    assert state.sum() > N
    model.save(str(tmp_path / "model.keras"))
    loaded = keras.models.load_model(str(tmp_path / "model.keras"))
    np.testing.assert_array_equal(seen(loaded), state)
    other = shifted(K, method)
    other.train_on_batch(*batches[0])
    model.set_epoch(3)
    model.save_weights(str(tmp_path / "model.weights.h5"))
    other.load_weights(str(tmp_path / "model.weights.h5"))
    assert other.epoch == 3
    np.testing.assert_array_equal(seen(other), state)
    for each in (loaded, other):
        each.train_on_batch(*batches[0])
    memory.add(*batches[0])
    for each in (loaded, other):
        np.testing.assert_allclose(seen(each), memory.state(method), rtol=1e-5)


def test_each_output_has_its_own_class_confidence(batches):
    """Two heads, two methods: each follows the reference on its own predictions and labels."""
    (one, a), (two, b) = batches[:2]
    methods = [sigua.sigua_ag(warmup=2), sigua.sigua_ag(warmup=3, threshold=-0.2)]
    x = keras.Input((2 * K,))
    heads = {"a": Shift((K,), name="a")(x[:, :K]), "b": Shift((K,), name="b")(x[:, K:])}
    model = keras.Model(x, heads)
    model.compile(keras.optimizers.SGD(0.0), {"a": SPARSE, "b": SPARSE})
    callbacks = [SIGUA(method, output=name) for name, method in zip("ab", methods, strict=True)]
    options = {"batch_size": 13, "shuffle": False, "verbose": 0, "callbacks": callbacks}
    found = {"a": [], "b": []}
    for initial in (0, 2):
        given = np.concatenate([one, two], axis=1), {"a": a, "b": b}
        history = model.fit(*given, initial_epoch=initial, epochs=initial + 2, **options).history
        for name, shares in found.items():
            shares += history[f"{name}_sigua_bad"]
    for name, method, logits, labels in zip("ab", methods, (one, two), (a, b), strict=True):
        wanted = expected_bad([range(4)], method, logits, labels, 13)
        np.testing.assert_allclose(found[name], wanted, rtol=1e-6)


def test_a_prediction_of_nan_is_never_good_and_leaves_no_trace(batches):
    """NaN is neither good nor bad, makes the loss NaN, and is not in the class confidence."""
    logits, labels = batches[0]
    logits[3] = np.nan
    model = shifted(K, sigua.sigua_ag(warmup=0))
    logs = model.train_on_batch(logits, labels, return_dict=True)
    assert np.isnan(float(logs["loss"]))
    good, bad = float(logs["sigua_good"]), float(logs["sigua_bad"])
    assert good + bad == pytest.approx(1 - 1 / N, rel=1e-6)
    rest = np.delete(logits, 3, axis=0), np.delete(labels, 3)
    np.testing.assert_allclose(seen(model), reference.confidence_sums(*rest), rtol=1e-5)


@pytest.mark.parametrize("by", ["callback", "model"])
def test_epochs_counted_in_steps_keep_what_was_seen(by, batches):
    """With `steps_per_epoch` only the first step of all begins with an empty class confidence."""
    method, (logits, labels) = sigua.sigua_ag(warmup=2), batches[0]
    model = shifted(K, method, steps_per_epoch=2) if by == "model" else shifted(K)
    callbacks = [] if by == "model" else [SIGUA(method, steps_per_epoch=2)]
    found = []
    for _ in range(4):  # a step each
        options = {"batch_size": N, "verbose": 0, "callbacks": callbacks}
        found += model.fit(logits, labels, **options).history["sigua_bad"]
    epochs = [0, 0.5, 1, 1.5]
    wanted = expected_bad([epochs], method, logits, labels, N)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert wanted[1:] != expected_bad([[e] for e in epochs[1:]], method, logits, labels, N)


@pytest.mark.parametrize("when", ["on_epoch_end", "on_train_batch_end"])
def test_an_interrupted_fit_is_resumed_with_what_it_saw(when, batches):
    """The same callback goes on after a KeyboardInterrupt, between epochs or within one."""
    method, (logits, labels) = sigua.sigua_ag(warmup=0), batches[0]

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    stop = keras.callbacks.LambdaCallback(**{when: interrupt})
    model, callback = shifted(K), SIGUA(method)
    with pytest.raises(KeyboardInterrupt):
        model.fit(logits, labels, batch_size=N, verbose=0, callbacks=[callback, stop])
    found = model.fit(
        logits, labels, batch_size=N, initial_epoch=1, epochs=2, verbose=0, callbacks=[callback]
    ).history["sigua_bad"]
    wanted = expected_bad([range(2)], method, logits, labels, N)
    assert found == pytest.approx(wanted[1:], rel=1e-6)
    assert wanted[0] != wanted[1]
