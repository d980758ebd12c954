"""The paper's methods by name: values that print, compare, pickle and go through JSON."""

import json
import pickle
from dataclasses import FrozenInstanceError, fields
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from test_conditions import Rule

import sigua
from sigua import Knots, TransitionMatrix

PAIR = TransitionMatrix.pair(0.45, 10)
SYMMETRIC = TransitionMatrix.symmetric(0.5, 10)
FIRES = TransitionMatrix([[0.9, 0.1], [0.6, 0.4]])
BC = sigua.backward_correction(PAIR)
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
    assert (again, type(again), repr(again)) == (method, type(method), repr(method))


@pytest.mark.parametrize("make", [sigua.sigua_sl, sigua.SmallLoss])
def test_numbers_from_numpy_and_fractions_are_plain_ones(make):
    plain = repr(make(0.5, 0.25, warmup=5))
    assert repr(make(np.float32(0.5), np.float64(0.25), warmup=np.int64(5))) == plain
    assert repr(make(Fraction(1, 2), Fraction(1, 4), warmup=5)) == plain
    for dtype in (np.float16, np.longdouble):  # also of the epoch
        assert sigua.sigua_ag().at(dtype(2.5)) == sigua.sigua_ag().at(2.5)
    assert make(0.3, delta=np.sin)  # a schedule in C does not say what it takes


@every_method
def test_a_method_survives_pickle_and_json(method):
    """Before and after its condition was asked for, in JSON's numbers, strings and lists."""
    fresh = eval(repr(method), vars(sigua))
    data = json.loads(json.dumps(fresh.to_dict(), allow_nan=False))
    for used in (fresh, method):
        for copy in (pickle.loads(pickle.dumps(used)), sigua.Method.from_dict(data)):
            assert copy == method
            assert hash(copy) == hash(method)
            assert copy.condition == method.condition
            assert [copy.at(t) for t in (0, 2.5, 99)] == [method.at(t) for t in (0, 2.5, 99)]


def test_different_methods_are_unequal():
    for i, method in enumerate(METHODS):
        assert [method == other for other in METHODS] == [i == j for j in range(len(METHODS))]
    assert sigua.self_teaching(0.5) != sigua.SmallLoss(0.5)


@every_method
def test_a_method_is_frozen(method):
    for name in ["gamma", "new", *(field.name for field in fields(method))]:
        with pytest.raises(FrozenInstanceError):
            setattr(method, name, 0.5)


OFFICIAL = {"variant": "official"}


@pytest.mark.parametrize(
    ("method", "condition", "gamma", "correction"),
    [
        (sigua.standard(), sigua.AllGood(), 0, "none"),
        (sigua.self_teaching(0.5, 3), sigua.SmallLoss(0.5, 0, 3), 0, "none"),
        (sigua.sigua_sl(0.5, 0.1), sigua.SmallLoss(0.5, 0.1, 10), 0.01, "none"),
        (sigua.sigua_sl(0.5, 0.1, **OFFICIAL), sigua.SmallLoss(0.5, 0.1, **OFFICIAL), 0.01, "none"),
        (sigua.backward_correction(PAIR), sigua.AllGood(), 0, "backward"),
        (sigua.nn_backward_correction(PAIR), sigua.NonNegative("label"), 0, "backward"),
        (sigua.sigua_bc(PAIR), sigua.NonNegative("label"), 1, "backward"),
        (sigua.forward_correction(PAIR), sigua.AllGood(), 0, "forward"),
    ],
)
def test_each_name_is_the_papers_combination_of_parts(method, condition, gamma, correction):
    assert (method.condition, method.gamma, method.correction) == (condition, gamma, correction)
    assert method.separate == (getattr(condition, "variant", "paper") == "official")
    assert method.T is (None if correction == "none" else PAIR)


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
        (sigua.custom(sigua.NoiseFloor(RAMP)), 10),
        (sigua.custom(Rule()), 0),  # which says nothing about its schedule
        (sigua.custom(Rule(at=(0.5,))), INF),
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
    with pytest.warns(UserWarning, match="can never be negative"):
        method = sigua.sigua_bc(SYMMETRIC, over="classes")
    assert sigua.stop_grad(method).gamma == 0  # and does not warn again


