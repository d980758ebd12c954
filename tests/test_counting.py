"""Counting on checked labels: shares, exact intervals, and T smoothed by a prior."""

import tracemalloc
from math import comb

import numpy as np
import pytest

import sigua
from sigua.counting import clopper_pearson


def ends(count, size):
    low, high = clopper_pearson(np.array(count), np.array(size))
    return float(low), float(high)


@pytest.mark.parametrize(
    ("count", "size", "want"),
    [  # quantiles of Beta(c, n - c + 1) and Beta(c + 1, n - c), from SciPy
        (1, 10, (0.002528579, 0.445016117)),
        (3, 20, (0.032070937, 0.378926827)),
        (40, 200, (0.146894488, 0.262226365)),
        (999, 1000, (0.994441076, 0.999974683)),
    ],
)
def test_the_interval_is_clopper_and_pearson_s(count, size, want):
    assert ends(count, size) == pytest.approx(want, abs=2e-9)


@pytest.mark.parametrize(
    ("count", "want"),  # from SciPy, as above
    [(3, (6.18672166e-8, 8.76727054e-7)), (2_500_000, (0.249731643, 0.250268501))],
)
def test_the_interval_of_many_labels_is_exact_and_looks_at_the_counts_near_by_alone(count, want):
    """Of ten millions; 8 bytes for each of them would be 80 MB."""
    tracemalloc.start()
    found = ends(count, 10**7)
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == pytest.approx(want, rel=5e-9)
    assert held < 8e6


def test_none_and_all_have_an_end_at_0_and_1():
    """(1 - high)^10 = 0.025."""
    assert ends(0, 10) == pytest.approx((0, 1 - 0.025**0.1), abs=1e-12)
    assert ends(10, 10) == pytest.approx((0.025**0.1, 1), abs=1e-12)
    assert ends(0, 0) == (0, 1)


@pytest.mark.parametrize("rate", [0.03, 0.2, 0.5, 0.77])
def test_the_interval_holds_the_rate_in_95_cases_of_100_or_more(rate):
    size = 23
    low, high = clopper_pearson(np.arange(size + 1), np.array(size))
    chances = [comb(size, c) * rate**c * (1 - rate) ** (size - c) for c in range(size + 1)]
    inside = [c for c, a, b in zip(chances, low, high, strict=True) if a <= rate <= b]
    assert sum(inside) >= 0.95


def test_the_noise_rate_is_the_share_that_differs_and_prints_in_percent():
    rate = sigua.count_noise_rate([0, 1, 2, 2], [0, 1, 2, 1])
    assert rate.value == 0.25
    assert (rate.low, rate.high) == ends(1, 4)
    assert str(rate) == "25 % (1 to 81)"


def test_t_is_the_counts_and_as_many_labels_as_the_prior_is_worth():
    """Of class 0 three were checked: 0 0 1. With a prior (.8, .2) worth 5: (2 + 4, 1 + 1) / 8."""
    prior = sigua.TransitionMatrix([[0.8, 0.2], [0.3, 0.7]])
    T = sigua.count_transition([0, 0, 1], [0, 0, 0], 2, prior=prior, strength=5)
    np.testing.assert_allclose(T.rows, [[0.75, 0.25], [0.3, 0.7]], rtol=0, atol=1e-15)


def test_without_a_prior_it_is_symmetric_noise_at_the_counted_rate_worth_k_labels():
    """One of four is wrong: (1 + .5) / (4 + 1) = .3, so .15 for each of two; class 2 has that."""
    T = sigua.count_transition([0, 0, 1, 0], [0, 0, 1, 1], 3)
    want = [
        [(2 + 3 * 0.7) / 5, 3 * 0.15 / 5, 3 * 0.15 / 5],
        [(1 + 3 * 0.15) / 5, (1 + 3 * 0.7) / 5, 3 * 0.15 / 5],
        [0.15, 0.15, 0.7],
    ]
    np.testing.assert_allclose(T.rows, want, rtol=0, atol=1e-15)


def test_with_many_labels_t_comes_back_and_its_intervals_hold_it():
    T = sigua.random_transition(4, noise_rate=0.4, seed=1)
    true = np.arange(40_000) % 4
    given = sigua.corrupt_labels(true, T, seed=0)
    counted = sigua.count_transition(given, true, 4)
    np.testing.assert_allclose(counted.rows, T.rows, rtol=0, atol=0.02)
    low, high = sigua.transition_intervals(given, true, 4)
    assert ((low <= T.rows) & (T.rows <= high)).mean() >= 15 / 16
    assert (high - low).max() < 0.03


PRIOR = sigua.TransitionMatrix.symmetric(0.2, 3)


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        (([], [], 3), {}, "labels: must have at least one checked label, got none;"),
        (([0, 1], [0], 3), {}, "true_labels: must have an entry for each of labels"),
        (([-1, 1], [0, 1], 3), {}, r"labels: must lie in \[0, 3\), got labels\[0\] = -1"),
        (([0, 3], [0, 1], 3), {}, r"labels: must lie in \[0, 3\)"),
        (([0, 1], [0, 1], 1), {}, "num_classes: "),
        (([0, 1], [0, 1], 2), {"prior": PRIOR}, "prior: must have 2 classes, got 3"),
        (([0, 1], [0, 1], 2), {"prior": [[1, 0], [0, 1]]}, "prior: must be a TransitionMatrix,"),
        (([0, 1], [0, 1], 2), {"strength": 0}, "strength: must be above 0, got 0"),
        (([0, 1] * 8, [0, 0, 1, 1] * 4, 2), {}, "labels: the counted rows must make T "),
    ],
)
def test_bad_input_is_refused(arguments, keywords, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        sigua.count_transition(*arguments, **keywords)
