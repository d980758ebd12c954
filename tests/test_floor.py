"""The noise floor: its value, the rule that reads it, and why a perfect model is not punished."""

from fractions import Fraction
from math import log

import numpy as np
import pytest

import sigua
from sigua import NoiseFloor, TransitionMatrix, noise_floor, reference

SKEWED = TransitionMatrix([[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]])
ENTROPIES = [0.0, log(2), 1.5 * log(2)]  # of its rows, by hand


def plain_entropy(rows):
    """The definition, entry by entry."""
    return [-sum(p * log(p) for p in row if p > 0) for row in rows]


@pytest.mark.parametrize(
    ("rate", "k", "expected"),
    [
        (0.5, 10, log(2) + log(9) / 2),
        (0.9, 10, log(10)),  # labels say nothing, and there is no inverse
        (0, 10, 0),
        (0.2, 2, -0.8 * log(0.8) - 0.2 * log(0.2)),
        (0.5, 10**13, log(2) + log(10**13 - 1) / 2),  # for which there is no room
    ],
)
def test_the_floor_of_a_rate_is_exact_in_closed_form(rate, k, expected):
    """-(1-eps) log(1-eps) - eps log(eps/(k-1)), by hand."""
    assert noise_floor(rate, k) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(("rate", "k"), [(0.0, 2), (0.1, 2), (0.37, 3), (0.8, 3), (0.8, 10)])
def test_a_rate_a_symmetric_matrix_and_its_rows_have_the_same_floor(rate, k):
    """Three ways to say the same noise."""
    symmetric = TransitionMatrix.symmetric(rate, k)
    expected = pytest.approx(plain_entropy(symmetric.rows)[0], rel=1e-14, abs=1e-16)
    assert noise_floor(rate, k) == noise_floor(symmetric) == expected
    assert noise_floor(TransitionMatrix(symmetric.rows)) == expected


def test_many_classes_need_no_matrix_and_large_counts_no_room():
    """With 100,000 classes: log 2 + log(99,999) / 2, and of pair noise the entropy of (.8, .2)."""
    expected = pytest.approx(log(2) + log(99_999) / 2, rel=1e-14)
    T = TransitionMatrix.symmetric(0.5, 100_000)
    assert noise_floor(T) == noise_floor(T, observed=np.ones(100_000)) == expected
    assert noise_floor(TransitionMatrix.pair(0.2, 100_000)) == pytest.approx(noise_floor(0.2, 2))
    assert noise_floor(SKEWED, prior=[1e308] * 3) == pytest.approx(noise_floor(SKEWED), rel=1e-15)
    assert noise_floor(SKEWED, observed=[1e308] * 3) == noise_floor(SKEWED, observed=[1, 1, 1])


def test_rows_are_weighed_by_the_prior():
    """Uniform by default; counts and shares say the same."""
    assert noise_floor(SKEWED) == pytest.approx(np.mean(ENTROPIES), rel=1e-15)
    expected = pytest.approx(0.1 * 0 + 0.3 * log(2) + 0.6 * 1.5 * log(2), rel=1e-15)
    assert noise_floor(SKEWED, prior=[0.1, 0.3, 0.6]) == expected
    assert noise_floor(SKEWED, prior=np.array([10, 30, 60])) == expected


def test_observed_frequencies_tell_the_prior():
    """T' prior = observed, in exact fractions."""
    prior = [Fraction(1, 5), Fraction(2, 5), Fraction(2, 5)]
    rows = [[Fraction(x) for x in row] for row in SKEWED.rows.tolist()]
    observed = [sum(p * row[j] for p, row in zip(prior, rows, strict=True)) for j in range(3)]
    expected = float(prior[1]) * log(2) + float(prior[2]) * 1.5 * log(2)
    for scale in (1, 20):
        given = [float(scale * share) for share in observed]
        assert noise_floor(SKEWED, observed=given) == pytest.approx(expected, rel=1e-14)
    # (0, 1, 0) solves to a prior of (-1, 2, 0): clipped, that is class 1 alone.
    assert noise_floor(SKEWED, observed=[0, 1, 0]) == pytest.approx(log(2), rel=1e-14)


