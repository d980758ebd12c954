"""What cannot be trained, or would be wrongly, is refused in a sentence before a weight changes."""

import keras
import numpy as np
import pytest
from keras_shift import SL, is_plain, network

import sigua
from sigua_keras import SIGUA, SIGUAModel

X = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")
Y = np.arange(8) % 3
ROWS = np.eye(3, dtype="float32")[Y]
CE = keras.losses.SparseCategoricalCrossentropy()
AG = sigua.sigua_ag(warmup=0)
KNOWN = sigua.custom(sigua.Known(), gamma=0.25)
BC = sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.3, 3), gamma=0.5)
OTHER_SIZE = sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.3, 5))


def two(form):
    inputs = keras.Input((5,))
    heads = {name: keras.layers.Dense(3, "softmax", name=name)(inputs) for name in "ab"}
    return keras.Model(inputs, heads if form is dict else list(heads.values()))


class Late(keras.Model):
    """A model of which nothing is known before its first step."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (keras.layers.Dense(3, "softmax") for _ in range(2))

    def call(self, inputs):
        return {"a": self.a(inputs), "b": self.b(inputs)}


def late():
    model = Late()
    model(X)
    return model


class OwnTotal(keras.Model):
    """Leaves the compiled loss out."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean(y_pred**2)


def of_first(y_true, y_pred):
    return y_pred[:, 0]


class OwnError(Exception):
    """What no library raises, such as PyTorch's RuntimeError for shapes."""


def failing(y_true, y_pred):
    raise OwnError("such as of shapes")


def case(match, method=SL, model=network, loss=CE, y=Y, weight=None, given=None, **options):
    if given:  # to SIGUA, and another one is compiled
        loss, options["loss"] = "crossentropy", given
    return match, method, model, loss, y, weight, options


def twice(y):
    return {"a": y, "b": y}


def head(match, form=dict, loss=CE, **options):
    model = late if form is None else (lambda: two(form))
    return case(match, model=model, loss=loss, y=[Y, Y] if form is list else twice(Y), **options)


SIZE = r"T: .*5 rows and predictions of 3"
NAMES = r"output: must be one of 'a', 'b', got "
NO_LOSS = r"loss: must be compiled.*, .*got None; try"
ENTRY = r"loss: must return one value per example, got shape \("
OF_CLASSES = r"loss: must be a cross-entropy .* got "
CASES = [
    case(SIZE, OTHER_SIZE),
    head(SIZE, None, method=OTHER_SIZE, output="a"),
    head(NAMES + "None;", list),
    head(NAMES + "'c';", list, output="c"),
    head(NAMES + "0;", dict, output=0),
    head(NAMES + "'c'", None, output="c"),
    case(r"sample_weight: .*got None;", KNOWN),
    case(r"sample_weight: .*np\.where\(trusted, 1\.0, -1\.0\)", KNOWN, weight=Y > 0),
    case(NO_LOSS, loss=None),
    case(NO_LOSS, loss=None, groups="class"),
    head(NO_LOSS, list, loss=[None, CE], output=0),
    case(
        r"loss: .*reduction='mean_with_sample_weight'",
        loss=CE.from_config(CE.get_config() | {"reduction": "mean_with_sample_weight"}),
    ),
    case(ENTRY, loss=lambda y_true, y_pred: keras.ops.mean(y_pred)),
    case(ENTRY, loss=keras.losses.Dice(), y=ROWS),
    case(r"y: must be one-hot rows or targets for mean_squared_error, got", given="mse"),
    case(r"y: must be one-hot .*, or 'sparse", given="categorical_crossentropy", y=Y[:, None]),
    case(r"y: must be integers for sparse_categorical_crossentropy, got", given=CE, y=ROWS),
    case(OF_CLASSES + "mean_squared_error", AG, loss="mse", y=ROWS),
    case(OF_CLASSES + r"mean_absolute_error for .*, 1\)", AG, lambda: network(1), "mae", Y > 0),
    case(r"loss: must be .* last axis of 1", AG, loss="binary_crossentropy", y=ROWS),
    case(OF_CLASSES + "categorical_hinge", AG, loss=keras.losses.CategoricalHinge(), y=ROWS),
    case(r"loss: must say by an attribute from_logits .*of_first", AG, loss=of_first),
    case(r"T: must have one class per example", BC, loss="binary_crossentropy", y=ROWS),
    case(r"groups: must have one class", loss="binary_crossentropy", y=ROWS, groups="class"),
    case(r"groups: must come with a loss per time step", groups="image"),
    case(r"compute_loss: must call super\(\)\.compute_loss", model=lambda: network(kind=OwnTotal)),
    case(r"compute_loss: must call super", AG, model=lambda: network(kind=OwnTotal)),
    case(r"such as of shapes", loss=failing),
]


