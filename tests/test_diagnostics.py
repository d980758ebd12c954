"""Reports of a selection, and rankings of suspicious labels: worked by hand and by properties."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sigua import Split, rank_label_issues
from sigua.diagnostics import EpochReport, masks_to_count, report

T, F = True, False
NAN = float("nan")
BY_CLASS = {"losses": [0.1, 0.2], "labels": [0, 1]}
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


SHARES = {"good": 3 / 7, "bad": 2 / 7, "neither": 2 / 7}
OF_INTACT = {"good_precision": 2 / 3, "good_recall": 2 / 4, "bad_precision": 1, "bad_recall": 2 / 3}
OF_RIGHT = {"accuracy": 4 / 7}
OF_BOTH = {"accuracy_intact": 3 / 4, "accuracy_flipped": 1 / 3}


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"intact": INTACT, "right": RIGHT}, SHARES | OF_INTACT | OF_RIGHT | OF_BOTH),
        ({"intact": INTACT}, SHARES | OF_INTACT),
        ({"right": RIGHT}, SHARES | OF_RIGHT),
        ({}, SHARES),
    ],
    ids=["all", "intact", "right", "nothing"],
)
def test_report_of_a_hand_worked_epoch(known, expected):
    """What is not known is NaN. The logs have names that loggers group."""
    found = report(counted(**known))
    want = vars(EpochReport(**expected))
    assert vars(found) == pytest.approx(want, abs=1e-15, nan_ok=True)
    logs = {"sigua/good": 3 / 7, "sigua/bad": 2 / 7, "sigua/noise_rate": 4 / 7}
    assert found.logs() == pytest.approx(logs, abs=1e-15)


def test_a_fraction_of_nobody_is_nan():
    nobody = dict.fromkeys(counted(intact=INTACT, right=RIGHT), 0)
    assert all(math.isnan(value) for value in vars(report(nobody)).values())
    assert all(math.isnan(value) for value in report(nobody).logs().values())
    all_clean = report(counted(intact=np.ones(8, dtype=bool), right=RIGHT))
    assert all_clean.good_precision == 1
    assert math.isnan(all_clean.bad_recall)
    assert math.isnan(all_clean.accuracy_flipped)


# The ranking.


def test_losses_whose_scores_round_to_one_are_still_ranked_and_infinity_is_first():
    """Of one pass: an epoch."""
    issues = rank_label_issues([50.0, np.inf, 40.0, 60.0, 0.0], noise_rate=0.4)
    assert issues.scores.tolist() == [1, 1, 1, 1, 0]
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


def two_hills(right=70, wrong=30, seed=0):
    """Return margins of right labels, from .1 to 1, and of wrong ones, the same turned round."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(0.1, 1.0, right), rng.uniform(-1.0, -0.1, wrong)])


def test_a_margin_may_leave_its_range_by_rounding():
    sure, wrong = np.float32([1.0000001, -1.0000001])
    assert rank_label_issues(margins=[sure, wrong]).scores.tolist() == [0, 1]
    with pytest.raises(
        ValueError, match=r"^margins: must lie in \[-1, 1\], got margins\[0\] = 1.0"
    ):
        rank_label_issues(margins=[1.01, 0.5])


def test_without_a_rate_the_cut_is_between_the_two_hills():
    margins = two_hills()
    issues = rank_label_issues(margins=margins)
    assert issues.suspects.tolist() == [F] * 70 + [T] * 30
    assert issues.precision == 1  # nobody is near the cut


def test_precision_is_that_of_a_triangle_from_half_of_those_at_the_cut():
    """Bins of scores, .05 wide: 400 from 0 to .45, falling to 10 at .5 to .6, and 200 at .7 to .8.

    The cut is at .55, the middle of the lowest window. Half of the density there, 10 / 2 a bin, and
    none at 1: a triangle of 5 * 9 bins / 2 = 22.5 right ones among the 210 above the cut.
    """
    counts = [50] * 8 + [40, 20] + [10, 10] + [20, 40] + [70, 70] + [0] * 4
    scores = np.repeat(np.arange(20) / 20 + 0.025, counts)
    issues = rank_label_issues(margins=1 - 2 * scores)
    assert issues.count == 10 + 20 + 40 + 70 + 70
    assert issues.precision == pytest.approx(1 - 22.5 / 210, abs=1e-12)


