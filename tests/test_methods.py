"""The paper's methods by name: values that print, compare, pickle and go through JSON."""

import json
import math
import pickle
from dataclasses import FrozenInstanceError, fields
from fractions import Fraction

import numpy as np
import pytest

import sigua
from sigua import Knots, TransitionMatrix

PAIR = TransitionMatrix.pair(0.45, 10)
SYMMETRIC = TransitionMatrix.symmetric(0.5, 10)
FIRES = TransitionMatrix([[0.9, 0.1], [0.6, 0.4]])
RAMP = Knots([(0, 0.0), (10, 0.25)])

METHODS = [
    sigua.standard(),
    sigua.sigua_ag(),
    sigua.sigua_ag(warmup=2.5, gamma=RAMP, by_class=False, threshold=-0.15),
    sigua.custom(sigua.Agreement(0, threshold=0.1), 0.5, "forward", PAIR),
    sigua.self_teaching(0.5),
    sigua.self_teaching(0.45, warmup=0, variant="official"),
    sigua.sigua_sl(0.5, delta=0.15),
    sigua.sigua_sl(0.5, delta=RAMP, gamma=Knots([(5, 0.0), (6, 0.01)]), warmup=2.5),
    sigua.sigua_sl(0.2, 0.4, gamma=0, variant="official"),
    sigua.stop_grad(sigua.sigua_sl(0.5, delta=0.15)),
    sigua.backward_correction(PAIR),
    sigua.nn_backward_correction(SYMMETRIC),
    sigua.nn_backward_correction(FIRES, over="classes"),
    sigua.sigua_bc(SYMMETRIC, over="batch"),
    sigua.sigua_bc(FIRES, gamma=RAMP, over="classes"),
    sigua.forward_correction(FIRES),
    sigua.custom(sigua.NoiseFloor(sigua.noise_floor(0.5, 10)), 1.0),
    sigua.custom(sigua.NoiseFloor(RAMP), RAMP, "forward", SYMMETRIC),
    sigua.custom(sigua.NoiseFloor(1.5), gamma=1.0),
    sigua.custom(sigua.Known(), gamma=0.001),
    sigua.custom(sigua.AllGood(), correction="forward", T=PAIR),
    sigua.custom(sigua.SmallLoss(0.5, RAMP, 3, "official"), 0.1, "backward", PAIR, separate=True),
    sigua.custom(sigua.NonNegative("batch"), RAMP, "backward", SYMMETRIC),
]
every_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: repr(method)[:60])


@every_method
def test_a_method_evaluates_back_from_its_repr(method):
    again = eval(repr(method), vars(sigua))
    assert again == method
    assert type(again) is type(method)
    assert repr(again) == repr(method)


@every_method
def test_a_method_survives_pickle_and_json(method):
    """Before and after its condition was asked for, in JSON's numbers, strings and lists."""
    fresh = eval(repr(method), vars(sigua))
    data = json.loads(json.dumps(fresh.to_dict(), allow_nan=False))
    assert data["method"] == type(method).__name__
    for copy in (pickle.loads(pickle.dumps(fresh)), sigua.Method.from_dict(data)):
        assert copy == method
        assert hash(copy) == hash(method)
        assert copy.condition == method.condition
        assert [copy.at(t) for t in (0, 2.5, 99)] == [method.at(t) for t in (0, 2.5, 99)]
    used = pickle.loads(pickle.dumps(method))
    assert repr(used) == repr(method)
    assert used.to_dict() == method.to_dict()


def test_different_methods_are_unequal():
    for i, method in enumerate(METHODS):
        assert [method == other for other in METHODS] == [i == j for j in range(len(METHODS))]
    assert sigua.self_teaching(0.5) != sigua.SmallLoss(0.5)


@every_method
def test_a_method_is_frozen(method):
    for name in ["gamma", "new", *(field.name for field in fields(method))]:
        with pytest.raises(FrozenInstanceError):
            setattr(method, name, 0.5)


