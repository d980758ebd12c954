"""What a watched `fit` notes after each epoch is what a pass of one's own says."""

import keras
import numpy as np
import pytest
from keras_shift import in_precision

import sigua
from sigua_keras import SIGUA
from sigua_keras.diagnostics import LabelWatch


def data(size=96, classes=3):
    rng = np.random.default_rng(0)
    clean = np.arange(size) % classes
    x = (np.eye(classes)[clean] + 0.3 * rng.standard_normal((size, classes))).astype("float32")
    y = sigua.corrupt_labels(clean, sigua.TransitionMatrix.symmetric(0.4, classes), seed=1)
    return x, y, clean == y


def model(activation="softmax"):
    keras.utils.set_random_seed(0)
    net = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(3, activation)])
    logits = activation is None
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=logits)
    net.compile(keras.optimizers.Adam(0.01), loss)
    return net


@pytest.mark.parametrize("activation", ["softmax", None])
def test_the_last_epoch_is_what_a_pass_after_fit_says(activation):
    """With SIGUA in the callbacks, too; losses in float32 are exact to a few of its eps."""
    x, y, intact = data()
    net = model(activation)
    watch = LabelWatch(x, y, intact, from_logits=activation is None)
    method = sigua.self_teaching(0.4, warmup=1)
    history = net.fit(x, y, batch_size=32, epochs=3, callbacks=[SIGUA(method), watch], verbose=0)
    p = np.asarray(net.predict(x, verbose=0), dtype=np.float64)
    if activation is None:
        p = np.exp(p) / np.exp(p).sum(axis=1, keepdims=True)
    own = p[np.arange(len(y)), y]
    assert watch.losses.shape == watch.margins.shape == (3, len(y))
    np.testing.assert_allclose(watch.losses[-1], -np.log(own), rtol=0, atol=1e-5)
    np.testing.assert_allclose(watch.margins[-1], sigua.label_margins(p, y), rtol=0, atol=1e-5)
    right = p.argmax(axis=1) == y
    logged = {name: values[-1] for name, values in history.history.items()}
    assert logged["accuracy_given"] == right.mean()
    assert logged["accuracy_intact"] == right[intact].mean()
    assert logged["accuracy_flipped"] == right[~intact].mean()
    assert 0 < logged["sigua_good"] < 1
    assert not np.array_equal(watch.losses[0], watch.losses[1])


def test_suspects_are_found_and_training_with_a_watch_is_training_without_one():
    x, y, intact = data()
    watched, plain = model(), model()
    watch = LabelWatch(x, y)
    options = {"epochs": 12, "batch_size": 8, "shuffle": False, "verbose": 0}
    history = watched.fit(x, y, callbacks=[watch], **options)
    plain.fit(x, y, **options)
    for a, b in zip(watched.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)
    assert "accuracy_flipped" not in history.history
    issues = sigua.rank_label_issues(margins=watch.margins, noise_rate=(~intact).mean())
    assert (~intact)[issues.suspects].mean() > 0.8


def test_the_selection_is_judged_by_whose_label_is_right():
    """By counting, over the batches of 32, what the rule's order statistic keeps of the losses."""
    x, y, intact = data()
    method = sigua.sigua_sl(0.5, delta=0.25, warmup=0)
    watch = LabelWatch(x, y, intact, method=method)
    history = model().fit(x, y, epochs=2, callbacks=[watch], verbose=0)
    ranks = watch.losses[-1].reshape(3, 32).argsort(axis=1).argsort(axis=1)
    good, bad = (ranks <= 16).ravel(), ((ranks > 16) & (ranks <= 24)).ravel()
    want = {
        "good_precision": (good & intact).sum() / good.sum(),
        "good_recall": (good & intact).sum() / intact.sum(),
        "bad_precision": (bad & ~intact).sum() / bad.sum(),
        "bad_recall": (bad & ~intact).sum() / (~intact).sum(),
    }
    assert {name: history.history[name][-1] for name in want} == pytest.approx(want, rel=1e-12)
    with pytest.raises(ValueError, match=r"^intact: must be given with method"):
        LabelWatch(x, y, method=method)