@pytest.mark.parametrize(
    "margins",
    [
        [0.7],
        [0.7] * 5,
        [-1.0] * 50,
        1 - 2 * np.random.default_rng(0).beta(1, 3, 10_000),  # one hill, with a long tail
        1 - 2 * np.random.default_rng(0).uniform(0, 1, 10_000),  # none
        two_hills(70, 3),  # three are not many
        np.random.default_rng(0).normal([0.6] * 500 + [-0.03] * 300, 0.06),  # half of it random
    ],
    ids=["one", "equal", "all", "tail", "flat", "few", "random"],
)
def test_where_no_hill_stands_out_nobody_is_suspect(margins):
    issues = rank_label_issues(margins=margins)
    assert issues.count == 0
    assert math.isnan(issues.precision)


def test_a_model_that_is_surer_than_it_is_right_names_nobody():
    """Of a classifier that is right for 70 % and always sure, clean labels make two hills, too.

    If it was calibrated, the mean of 1 - p(likeliest) would be .3, and not .02.
    """
    rng = np.random.default_rng(0)
    sure = np.concatenate([rng.uniform(0.96, 1.0, 700), rng.uniform(-1.0, -0.96, 300)])
    assert rank_label_issues(margins=sure).count == 0
    unsure = np.concatenate([rng.uniform(0.2, 1.0, 700), rng.uniform(-1.0, -0.2, 300)])
    assert rank_label_issues(margins=unsure).count == 300


@pytest.mark.parametrize("far", [128, 60])
def test_clean_labels_that_a_model_cannot_fit_name_nobody(far):
    """Two classes on a line, a part of the first beyond the second: the best line rejects it.

    It is surer of that than of the rest. With wrong labels instead, it is as sure of both.
    """
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 450)
    x = rng.normal(np.where(y == 0, -4.0, 0.0))
    placed = np.concatenate([rng.normal(8.0, 1.0, far), x[far:]])
    assert rank_label_issues(margins=fitted_margins(placed, y)).count == 0
    wrong = rng.random(900) < 0.15
    issues = rank_label_issues(margins=fitted_margins(x, np.where(wrong, 1 - y, y)))
    assert issues.count > 90
    assert wrong[issues.suspects].mean() > 0.9


def fitted_margins(x, y):
    """Return the margins of the likeliest logistic curve, by Newton's method."""
    design, w = np.stack([np.ones(len(x)), x], axis=1), np.zeros(2)
    for _ in range(25):
        p = 1 / (1 + np.exp(-design @ w))
        slope = design.T @ (y - p)
        w += np.linalg.solve((design * (p * (1 - p))[:, None]).T @ design, slope)
    return np.where(y == 1, 2 * p - 1, 1 - 2 * p)


def test_losses_without_a_rate_have_no_suspects():
    """A hard example, such as one of ten classes that look alike, has a large loss, too."""
    p = (1 + two_hills()) / 2
    issues = rank_label_issues(-np.log(p))
    assert issues.count == 0
    assert set(issues.order[:30]) == set(range(70, 100))


def test_a_rare_class_that_is_hardly_predicted_is_not_suspect_where_labels_are_given():
    """The class "b" is a tenth, and nearly all of it looks wrong; of "a" nobody does."""
    margins = two_hills(920, 80)
    labels = np.array(["a"] * 900 + ["b"] * 100)
    assert rank_label_issues(margins=margins).count == 80
    issues = rank_label_issues(margins=margins, labels=labels)
    assert issues.count == 0
    assert set(issues.order[900:]) == set(range(900, 1000))  # last, and among them by score
    assert issues.scores[issues.order[900]] == issues.scores.max()


def test_wrong_labels_in_every_class_are_suspects_and_stay_so_beside_a_rare_class():
    margins = np.concatenate([two_hills(540, 60), two_hills(360, 40, 1), two_hills(10, 90, 2)])
    labels = np.repeat([0, 1, 2], [600, 400, 100])
    issues = rank_label_issues(margins=margins, labels=labels)
    expected = (margins < 0) & (labels < 2)
    assert issues.suspects.tolist() == expected.tolist()
    even = rank_label_issues(margins=margins[:1000], labels=labels[:1000])
    assert even.suspects.tolist() == expected[:1000].tolist()


P_LABEL = np.array([[0.5, 0.9, 0.2], [0.25, 0.1, 0.2]])
MARGINS = [[0.5, -1, 0], [1, -1, 0.5]]