def test_a_method_prints_as_written():
    assert repr(sigua.sigua_sl(noise_rate=0.5, delta=0.15, gamma=0.01)) == (
        "sigua_sl(noise_rate=0.5, delta=0.15, gamma=0.01, warmup=10, variant='paper')"
    )
    assert repr(sigua.sigua_bc(SYMMETRIC)) == (
        "sigua_bc(T=TransitionMatrix.symmetric(0.5, 10), gamma=1.0, over='label')"
    )


@pytest.mark.parametrize("make", [sigua.sigua_sl, sigua.SmallLoss])
def test_numbers_from_numpy_and_fractions_print_and_store_as_plain_ones(make):
    made = make(np.float32(0.5), np.float64(0.25), warmup=np.int64(5))
    assert (
        repr(made) == repr(make(0.5, 0.25, warmup=5)) == repr(make(Fraction(1, 2), 0.25, warmup=5))
    )
    method = made if isinstance(made, sigua.Method) else sigua.custom(made)
    assert json.loads(json.dumps(method.to_dict())) == method.to_dict()


@pytest.mark.parametrize(
    ("method", "condition", "gamma", "correction", "separate"),
    [
        (sigua.standard(), sigua.AllGood(), 0, "none", False),
        (sigua.self_teaching(0.5, 3), sigua.SmallLoss(0.5, 0, 3), 0, "none", False),
        (sigua.sigua_sl(0.5, 0.1), sigua.SmallLoss(0.5, 0.1, 10), 0.01, "none", False),
        (
            sigua.sigua_sl(0.5, 0.1, variant="official"),
            sigua.SmallLoss(0.5, 0.1, variant="official"),
            0.01,
            "none",
            True,
        ),
        (sigua.backward_correction(PAIR), sigua.AllGood(), 0, "backward", False),
        (sigua.nn_backward_correction(PAIR), sigua.NonNegative("label"), 0, "backward", False),
        (sigua.sigua_bc(PAIR), sigua.NonNegative("label"), 1, "backward", False),
        (sigua.forward_correction(PAIR), sigua.AllGood(), 0, "forward", False),
    ],
)
def test_each_name_is_the_papers_combination_of_parts(
    method, condition, gamma, correction, separate
):
    assert isinstance(method, sigua.Method)
    assert method.condition == condition
    assert (method.gamma, method.correction, method.separate) == (gamma, correction, separate)
    assert method.T is (None if correction == "none" else PAIR)


def without_horizon(*numbers):
    """Return a condition of one's own that says nothing about its schedule."""

    class Own:
        def at(self, epoch):
            return numbers

        def split(self, batch, *numbers):
            return sigua.Split(batch.losses <= 1, batch.losses > 1)

    return Own()


INF = float("inf")


@pytest.mark.parametrize(
    ("method", "epoch"),
    [
        (sigua.standard(), 0),
        (sigua.self_teaching(0.5), 10),
        (sigua.self_teaching(0.5, warmup=0), 0),
        (sigua.self_teaching(0.0), 0),
        (sigua.sigua_sl(0.5, delta=0.1, warmup=2.5), 2.5),
        (sigua.sigua_sl(0.5, delta=RAMP, warmup=3), 10),
        (sigua.sigua_sl(0.5, delta=RAMP, gamma=Knots([(7, 0), (12, 1)])), 12),
        (sigua.sigua_sl(0.5, delta=lambda t: 0.1), INF),
        (sigua.sigua_bc(PAIR), 0),
        (sigua.sigua_bc(PAIR, gamma=RAMP), 10),
        (sigua.sigua_bc(PAIR, gamma=lambda t: 0.5), INF),
        (sigua.custom(sigua.Known(), gamma=0.5), 0),
        (sigua.custom(sigua.SmallLoss(0.5)), 10),
        (sigua.custom(without_horizon()), 0),
        (sigua.custom(without_horizon(0.5)), INF),
    ],
)
def test_a_method_knows_from_which_epoch_on_nothing_changes(method, epoch):
    assert method.horizon == epoch
    if 0 < epoch < INF:
        assert method.at(epoch) == method.at(epoch + 0.5) == method.at(1000)
        assert method.at(epoch) != method.at(epoch - 0.5)