NOT_RATES = [1.01, -0.01, float("nan"), float("inf"), "0.5", None, True, [0.5]]
REFUSED = {
    "noise_rate": [sigua.self_teaching, sigua.SmallLoss, lambda x: sigua.sigua_sl(x, 0.1)],
    "delta": [lambda x: sigua.sigua_sl(0.5, x), lambda x: sigua.SmallLoss(0.5, x)],
    "gamma": [
        lambda x: sigua.sigua_sl(0.5, 0.1, x),
        lambda x: sigua.sigua_bc(PAIR, x),
        lambda x: sigua.custom(sigua.Known(), x),
    ],
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_rate_out_of_range_is_refused(name):
    """And a noise rate of 1."""
    for make, value in product(REFUSED[name], NOT_RATES + [1] * (name == "noise_rate")):
        with pytest.raises(ValueError, match=rf"^{name}: must be a number in \[0, 1[\])], got "):
            make(value)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "10", None, True])
def test_a_warm_up_that_is_no_time_is_refused(value):
    with pytest.raises(ValueError, match=r"^warmup: must be a number in \[0, inf\), got "):
        sigua.self_teaching(0.5, value)


@pytest.mark.parametrize("value", [PAIR.rows.tolist(), PAIR.rows, None, 0.5], ids=type)
def test_a_matrix_that_is_none_is_refused(value):
    for make in (sigua.backward_correction, sigua.sigua_bc, sigua.forward_correction):
        with pytest.raises(ValueError, match=r"^T: must be a TransitionMatrix, got a .*; try Tr"):
            make(value)


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
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (__file__, make.__code__.co_firstlineno)


def from_condition(name, **arguments):
    condition = {"condition": name} | arguments
    return sigua.Method.from_dict({"method": "custom", "condition": condition})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sigua.sigua_bc(PAIR, over="x"), "over: .*'label', 'classes', 'batch', got 'x';"),
        (lambda: sigua.self_teaching(0.5, variant="x"), "variant: .*'paper', 'official', got 'x';"),
        (lambda: sigua.custom(sigua.Known(), correction="x"), "correction: .*'forward', got 'x';"),
        (lambda: sigua.custom(sigua.Known(), correction=PAIR.rows), "correction: must be one of"),
        (lambda: sigua.custom(sigua.NonNegative()), "condition: .*got correction='none'.*backward"),
        (lambda: sigua.custom(sigua.Known), r"condition: .* the class Known; try Known\(\)"),
        (lambda: sigua.custom(sigua.NoiseFloor), r"condition: .* try NoiseFloor\(\.\.\.\)"),
        (lambda: sigua.custom(None), "condition: .* got a NoneType;"),
        (lambda: sigua.custom(sigua.AllGood(), T=PAIR), "T: must come with a correction"),
        (lambda: sigua.custom(sigua.Known(), separate="yes"), "separate: .*, got 'yes'"),
        (lambda: sigua.sigua_sl(0.5, 0.1, Knots([(0, 0), (9, 1.5)])), "gamma at epoch 9: .* 1.5;"),
        (lambda: sigua.sigua_sl(0.3, delta=Knots), r"delta: .*the class Knots; try Knots\(\.\.\."),
        (lambda: sigua.sigua_sl(0.3, delta=lambda: 0.1), "delta: .* does not take it"),
        (lambda: sigua.self_teaching(sigua.Interval(0.2, 0.1, 0.3)), "noise_rate: .* its .value"),
        (lambda: sigua.stop_grad(3), "method: must have a gamma, got 3;"),
        (lambda: sigua.stop_grad(sigua.standard()), "method: .* a gamma, got .*; .* it climbs on"),
        (lambda: sigua.stop_grad(BC), "method: must have a gamma, got .*; .* it climbs on"),
        # Functions and conditions of one's own are no data.
        (lambda: sigua.sigua_sl(0.5, lambda t: 0.1).to_dict(), "delta: must be data, got .*Knots"),
        (lambda: sigua.sigua_bc(PAIR, lambda t: 0.1).to_dict(), "gamma: must be data, got .*Knots"),
        (lambda: sigua.custom(sigua.SmallLoss(0.5, abs)).to_dict(), "delta: must be data, .*Knots"),
        (lambda: sigua.custom(Rule()).to_dict(), "condition: must be data, .*Knots"),
        (lambda: sigua.Method.from_dict({"method": "x"}), "method: must be one of .*got 'x';"),
        (lambda: sigua.Method.from_dict({}), "method: must be one of .*got None;"),
        (lambda: sigua.Method.from_dict({"method": "_OnSmallLoss"}), "method: .*'sigua_sl'"),
        (lambda: from_condition("Nope"), "condition: .*'NoiseFloor'.* got 'Nope';"),
        (lambda: from_condition("NoiseFloor", level=1.0), "data: must be complete, .* to_dict"),
    ],
)
def test_what_cannot_be_a_method_is_refused(make, message):
    with pytest.raises(ValueError, match=rf"^{message}") as error:
        make()
    assert "; " in str(error.value)


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