@pytest.mark.parametrize(
    ("way", "case"),
    [*(("callback", case) for case in CASES), *(("model", case) for case in CASES[:8])],
    ids=lambda value: value if isinstance(value, str) else value[0][:40],
)
def test_a_refusal_costs_nothing(way, case):
    """On JAX, whose trainer holds the weights while it trains, as elsewhere; batches of 3 of 3."""
    match, method, make, loss, y, weight, options = case
    model = net = make()
    callbacks = [SIGUA(method, **options)]
    if way == "model":
        model, callbacks = SIGUAModel(net, method, **options), []
    model.compile(keras.optimizers.Adam(), loss)
    before = net.get_weights()
    with pytest.raises((ValueError, OwnError), match=f"^{match}"):
        model.fit(X, y, batch_size=3, sample_weight=weight, verbose=0, callbacks=callbacks)
    for one, other in zip(net.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)
    assert all(np.isfinite(np.array(v)).all() for v in model.optimizer.variables)
    assert way == "model" or is_plain(model)
    assert net.predict(X, verbose=0) is not None


def test_a_refusal_leaves_a_model_that_was_fitted_plain():
    """Agreement looks for its output before the first step on JAX."""
    model = two(list)
    model.compile("sgd", [CE, CE])
    model.fit(X, [Y, Y], verbose=0)
    with pytest.raises(ValueError, match=f"^{NAMES}None;"):
        model.fit(X, [Y, Y], verbose=0, callbacks=[SIGUA(AG)])
    assert is_plain(model)


def test_an_error_while_attached_leaves_the_model_whole():
    model = network()
    model.compile("sgd", failing)
    callback = SIGUA(SL)
    callback.attach(model)
    with pytest.raises(OwnError):
        model.fit(X, Y, verbose=0)
    callback.detach()
    assert is_plain(model)
    model.compile("sgd", CE)
    assert model.fit(X, Y, verbose=0).history.keys() == {"loss"}


def test_attach_keeps_to_one_model():
    """A second model is refused while the first is attached, which can still be detached."""
    first, second = network(), network()
    first.compile("sgd", CE), second.compile("sgd", CE)
    callback = SIGUA(SL)
    callback.attach(first)
    with pytest.raises(ValueError, match=r"^SIGUA: .*one model at a time.*detach\(\) first"):
        callback.attach(second)
    with pytest.raises(ValueError, match=r"^SIGUA: .*one model at a time"):
        second.fit(X, Y, verbose=0, callbacks=[callback])
    with pytest.raises(ValueError, match=r"^model: must have one SIGUA"):
        callback.attach(first)
    callback.detach()
    assert is_plain(first)
    callback.attach(second)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (sigua.Method(), {}, "^method: must be a method of sigua"),
        (SL, {"groups": "row"}, "^groups: must be one of 'class', 'image', got 'row'"),
        (AG, {"groups": "class"}, "^groups: must be left out, for Agreement"),
        (SL, {"loss": "ce2"}, "loss identifier: ce2"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(method, options, message):
    with pytest.raises(ValueError, match=message):
        SIGUA(method, **options)
    with pytest.raises(ValueError, match=message):
        SIGUAModel(keras.Model(), method, **options)


def test_what_is_no_plain_model_is_refused():
    for model in (None, "model", SIGUAModel(network(), SL)):
        with pytest.raises(ValueError, match=r"^model: must be a plain model of Keras"):
            SIGUAModel(model, SL)
    for model in (None, "model", keras.Model):
        with pytest.raises(ValueError, match=r"^model: must be a model of Keras, got "):
            SIGUA(SL).attach(model)


class ReadsMarks:
    """A rule of a user's own."""

    reads = ("trusted",)

    def at(self, epoch):
        return ()

    def split(self, batch):
        return sigua.Split(batch.trusted, ~batch.trusted)


@pytest.mark.parametrize(
    ("method", "good"), [(sigua.custom(ReadsMarks(), gamma=0.5), 0.75), (SL, None)]
)
def test_a_rule_says_whether_it_reads_the_signs(method, good):
    """Read, minus is bad; not read, the loss is NaN, because a compiled step cannot refuse it."""
    model, signs = network(), np.where(np.arange(8) % 4 == 0, -1.0, 1.0)
    model.compile("sgd", CE)
    logs = model.fit(X, Y, sample_weight=signs, verbose=0, callbacks=[SIGUA(method)]).history
    assert np.isnan(logs["loss"][0]) == (good is None)
    assert good is None or logs["sigua_good"] == [good]


@pytest.mark.parametrize("wrap", [False, True], ids=["callback", "model"])
def test_an_idle_selection_is_warned_of_once(wrap):
    """In mini-batches of 2, floor(2 * 0.9) + 1 are good: all; in those of 16, 15 are."""
    method = sigua.sigua_sl(noise_rate=0.1, delta=0.05, warmup=1)

    def fit(batch_size):
        model = SIGUAModel(network(), method) if wrap else network()
        model.compile("sgd", CE)
        options = {"epochs": 3, "verbose": 0, "callbacks": [] if wrap else [SIGUA(method)]}
        model.fit(np.concatenate([X, -X]), np.tile(Y, 2), batch_size, **options)

    with pytest.warns(UserWarning, match="epoch 1: no example was ever dropped") as seen:
        fit(2)
    assert len([w for w in seen if "ever" in str(w.message)]) == 1
    fit(16)  # a warning would be an error