def test_a_perfect_model_is_at_or_above_the_floor():
    """Concavity, on random posteriors: equal where classes do not overlap, above where they do."""
    rng = np.random.default_rng(0)
    T = sigua.random_transition(5, noise_rate=0.4, seed=1)
    for sharpness in (0.05, 1.0, 20.0):
        posterior = rng.dirichlet(np.full(5, sharpness), size=400)
        risk = np.mean(plain_entropy(posterior @ T.rows))
        assert risk >= noise_floor(T, prior=posterior.mean(axis=0))
    certain = np.eye(5)[rng.integers(0, 5, 400)]
    floor = noise_floor(T, prior=certain.sum(axis=0))
    assert np.mean(plain_entropy(certain @ T.rows)) == pytest.approx(floor, rel=1e-13)


def test_all_are_good_at_the_floor_and_all_bad_below_it():
    """The mean decides, with equality on the good side; +inf and NaN are neither."""
    method = sigua.custom(NoiseFloor(2.0), gamma=1.0)
    for losses, good in [([1.0, 3.0], True), ([1.0, 2.5], False), ([0.0, 6.0], True)]:
        split = reference.split(method, losses)
        assert split.good.tolist() == [good] * 2
        assert split.bad.tolist() == [not good] * 2
    split = reference.split(method, [1.0, 3.0, np.inf])  # +inf says nothing: the mean is 2
    assert split.good.tolist() == [True, True, False]
    split = reference.split(method, [1.0, 2.5, np.inf])  # nor does it hide that it is 1.75
    assert split.bad.tolist() == [True, True, False]
    split = reference.split(method, [1.0, np.nan])  # whose mean is no number, so nobody is judged
    assert not (split.good | split.bad).any()


def test_with_gamma_1_it_is_flooding():
    """The gradient is that of |mean - floor| + floor (Ishida et al. 2020), on either side."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(6, 4)), rng.integers(0, 4, 6)
    plain = reference.step(sigua.standard(), logits, labels)
    for floor, sign in [(plain.objective - 0.1, 1.0), (plain.objective + 0.1, -1.0)]:
        flooded = reference.step(sigua.custom(NoiseFloor(floor), 1.0), logits, labels)
        np.testing.assert_allclose(flooded.gradient, sign * plain.gradient, rtol=1e-15)


@pytest.mark.parametrize(
    ("arguments", "keywords", "sentence"),
    [
        ((1.0, 10), {}, r"noise: must be a number in \[0, 1\), got 1.0;"),
        ((0.5,), {}, "num_classes: must be a whole number of at least 2, got None;"),
        ((SKEWED, 3), {}, "num_classes: must be None with a TransitionMatrix, got 3; try leaving"),
        ((SKEWED,), {"prior": [1, 2]}, r"prior: must have shape \(3,\)"),
        ((0.5, 3), {"prior": [1, 2]}, r"prior: must have shape \(3,\)"),
        ((SKEWED,), {"prior": [1, 2, -1]}, "prior: must be frequencies from 0 up"),
        ((SKEWED,), {"prior": [1, 2, np.nan]}, "prior: must be frequencies"),
        ((SKEWED,), {"observed": [0, 0, 0]}, "observed: must be frequencies"),
        ((SKEWED,), {"prior": [1] * 3, "observed": [1] * 3}, "prior: must be None with observed,"),
        ((0.5, 3), {"prior": "abc"}, "prior: must be an array of numbers"),
    ],
)
def test_what_has_no_floor_is_refused(arguments, keywords, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        noise_floor(*arguments, **keywords)


@pytest.mark.parametrize("floor", [-0.1, float("inf"), None, 10**400, Fraction(10**400, 3)])
def test_a_floor_is_a_finite_number(floor):
    """Also one that no float holds."""
    with pytest.raises(ValueError, match="floor: must be a number"):
        NoiseFloor(floor)