@pytest.mark.parametrize("activation", ["softmax", None])
def test_where_a_prediction_is_nan_losses_and_margins_are_nan(activation):
    """Of one example whose input is NaN, then of all, for weights of NaN; `fit` goes on.

    PyTorch's LabelHistory notes NaN, too.
    """
    x, y, intact = data()
    spoiled = x.copy()
    spoiled[5] = np.nan
    net = keras.Sequential([keras.layers.Dense(3, activation)])  # a relu may make 0 of NaN
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=activation is None)
    net.compile("sgd", loss)
    method = sigua.self_teaching(0.4, warmup=0)
    watch = LabelWatch(spoiled, y, intact, method=method, from_logits=activation is None)
    weights = lambda: [w * np.nan for w in net.get_weights()]  # noqa: E731
    spoil = lambda epoch, logs: epoch and net.set_weights(weights())  # noqa: E731
    diverge = keras.callbacks.LambdaCallback(on_epoch_begin=spoil)
    logs = net.fit(x, y, epochs=2, callbacks=[diverge, watch], verbose=0).history
    others = np.arange(len(y)) != 5
    for noted in (watch.losses, watch.margins):
        np.testing.assert_array_equal(np.isnan(noted), [~others, np.ones(len(y), bool)])
    group = "flipped" if intact[5] else "intact"  # of which all predictions are known
    for name in ("given", "intact", "flipped"):
        assert np.isnan(logs[f"accuracy_{name}"]).tolist() == [name != group, True]
    assert 0 < logs["good_recall"][0] < 1
    assert logs["good_recall"][1] == 0


class Feed(keras.utils.PyDataset):
    """Yields mini-batches of 32, with or without labels, and after `shuffle` in another order."""

    def __init__(self, steps=3, labels=True):
        super().__init__()
        self.steps, self.labels, self.order = steps, labels, np.arange(96)

    def __len__(self):
        return self.steps

    def __getitem__(self, index):
        x, y, _ = data()
        rows = self.order[32 * (index % 3) :][:32]
        return (x[rows], y[rows]) if self.labels else (x[rows],)

    def shuffle(self, *_):
        self.order = np.random.default_rng(0).permutation(96)


FEEDS = [
    (Feed(1), "have an entry for each of y, got 32 for 96"),
    (Feed(10**9), ""),
    (Feed(), "yield the examples in the order of y"),
    (Feed(labels=False), "yield the examples in the order of y"),
]


@pytest.mark.parametrize(
    ("feed", "match"), FEEDS, ids=["short", "endless", "shuffled", "no labels"]
)
def test_a_data_set_of_other_examples_is_refused(feed, match):
    """It does not say its length, or its order, before it is read."""
    x, y, _ = data()
    shuffle = keras.callbacks.LambdaCallback(on_epoch_end=feed.shuffle)
    callbacks = [shuffle, LabelWatch(feed, y)] if "yield" in match else [LabelWatch(feed, y)]
    with pytest.raises(ValueError, match=rf"^x: must {match}"):
        model().fit(x, y, epochs=2, callbacks=callbacks, verbose=0)


def test_what_cannot_be_watched_is_refused():
    x, y, intact = data()
    for arguments, match in (
        ((x, y[:, None]), r"^y: must be integers of shape \(n,\)"),
        ((x, y, intact[:5]), r"^intact: must have an entry for each of y"),
        ((x, y - 1), r"^y: must lie in \[0, inf\), got y\[\d+\] = -1; try numbering"),
        ((x[:0], y[:0]), r"^y: must have a label for each example, got none;"),
        ((x[:90], y), r"^x: must have an entry for each of y, got 90 for 96;"),
    ):
        with pytest.raises(ValueError, match=match):
            LabelWatch(*arguments)