def test_stop_grad_sets_gamma_to_zero_and_leaves_the_rest():
    method = sigua.sigua_sl(0.5, delta=RAMP, gamma=0.01, warmup=3)
    assert sigua.stop_grad(method) == sigua.sigua_sl(0.5, delta=RAMP, gamma=0.0, warmup=3)
    assert method.gamma == 0.01
    assert sigua.stop_grad(sigua.sigua_bc(PAIR)) == sigua.sigua_bc(PAIR, gamma=0.0)
    assert sigua.stop_grad(sigua.custom(sigua.Known(), 1)) == sigua.custom(sigua.Known(), 0)


@pytest.mark.parametrize(
    "method",
    [
        sigua.standard(),
        sigua.self_teaching(0.5),
        sigua.backward_correction(PAIR),
        sigua.nn_backward_correction(PAIR),
        sigua.forward_correction(PAIR),
    ],
)
def test_stop_grad_of_a_method_that_climbs_on_nobody_is_refused(method):
    with pytest.raises(ValueError, match=r"^method: must have a gamma, got .*; .* it climbs on"):
        sigua.stop_grad(method)


NOT_RATES = [1, 1.5, -0.01, float("nan"), float("inf"), "0.5", None, True, [0.5]]
NOT_SHARES = [1.01, -0.01, float("nan"), float("inf"), "0.5", None, True, [0.5]]
NOT_TIMES = [-1, float("nan"), float("inf"), "10", None, True]
NOT_MATRICES = [PAIR.rows.tolist(), PAIR.rows, None, 0.5]


