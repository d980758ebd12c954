"""What cannot be trained is refused in a sentence, before a weight changes."""

import keras
import numpy as np
import pytest
from keras_shift import is_plain

import sigua
from sigua_keras import SIGUA, SIGUAModel

X = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")
Y = np.arange(8) % 3
ROWS = np.eye(3, dtype="float32")[Y]
CE = keras.losses.SparseCategoricalCrossentropy()
SL = sigua.sigua_sl(0.5, delta=0.25, gamma=0.25, warmup=0)
AG = sigua.sigua_ag(warmup=0)
KNOWN = sigua.custom(sigua.Known(), gamma=0.25)
BC = sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.3, 3), gamma=0.5)
OTHER_SIZE = sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.3, 5))


def one(units=3, kind=keras.Model):
    inputs = keras.Input((5,))
    return kind(inputs, keras.layers.Dense(units, "sigmoid" if units == 1 else "softmax")(inputs))


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


def case(match, method=SL, model=one, loss=CE, y=Y, weight=None, given=None, **options):
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
    case(OF_CLASSES + r"mean_absolute_error for .*, 1\)", AG, lambda: one(1), "mae", Y > 0),
    case(r"loss: must be .* last axis of 1", AG, loss="binary_crossentropy", y=ROWS),
    case(OF_CLASSES + "categorical_hinge", AG, loss=keras.losses.CategoricalHinge(), y=ROWS),
    case(r"loss: must say by an attribute from_logits .*of_first", AG, loss=of_first),
    case(r"T: must have one class per example", BC, loss="binary_crossentropy", y=ROWS),
    case(r"groups: must have one class", loss="binary_crossentropy", y=ROWS, groups="class"),
    case(r"groups: must come with a loss per time step", groups="image"),
    case(r"compute_loss: must call super\(\)\.compute_loss", model=lambda: one(kind=OwnTotal)),
    case(r"compute_loss: must call super", AG, model=lambda: one(kind=OwnTotal)),
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


def test_an_error_while_attached_leaves_the_model_whole():
    model = one()
    model.compile("sgd", failing)
    callback = SIGUA(SL)
    callback.attach(model)
    with pytest.raises(OwnError):
        model.fit(X, Y, verbose=0)
    callback.detach()
    assert is_plain(model)
    model.compile("sgd", CE)
    assert model.fit(X, Y, verbose=0).history.keys() == {"loss"}
