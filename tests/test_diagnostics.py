"""Reports of a selection, and rankings of suspicious labels: worked by hand and by properties."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sigua
from sigua import Split, label_losses, label_margins, rank_label_issues
from sigua.diagnostics import EpochReport, masks_to_count, report

T, F = True, False
# Eight examples, the last of which takes no part. Of the seven, four are intact, three are good
# (two of them intact), two are bad (both flipped), and four are predicted as labelled.
GOOD = np.array([T, T, T, F, F, F, F, T])
BAD = np.array([F, F, F, T, T, F, F, F])
PART = np.array([T, T, T, T, T, T, T, F])
INTACT = np.array([T, T, F, F, F, T, T, T])
RIGHT = np.array([T, T, T, F, F, T, F, T])


def counted(**known):
    masks = masks_to_count(Split(GOOD, BAD), PART, **known)
    return {name: int(mask.sum()) for name, mask in masks.items()}


def same(got, expected):
    """Compare two reports, where NaN equals NaN."""
    for name, value in vars(expected).items():
        assert getattr(got, name) == pytest.approx(value, abs=1e-15, nan_ok=True), name


def test_report_of_a_hand_worked_epoch():
    expected = EpochReport(
        good=3 / 7,
        bad=2 / 7,
        neither=2 / 7,
        good_precision=2 / 3,
        good_recall=2 / 4,
        bad_precision=2 / 2,
        bad_recall=2 / 3,
        accuracy=4 / 7,
        accuracy_intact=3 / 4,
        accuracy_flipped=1 / 3,
    )
    same(report(counted(intact=INTACT, right=RIGHT)), expected)


def test_what_is_not_known_is_nan():
    same(report(counted()), EpochReport(3 / 7, 2 / 7, 2 / 7))
    same(report(counted(right=RIGHT)), EpochReport(3 / 7, 2 / 7, 2 / 7, accuracy=4 / 7))
    without_right = report(counted(intact=INTACT))
    assert without_right.bad_recall == 2 / 3
    assert math.isnan(without_right.accuracy_intact)


def test_a_fraction_of_nobody_is_nan():
    nobody = dict.fromkeys(counted(intact=INTACT, right=RIGHT), 0)
    assert all(math.isnan(value) for value in vars(report(nobody)).values())
    all_clean = report(counted(intact=np.ones(8, dtype=bool), right=RIGHT))
    assert all_clean.good_precision == 1
    assert math.isnan(all_clean.bad_recall)
    assert math.isnan(all_clean.accuracy_flipped)


@given(
    *(hnp.arrays(bool, 30) for _ in range(5)),
)
def test_counts_of_batches_add_up_to_those_of_the_epoch(good, bad, part, intact, right):
    split = Split(good, bad & ~good)
    whole = masks_to_count(split, part, intact=intact, right=right)
    halves = [
        masks_to_count(
            Split(good[rows], bad[rows] & ~good[rows]),
            part[rows],
            intact=intact[rows],
            right=right[rows],
        )
        for rows in (slice(0, 11), slice(11, 30))
    ]
    for name, mask in whole.items():
        assert mask.sum() == halves[0][name].sum() + halves[1][name].sum()
    got = report({name: mask.sum() for name, mask in whole.items()})
    assert all(math.isnan(value) or 0 <= value <= 1 for value in vars(got).values())


# The ranking.


def test_score_is_the_mean_over_the_epochs_of_the_probability_of_the_other_classes():
    """With p(label) of (.5, .25), (.9, .1) and (.2, .2): scores .625, .5 and .8."""
    issues = rank_label_issues(-np.log([[0.5, 0.9, 0.2], [0.25, 0.1, 0.2]]), noise_rate=1 / 3)
    np.testing.assert_allclose(issues.scores, [0.625, 0.5, 0.8], rtol=1e-14)
    assert issues.order.tolist() == [2, 0, 1]
    assert issues.count == 1
    assert issues.suspects.tolist() == [F, F, T]


def test_score_from_margins_is_the_mean_of_half_their_distance_from_one():
    """Margins (.5, 1), (-1, -1) and (0, .5) are on average .75, -1 and .25."""
    issues = rank_label_issues(margins=[[0.5, -1, 0], [1, -1, 0.5]], noise_rate=0.34)
    np.testing.assert_allclose(issues.scores, [0.125, 1.0, 0.375], rtol=1e-14)
    assert issues.order.tolist() == [1, 2, 0]
    assert issues.suspects.tolist() == [F, T, F]


def test_one_pass_is_one_epoch():
    losses = np.array([0.1, 2.0, 0.5])
    one, two = rank_label_issues(losses), rank_label_issues(losses[None])
    assert one.order.tolist() == two.order.tolist() == [1, 2, 0]
    np.testing.assert_allclose(one.scores, 1 - np.exp(-losses), rtol=1e-14)


def test_losses_whose_scores_round_to_one_are_still_ranked_and_infinity_is_first():
    issues = rank_label_issues([50.0, np.inf, 40.0, 60.0, 0.0], noise_rate=0.4)
    assert set(issues.scores[:4]) == {1.0}
    assert issues.order.tolist() == [1, 3, 0, 2, 4]


@given(
    losses=hnp.arrays(
        float, st.tuples(st.integers(1, 4), st.integers(1, 20)), elements=st.floats(0)
    ),
    rate=st.floats(0, 1),
)
def test_scores_lie_in_0_1_the_order_is_theirs_and_the_cut_is_at_the_rate(losses, rate):
    before = losses.copy()
    issues = rank_label_issues(losses, noise_rate=rate)
    n = losses.shape[1]
    assert np.array_equal(losses, before)
    assert ((issues.scores >= 0) & (issues.scores <= 1)).all()
    assert sorted(issues.order) == list(range(n))
    assert (np.diff(issues.scores[issues.order]) <= 0).all()
    assert issues.suspects.sum() == issues.count
    assert abs(issues.count - n * rate) < 1 + 1e-6
    assert set(issues.order[: issues.count]) == set(np.flatnonzero(issues.suspects))


def test_the_cut_is_exact_where_floating_point_is_not():
    """100 * 0.29 is 28.999999999999996."""
    assert rank_label_issues(np.arange(100.0), noise_rate=0.29).count == 29


@pytest.mark.parametrize("of", ["losses", "margins"])
def test_without_a_rate_the_cut_is_between_the_two_hills(of):
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.uniform(0.8, 1.0, 70), rng.uniform(0.01, 0.2, 30)])
    given_values = {"losses": -np.log(p), "margins": 2 * p - 1}
    issues = rank_label_issues(**{of: given_values[of]})
    assert issues.suspects.tolist() == [F] * 70 + [T] * 30


def test_without_a_rate_equal_scores_have_no_suspects():
    for losses in ([0.7], [0.7] * 5, [np.inf] * 5):
        assert rank_label_issues(losses).count == 0


def test_the_cut_maximises_the_variance_between_the_parts():
    """Of margins 1, .6, .2, -.2, -1: two parts of 2 and 3 differ most, by an exhaustive search."""
    scores = np.array([0, 0.2, 0.4, 0.6, 1.0])
    between = [i * (5 - i) * (scores[:i].mean() - scores[i:].mean()) ** 2 for i in range(1, 5)]
    expected = 5 - (1 + int(np.argmax(between)))
    assert rank_label_issues(margins=1 - 2 * scores).count == expected == 2


def test_suspects_are_what_known_takes_for_bad():
    issues = rank_label_issues([0.1, 3.0, 0.2, 2.0], noise_rate=0.5)
    method = sigua.custom(sigua.Known(), gamma=0.1)
    split = sigua.reference.split(method, [0.1, 3.0, 0.2, 2.0], trusted=~issues.suspects)
    assert split.bad.tolist() == [F, T, F, T]


def test_margins_are_of_probabilities_and_the_best_other_class():
    p = np.array([[0.7, 0.2, 0.1], [0.2, 0.3, 0.5], [0.0, 1.0, 0.0]])
    p.setflags(write=False)
    np.testing.assert_allclose(label_margins(p, [0, 1, 0]), [0.5, -0.2, -1.0], rtol=1e-14)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, r"^losses: give them or margins, but neither came"),
        ({"losses": [1.0], "margins": [0.5]}, r"^losses: give them or margins, but both came"),
        ({"losses": [0.1, np.nan]}, r"^losses: must lie in \[0, inf\], but losses\[1\] is nan"),
        ({"losses": [[0.1], [-1]]}, r"^losses: must lie in .* but losses\[1, 0\] is -1"),
        ({"losses": np.zeros((2, 2, 2))}, r"^losses: must have shape .*\(2, 2, 2\) came"),
        ({"losses": []}, r"^losses: must have shape \(n,\).*shape \(0,\) came"),
        (
            {"margins": [0.5, 3.0]},
            r"^margins: must lie in \[-1, 1\], .*margins\[1\] is 3; .*logits",
        ),
        ({"margins": [np.nan]}, r"^margins: must lie in \[-1, 1\], but margins\[0\] is nan"),
        ({"losses": [0.1], "noise_rate": 20}, r"^noise_rate: must be a number in \[0, 1\]"),
    ],
)
def test_a_ranking_of_nothing_usable_is_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        rank_label_issues(**keywords)


def test_margins_refuse_what_losses_refuse():
    for function in (label_losses, label_margins):
        with pytest.raises(ValueError, match=r"^probabilities: .*\[1\] sums to 1\.5"):
            function([[0.5, 0.5], [0.5, 1.0]], [0, 1])
        with pytest.raises(ValueError, match=r"^labels: .*labels\[0\] is 2"):
            function([[0.5, 0.5]], [2])
        with pytest.raises(ValueError, match=r"^labels: must have an entry for each"):
            function([[0.5, 0.5]], [0, 1])
