"""Agreement: the margin of the model's own prediction, and the class confidence."""

from fractions import Fraction

import numpy as np
import pytest
from contract import Memory
from test_conditions import Rule

import sigua
from sigua import confidence, reference, step

THIRDS = np.log([[1 / 2, 1 / 3, 1 / 6]])


@pytest.mark.parametrize(
    ("c", "label", "margin"),
    [
        (None, 0, Fraction(1, 6)),
        (None, 1, Fraction(-1, 6)),
        (None, 2, Fraction(-1, 3)),
        # p / c = 3/4, 1, 1/6; their sum is 23/12
        ([2 / 3, 1 / 3, 1], 0, Fraction(-3, 23)),
        ([2 / 3, 1 / 3, 1], 1, Fraction(3, 23)),
        ([2 / 3, 1 / 3, 1], 2, Fraction(-10, 23)),
    ],
)
def test_margins_worked_by_hand(c, label, margin):
    assert reference.margins(THIRDS, [label], c) == pytest.approx(float(margin), abs=1e-15)


def test_the_threshold_rises_from_everybody_to_what_the_model_predicts():
    rule = sigua.Agreement(warmup=10)
    for epoch in (1, 3, Fraction(7, 2), 9):
        assert rule.at(epoch) == pytest.approx((float(-1 + Fraction(epoch) / 10),), abs=1e-15)
    assert [rule.at(epoch) for epoch in (10, 11, 1000)] == [(0.0,)] * 3
    gentle = sigua.Agreement(warmup=4, threshold=-0.2)
    assert gentle.at(2) == pytest.approx((-0.6,))
    assert gentle.at(4) == pytest.approx((-0.2,))
    assert sigua.Agreement(warmup=0).at(0) == (0.0,)


def test_in_the_beginning_all_are_good_a_saturated_one_too():
    logits = [[0.0, 0.0], [1000.0, 0.0], [-1000.0, 0.0]]
    split = reference.step(sigua.sigua_ag(), logits, [0, 1, 0], epoch=0).split
    assert split.good.all()
    assert not split.bad.any()


def test_at_the_end_good_is_what_the_model_predicts_and_a_tie_is_no_agreement():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 7)), rng.integers(0, 7, 200)
    split = reference.step(sigua.sigua_ag(by_class=False), logits, labels, epoch=10).split
    np.testing.assert_array_equal(split.good, logits.argmax(axis=1) == labels)
    np.testing.assert_array_equal(split.bad, ~split.good)
    assert reference.step(sigua.sigua_ag(), [[1.0, 1.0]], [0], epoch=10).split.bad.all()


def test_a_masked_class_is_no_rival():
    """With a logit of -inf its u is 0, however small its confidence."""
    margins = reference.margins([[0.0, -np.inf, np.log(3)]], [2], confidence=[1, 1e-6, 1])
    np.testing.assert_allclose(margins, [0.5])


def test_division_by_the_confidence_finds_a_label_that_lost_the_majority():
    """60 % of class 0 are labelled 1, where all of class 1 are, too.

    A perfect model of the labels says p = (.4, .6) for class 0 and (0, 1) for class 1. So c_0 is
    .4 and c_1 is (.6 * .6 + 1) / 1.6 = .85, and u for class 0 is (1, .706) to scale.
    """
    p = np.array([[0.4, 0.6]] * 10 + [[0.0, 1.0]] * 10)
    labels = np.array([0] * 4 + [1] * 6 + [1] * 10)
    with np.errstate(divide="ignore"):
        logits = np.log(p)
    c = confidence.rates(reference.confidence_sums(logits, labels))
    np.testing.assert_allclose(c, [0.4, 0.85], rtol=1e-5)
    right = np.array([True] * 4 + [False] * 6 + [True] * 10)
    by_class = reference.step(sigua.sigua_ag(), logits, labels, 10, confidence=c).split
    plain = reference.step(sigua.sigua_ag(by_class=False), logits, labels, 10).split
    np.testing.assert_array_equal(by_class.good, right)
    np.testing.assert_array_equal(plain.good, labels == 1)


def test_the_confidence_is_an_average_in_which_the_latest_hundred_count_most():
    """Constant p is its own average; after a jump 1 - .99^n of the way is gone after n examples."""
    state = np.zeros((2, 1))
    for _ in range(2000):
        state = confidence.moved(state, np.array([[0.3], [1.0]]))
    np.testing.assert_allclose(confidence.rates(state), [0.3], rtol=1e-6)
    for _ in range(100):
        state = confidence.moved(state, np.array([[0.8], [1.0]]))
    np.testing.assert_allclose(confidence.rates(state), [0.8 - 0.5 * 0.99**100], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "values"),
    [("warmup", [-1, float("nan")]), ("threshold", [1.0, -1.1]), ("power", [-0.1, 1.1])],
)
def test_arguments_out_of_range_are_refused(name, values):
    for value in values:
        with pytest.raises(ValueError, match=f"^{name}: must be"):
            sigua.Agreement(**{name: value})
    with pytest.raises(ValueError, match=r"^power: must be 0 with by_class=False"):
        sigua.Agreement(power=0.5, by_class=False)