@pytest.mark.parametrize(
    ("given_with", "scores", "order"),
    [
        ({"losses": -np.log(P_LABEL)}, [0.625, 0.5, 0.8], [2, 0, 1]),
        ({"margins": MARGINS}, [0.125, 1.0, 0.375], [1, 2, 0]),
        ({"losses": -np.log([[0.5, NAN, 0.2], [0.25, 0.1, NAN]])}, [0.625, 0.9, 0.8], [1, 2, 0]),
        ({"margins": [[0.5, NAN, 0.0], [1.0, -1.0, NAN]]}, [0.125, 1.0, 0.5], [1, 2, 0]),
    ],
    ids=["losses", "margins", "losses left out", "margins left out"],
)
def test_scores_are_means_over_the_epochs_that_include_an_example(given_with, scores, order):
    """Of 1 - p(label), or of (1 - margin) / 2, by hand."""
    issues = rank_label_issues(**given_with, noise_rate=1 / 3)
    np.testing.assert_allclose(issues.scores, scores, rtol=1e-14)
    assert issues.order.tolist() == order
    assert issues.suspects.tolist() == [i == order[0] for i in range(3)]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, "losses: must be given unless margins are, got neither;"),
        ({"losses": [1.0], "margins": [0.5]}, "losses: must be given unless .*, got both;"),
        ({"losses": [0.1, NAN]}, r"losses: must lie in \[0, inf\], got losses\[1\] = nan;"),
        ({"losses": [[0.1], [-1]]}, r"losses: must lie in .* got losses\[1, 0\] = -1;"),
        ({"losses": np.zeros((2, 2, 2))}, r"losses: must have shape .*got shape \(2, 2, 2\);"),
        ({"losses": []}, r"losses: must have shape \(n,\).*got shape \(0,\);"),
        ({"losses": [[0.1, NAN, NAN], [0.2, 0.3, NAN]]}, "losses: .*none for 1 of 3, .* at 2"),
        ({"margins": [0.5, 3.0]}, r"margins: must lie in \[-1, 1\], .*\[1\] = 3; .*logits"),
        ({"margins": [[0.1, 0.2], [NAN, NAN]]}, "margins: must have .*NaN alone in epoch 1"),
        ({"losses": [0.1], "labels": [0]}, "labels: must be given with margins, or .* got losses"),
        ({"margins": [0.1], "labels": [0, 1]}, "labels: must have an entry for each of losses or"),
        ({"margins": [0.1], "labels": [[0, 1]]}, r"labels: must have shape \(n,\), .*\(1, 2\);"),
        (BY_CLASS | {"noise_rate": [0.1]}, "noise_rate: must have an entry .* got 1 for 2;"),
        (BY_CLASS | {"noise_rate": [0.1, 1.2]}, r"noise_rate: must be .* \[0, 1\], got 1\.2;"),
    ],
)
def test_a_ranking_of_nothing_usable_is_refused(keywords, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        rank_label_issues(**keywords)


def test_a_share_of_each_class_leaves_rare_classes():
    """Of 8 a's and 4 b's a quarter each: 2 and 1, though every b looks worse than every a."""
    labels = np.array(list("aaaaaaaabbbb"))
    losses = np.array([0.1, 0.8, 0.2, 0.7, 0.3, 0.4, 0.5, 0.6, 2.0, 4.0, 3.0, 5.0])
    issues = rank_label_issues(losses, noise_rate=0.25, labels=labels)
    assert issues.order[:3].tolist() == [11, 1, 3]
    assert issues.order.tolist() == [11, 1, 3, 9, 10, 8, 7, 6, 5, 4, 2, 0]
    assert np.flatnonzero(issues.suspects).tolist() == [1, 3, 11]
    assert rank_label_issues(losses, noise_rate=0.25).suspects[8:].sum() == 3
    apart = rank_label_issues(losses, noise_rate=[0.5, 0.0], labels=labels)
    assert np.flatnonzero(apart.suspects).tolist() == [1, 3, 6, 7]


def test_labels_as_objects_are_words_or_numbers_of_one_kind():
    """A share of each class; whatever is missing or mixed is refused."""
    margins = [-0.5, 0.1, -0.1, 0.2]
    for kind in (["a", "a", "b", "b"], [1, np.int64(1), 2, 2], [True, True, False, False]):
        labels = np.array(kind, dtype=object)
        found = rank_label_issues(margins=margins, noise_rate=0.5, labels=labels)
        assert found.suspects.tolist() == [True, False, True, False]
    for kind in (["a", "a", "b", None], ["a", "a", "b", np.nan], ["1", 1, "2", 2], [1, 1, 2, None]):
        for rate in (None, 0.5):
            labels = np.array(kind, dtype=object)
            with pytest.raises(ValueError, match=r"^labels: must be numbers or words, got .*;"):
                rank_label_issues(margins=margins, noise_rate=rate, labels=labels)