def fit(net, watch, y, loss="sparse_categorical_crossentropy", epochs=1):
    """Return the epochs that began, and the logs or the error."""
    begun = []
    count = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: begun.append(epoch))
    net.compile("sgd", loss)
    try:
        return begun, net.fit(watch.x, y, epochs=epochs, callbacks=[count, watch], verbose=0)
    except ValueError as error:
        return begun, error


def heads(**outputs):
    inputs = keras.Input((3,), name="x")
    made = {name: keras.layers.Dense(k, "softmax", name=name) for name, k in outputs.items()}
    return keras.Model(inputs, {name: layer(inputs) for name, layer in made.items()})


KNOWN = sigua.custom(sigua.Known(), gamma=0.1)


def test_what_cannot_be_watched_is_refused_before_the_first_epoch():
    x, y, intact = data()
    both = {"a": y, "b": y}
    two = "sparse_categorical_crossentropy"
    wrong_size = sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.3, 5))
    for net, watch, labels, match in (
        (model(None), LabelWatch(x, y), y, "probabilities: must be rows of probabilities"),
        (model(), LabelWatch(x, y + 1), y, "y: must lie in [0, 3)"),
        (model(), LabelWatch(x, np.where(np.arange(96) == 95, 7, y)), y, "y: must lie in [0, 3)"),
        (heads(a=3, b=3), LabelWatch(x, y), both, "output: must be one of 'a', 'b'"),
        (model(), LabelWatch(x, y, intact, method=wrong_size), y, "T: must have a row per class"),
    ):
        begun, error = fit(net, watch, labels, two)
        assert begun == []
        assert str(error).startswith(match)
    with pytest.raises(ValueError, match=r"^method: must select by losses, got custom\(condition="):
        LabelWatch(x, y, intact, method=KNOWN)


def test_one_output_of_several_is_watched():
    x, y, _ = data()
    net = heads(a=4, b=3)
    watch = LabelWatch(x, y, output="b")
    fit(net, watch, {"a": y, "b": y})
    p = net.predict(x, verbose=0)["b"].astype("float64")
    np.testing.assert_allclose(watch.margins[-1], sigua.label_margins(p, y), rtol=0, atol=1e-5)


@pytest.mark.parametrize("activation", ["sigmoid", None])
def test_one_sigmoid_unit_is_two_classes(activation):
    x, y, _ = data()
    y = (y > 0).astype(int)
    net = keras.Sequential([keras.layers.Dense(1, activation)])
    watch = LabelWatch(x, y, from_logits=activation is None)
    loss = keras.losses.BinaryCrossentropy(from_logits=activation is None)
    _, history = fit(net, watch, y, loss)
    p = net.predict(x, verbose=0)[:, 0].astype("float64")
    p = 1 / (1 + np.exp(-p)) if activation is None else p
    of_label = np.where(y == 1, p, 1 - p)
    np.testing.assert_allclose(watch.losses[-1], -np.log(of_label), rtol=0, atol=1e-5)
    np.testing.assert_allclose(watch.margins[-1], 2 * of_label - 1, rtol=0, atol=1e-5)
    assert history.history["accuracy_given"][0] == (of_label > 0.5).mean()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_is_watched(policy):
    """Of 100 classes bfloat16's softmax sums to 0.99 to 1.01, which is divided out."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 8)).astype("float32"), rng.integers(0, 100, 64)
    with in_precision(policy):
        net = keras.Sequential([keras.layers.Dense(100, "softmax")])
        watch = LabelWatch(x, y)
        fit(net, watch, y)
    p = np.asarray(net.predict(x, verbose=0)).astype("float64")
    expected = -np.log(p[np.arange(64), y] / p.sum(axis=1))
    np.testing.assert_allclose(watch.losses[-1], expected, rtol=1e-5)


def test_one_watch_is_for_one_model():
    x, y, _ = data()
    watch = LabelWatch(x, y)
    fit(model(), watch, y)
    begun, error = fit(model(), watch, y)
    assert begun == []
    assert str(error).startswith("LabelWatch: must be used for one model, got a second one;")
    assert watch.margins.shape == (1, len(y))