def test_a_rule_that_asks_for_margins_says_so():
    rule = Rule(lambda batch: (batch.margins() > 0, batch.margins() <= 0))
    with pytest.raises(ValueError, match="reads: must name 'margins'"):
        reference.split(sigua.custom(rule), np.ones(3))


def test_a_rival_counts_by_how_often_it_was_given_this_label():
    """Here u = (.3, .6, .1). Of 90 predicted as class 1, 9 were labelled 0, of 90 as 2 none.

    With one more on the diagonal C_10 = 9 / 91 and C_00 = 91 / 91: the bound of class 1 is .0989
    for b = 1, and .3 > .0989 * .6. So label 0 is kept, with the margin .3 - .0593, where agreement
    has .3 - .6. For b = 1/2 the bound is .3145, the margin .3 - .1887.
    """
    counts = np.array([[90, 0, 0], [9, 81, 0], [0, 0, 90]])
    logits = np.log([[0.3, 0.6, 0.1]])
    for power, bound in ((1.0, 9 / 91), (0.5, (9 / 91) ** 0.5)):
        bounds = reference.bounds(counts, power)
        assert bounds[1, 0] == pytest.approx(bound)
        margins = reference.margins(logits, [0], bounds=bounds)
        assert margins[0] == pytest.approx(0.3 - bound * 0.6)
    split = reference.step(sigua.sigua_ag(power=1), logits, [0], 10, counts=counts).split
    assert split.good.all()
    assert reference.step(sigua.sigua_ag(), logits, [0], 10).split.bad.all()


@pytest.mark.parametrize("power", [0.01, 0.5, 1.0])
def test_counts_of_a_run_are_those_of_the_spec(power):
    method, rng, spec = sigua.sigua_ag(power=power), np.random.default_rng(2), Memory(5)
    state = confidence.zeros(5, counts=True).astype(float)
    for _ in range(20):
        logits = 2 * rng.normal(size=(64, 5))
        labels = np.where(rng.random(64) < 0.6, logits.argmax(axis=1), rng.integers(0, 5, 64))
        p = step.numpy_names.softmax(logits)
        margins = step.Margins(step.numpy_names, p, labels, state)
        bounds = reference.bounds(spec.counts, power)
        want = reference.margins(logits, labels, spec.given()["confidence"], bounds)
        np.testing.assert_allclose(margins(power=power), want, atol=1e-9)
        state = confidence.moved(state, margins.sums(None))
        spec.add(logits, labels)
        np.testing.assert_allclose(state, spec.state(method), rtol=1e-9)


@pytest.mark.parametrize("power", [0.3, 1.0])
def test_bounds_are_those_of_the_spec_where_another_class_has_the_label_more_often(power):
    """Counts of any size, on the diagonal or beside it: no bound exceeds 1."""
    counts = np.random.default_rng(0).integers(0, 40, (6, 6)) * (np.arange(6) > 0)
    state = np.concatenate([np.zeros((2, 6)), [counts.sum(0), counts.diagonal()], counts])
    found, want = confidence.bounds(state, power), reference.bounds(counts.T, power).T
    others = ~np.eye(6, dtype=bool)  # nobody is a rival of his own
    np.testing.assert_allclose(found[others], want[others], rtol=1e-12)
    assert (want[others] == 1).sum() > 5
    assert (want[others] < 1).sum() > 5


def test_a_nan_is_not_counted_and_nor_is_who_takes_no_part():
    p = 1 / (1 + np.exp(2))
    state, predicted = confidence.zeros(2, counts=True), np.array([[np.nan] * 2, *[[1 - p, p]] * 2])
    sums = step.Margins(step.numpy_names, predicted, np.array([0, 1, 0]), state)
    found = sums.sums(np.array([True, True, False]))
    np.testing.assert_allclose(found, [[0, p], [0, 1], [1, 0], [0, 0], [0, 0], [1, 0]], rtol=1e-6)


def test_counts_need_as_much_memory_as_there_are_pairs_of_classes():
    assert confidence.zeros(4096, counts=True).shape == (4100, 4096)
    with pytest.raises(ValueError, match=r"^power: must be 0 with more than 4096 classes"):
        confidence.zeros(4097, counts=True)