@pytest.mark.parametrize(
    ("make", "bad", "message"),
    [
        (sigua.self_teaching, NOT_RATES, r"noise_rate: must be a number in \[0, 1\), got .*;"),
        (sigua.SmallLoss, NOT_RATES, r"noise_rate: must be a number in \[0, 1\), got .*;"),
        (
            lambda x: sigua.sigua_sl(x, 0.1),
            NOT_RATES,
            r"noise_rate: must be a number in \[0, 1\), ",
        ),
        (
            lambda x: sigua.sigua_sl(0.5, x),
            NOT_SHARES,
            r"delta: must be a number in \[0, 1\], got ",
        ),
        (
            lambda x: sigua.SmallLoss(0.5, x),
            NOT_SHARES,
            r"delta: must be a number in \[0, 1\], got",
        ),
        (
            lambda x: sigua.sigua_sl(0.5, 0.1, x),
            NOT_SHARES,
            r"gamma: must be a number in \[0, 1\],",
        ),
        (
            lambda x: sigua.sigua_bc(PAIR, x),
            NOT_SHARES,
            r"gamma: must be a number in \[0, 1\], got",
        ),
        (
            lambda x: sigua.custom(sigua.Known(), x),
            NOT_SHARES,
            r"gamma: must be a number in \[0, 1",
        ),
        (
            lambda x: sigua.self_teaching(0.5, x),
            NOT_TIMES,
            r"warmup: must be a number in \[0, inf\)",
        ),
        (
            lambda x: sigua.SmallLoss(0.5, warmup=x),
            NOT_TIMES,
            r"warmup: must be a number in \[0, inf",
        ),
        *(
            (make, NOT_MATRICES, "T: must be a TransitionMatrix, got a .*; try Trans")
            for make in (
                sigua.backward_correction,
                sigua.nn_backward_correction,
                sigua.sigua_bc,
                sigua.forward_correction,
                lambda T: sigua.custom(sigua.AllGood(), correction="forward", T=T),
            )
        ),
    ],
)
def test_an_argument_out_of_range_is_refused(make, bad, message):
    for value in bad:
        with pytest.raises(ValueError, match=f"^{message}"):
            make(value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sigua.sigua_bc(PAIR, over="x"), "over: .*'label', 'classes', 'batch', got 'x';"),
        (lambda: sigua.nn_backward_correction(PAIR, over=None), "over: .*'batch', got None;"),
        (lambda: sigua.NonNegative("sum"), "over: must be one of .*, got 'sum';"),
        (lambda: sigua.self_teaching(0.5, variant="x"), "variant: .*'paper', 'official', got 'x';"),
        (lambda: sigua.sigua_sl(0.5, 0.1, variant=1), "variant: must be one of .*, got 1;"),
        (lambda: sigua.custom(sigua.Known(), correction="x"), "correction: .*'forward', got 'x';"),
        (lambda: sigua.custom(sigua.NonNegative()), "condition: .*got correction='none'.*backward"),
        (
            lambda: sigua.custom(sigua.NonNegative(), 0.5, "forward", PAIR),
            "condition: .*backward-corrected loss.*got correction='forward'",
        ),
        (lambda: sigua.Method.from_dict({"method": "x"}), "method: must be one of .*got 'x';"),
        (lambda: sigua.Method.from_dict({}), "method: must be one of .*got None;"),
    ],
)
def test_an_unknown_word_or_combination_is_refused(make, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        make()


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (sigua.sigua_sl(0.5, delta=lambda t: 0.1), "delta"),
        (sigua.sigua_bc(PAIR, gamma=lambda t: 0.1), "gamma"),
        (sigua.custom(sigua.SmallLoss(0.5, delta=abs)), "delta"),
        (sigua.custom(without_horizon()), "condition"),
    ],
)
def test_functions_and_conditions_of_ones_own_are_no_data(method, name):
    with pytest.raises(ValueError, match=f"^{name}: must be data, got .*Knots"):
        method.to_dict()


@pytest.mark.parametrize("T", [SYMMETRIC, PAIR, TransitionMatrix(SYMMETRIC.rows)])
@pytest.mark.parametrize(
    "make",
    [
        lambda T: sigua.sigua_bc(T, over="classes"),
        lambda T: sigua.nn_backward_correction(T, over="classes"),
        lambda T: sigua.custom(sigua.NonNegative("classes"), 1.0, "backward", T),
    ],
)
def test_classes_warns_once_and_where_it_was_written_that_it_can_never_fire(make, T):
    with pytest.warns(UserWarning, match="over='classes': .*can never be negative") as caught:
        make(T)
    assert [warning.filename for warning in caught] == [__file__]


def test_no_warning_where_the_rule_can_fire_or_another_is_asked():
    """Warnings are errors in this suite."""
    sigua.sigua_bc(FIRES, over="classes")
    sigua.nn_backward_correction(FIRES, over="classes")
    for over in ("label", "batch"):
        sigua.sigua_bc(SYMMETRIC, over=over)


def from_condition(name, **arguments):
    condition = {"condition": name} | arguments
    return sigua.Method.from_dict({"method": "custom", "condition": condition})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sigua.custom(sigua.Known), ["condition", "the class Known", "Known()"]),
        (lambda: sigua.custom(None), ["condition", "NoneType"]),
        (lambda: sigua.custom(sigua.AllGood(), T=PAIR), ["T: must come with a correction"]),
        (
            lambda: sigua.sigua_sl(0.5, 0.1, sigua.Knots([(0, 0), (9, 1.5)])),
            ["epoch 9", "1.5"],
        ),
        (lambda: sigua.Knots([(float("nan"), 1.0)]), ["points", "finite"]),
        (lambda: sigua.Knots([0, 1]), ["points", "pairs"]),
        (lambda: sigua.Knots([(0, 1, 2)]), ["points", "pairs"]),
        (lambda: sigua.stop_grad(3), ["method", "gamma", "got 3"]),
        (lambda: sigua.self_teaching(10**400), ["noise_rate", "[0, 1)"]),
        (lambda: sigua.Method.from_dict({"method": "_OnSmallLoss"}), ["method", "'sigua_sl'"]),
        (lambda: from_condition("Nope"), ["condition", "'NoiseFloor'", "got 'Nope';"]),
        (lambda: from_condition("NoiseFloor", level=1.0), ["data", "complete", "to_dict"]),
        (lambda: from_condition("NoiseFloor"), ["data", "complete", "floor"]),
        (
            lambda: sigua.sigua_sl(0.3, delta=sigua.Knots),
            ["delta: must be a number or a function", "the class Knots", "try Knots(...)"],
        ),
        (
            lambda: sigua.sigua_sl(0.3, delta=lambda: 0.1),
            ["delta: must be a number or a function of the epoch", "does not take it"],
        ),
        (
            lambda: sigua.custom(sigua.Known(), correction=np.array(["forward", "none"]), T=PAIR),
            ["correction: must be one of 'none'"],
        ),
        (
            lambda: sigua.custom(sigua.Known(), separate="yes"),
            ["separate: must be True or False, got 'yes'"],
        ),
    ],
)
def test_what_cannot_be_a_method_gets_the_houses_sentence(make, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        make()
    assert all(word in str(error.value) for word in words), error.value
    assert "; " in str(error.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sigua.sigua_sl(), r"noise_rate: .* sigua_sl, .* sigua_sl\(noise_rate=..., delta="),
        (lambda: sigua.sigua_sl(0.3), r"delta: .* try sigua_sl\(noise_rate=..., delta=...\)"),
        (lambda: sigua.sigua_sl(delta=0.3), r"noise_rate: must be given to sigua_sl, got nothing;"),
        (lambda: sigua.self_teaching(warmup=3), r"noise_rate: .* try self_teaching\(noise_rate="),
        (lambda: sigua.custom(), r"condition: must be given to custom, .* custom\(condition=...\)"),
    ],
)
def test_an_argument_that_is_missing_is_named_in_one_sentence(call, message):
    """Of SIGUA_SL delta, without which it would be self-teaching and not say so."""
    with pytest.raises(TypeError, match=f"^{message}") as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "data",
    [
        None,
        "sigua_sl",
        {"method": "sigua_sl"},
        {"method": "standard", "x": 1},
        {"method": "self_teaching", "noise_rate": 0.5, "warmup": {"knots": [[0, 1]], "x": 1}},
        {"method": "sigua_bc", "T": {"noise_rate": 0.5, "num_classes": 3, "x": 1}},
        {"method": "custom", "condition": {"condition": "Known", "x": 1}},
    ],
)
def test_what_to_dict_never_returned_is_refused(data):
    with pytest.raises(ValueError, match=r"^data: must be"):
        sigua.Method.from_dict(data)


def test_stop_grad_does_not_warn_again():
    """Warnings are errors in this suite; the first was for whoever made the method."""
    with pytest.warns(UserWarning, match="can never be negative"):
        method = sigua.sigua_bc(SYMMETRIC, over="classes")
    assert sigua.stop_grad(method).gamma == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_an_epoch_in_any_precision_is_a_number(dtype):
    """Warnings are errors here: the largest float64 is beyond float32."""
    assert sigua.sigua_ag().at(dtype(2.5)) == sigua.sigua_ag().at(2.5)


def test_a_schedule_may_be_any_callable_that_takes_the_epoch():
    """Also one in C that does not say what it takes."""
    assert sigua.sigua_sl(0.3, delta=np.sin).at(0.1) == sigua.sigua_sl(0.3, delta=math.sin).at(0.1)
