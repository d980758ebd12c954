"""Estimates of the noise rate and T: worked by hand, against cleanlab's counts, by properties."""

from fractions import Fraction

import numpy as np
import pytest
from contract import golden
from hypothesis import given
from hypothesis import strategies as st

import sigua
from sigua import _estimators, estimate_noise_rate, estimate_transition, label_losses, label_margins

# Five examples, of which the third says class 1 and is labelled 0.
P = [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.4, 0.6]]
Y = [0, 0, 0, 1, 1]
CONFIDENT_CASES = golden("confident_joint.json")["cases"]
METHODS = ["anchor", "confident"]


def close(T, rows):
    np.testing.assert_allclose(T.rows, np.array(rows, dtype=float), rtol=0, atol=1e-14)


# Worked by hand.


def test_anchor_is_the_most_confident_example_of_each_class():
    close(estimate_transition(P, method="anchor"), [[0.9, 0.1], [0.1, 0.9]])


def test_confident_counts_who_reaches_the_mean_of_a_label():
    """Thresholds .6 and .65: of the labels 0 two are 0 and one is 1, of the labels 1 one is 1.

    The fifth is sure of nothing, so the second row of p(true | observed) is that of the fourth. The
    joint counts, [observed, true], come to [[2, 1], [0, 2]].
    """
    close(estimate_transition(P, Y, method="confident"), [[1, 0], [1 / 3, 2 / 3]])
    assert estimate_noise_rate(P, Y, method="confident") == pytest.approx(1 / 5, abs=1e-14)


def test_confident_is_never_a_class_below_its_threshold_even_if_that_is_the_likeliest():
    """Thresholds .76, .6 and .45; the last is most likely 0, and confidently 2 only.

    So [observed, true] counts [[1, 0, 0], [0, 1, 0], [0, 0, 1]].
    """
    p = [[0.8, 0.1, 0.1], [0.72, 0.18, 0.1], [0.2, 0.6, 0.2], [0.5, 0.05, 0.45]]
    close(estimate_transition(p, [0, 0, 1, 2], method="confident"), np.eye(3))


def sure_and_unsure():
    """Return 100 surely predicted, 10 of them labelled otherwise, and 100 that are coin tosses.

    Both classes are as sure: .9 and .1 for the sure, .6 and .4 for the others.
    """
    p = np.repeat([[0.9, 0.1], [0.1, 0.9], [0.6, 0.4], [0.4, 0.6]], 50, axis=0)
    y = np.repeat([0, 1, 0, 1], 50)
    y[[*range(8), *range(50, 52), *range(100, 125), *range(150, 175)]] ^= 1
    return p, y


@pytest.mark.parametrize("backwards", [False, True])
def test_surest_counts_where_the_model_is_sure_in_whatever_order_they_come(backwards):
    """Of 50 of each class 8 and 2 are wrong, and two labels of .9 and .1 smooth: (42 + 1.8) / 52.

    All are equally sure, so that none is taken before another.
    """
    p, y = (part[::-1] if backwards else part for part in sure_and_unsure())
    T = estimate_transition(p, y, method="surest")
    close(T, [[43.8 / 52, 8.2 / 52], [2.2 / 52, 49.8 / 52]])
    assert estimate_noise_rate(p, y) == 0.1


def test_the_interval_of_the_surest_holds_the_rate_though_it_is_the_best_of_nine():
    """Well separated classes, 30 % wrong, 100 draws: the interval misses at most 7 times."""
    outside = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        predicted, wrong = rng.integers(0, 5, 2000), rng.random(2000) < 0.3
        found = _estimators.surest(predicted, rng.random(2000), (predicted + wrong) % 5, 5)
        outside += not found[1].low <= 0.3 <= found[1].high
    assert outside <= 7


def test_two_ways_that_disagree_warn_at_the_user_s_line_and_say_both():
    """Five normal classes that overlap, by Bayes's rule, a fifth of the labels wrong."""
    rng = np.random.default_rng(0)
    true = np.arange(3000) % 5
    x = np.eye(5)[true] + 0.8 * rng.standard_normal((3000, 5))
    p = np.exp(x / 0.64)
    T = sigua.TransitionMatrix.symmetric(0.2, 5)
    p, y = (p / p.sum(axis=1, keepdims=True)) @ T.rows, sigua.corrupt_labels(true, T)
    message = r"disagree: 0\.[12]\d among the most .*, 0\.[45]\d by confident .*check 100 labels"
    for function in (estimate_noise_rate, estimate_transition):
        with pytest.warns(UserWarning, match=message) as caught:
            function(p, y)
        assert caught[0].filename == __file__


def test_noise_rate_weighs_classes_by_the_frequencies_that_t_turns_into_the_observed_ones():
    """T = [[.8, .2], [.4, .6]] turns (1/4, 3/4) into (1/2, 1/2): the rate is .2/4 + .4 * 3/4."""
    p = [[0.8, 0.2], [0.4, 0.6], [0.4, 0.6], [0.4, 0.6]]
    assert estimate_noise_rate(p, method="anchor") == pytest.approx(0.35, abs=1e-14)
    counted = estimate_noise_rate(p, [0, 1, 0, 1], method="anchor")
    assert counted == pytest.approx(0.35, abs=1e-14)
    uneven = estimate_noise_rate(p, [0, 1, 1, 1], method="anchor")  # below what T can yield
    assert uneven == pytest.approx(0.4, abs=1e-14)


def test_label_losses_and_margins_are_of_the_label_s_probability():
    losses = label_losses([[0.25, 0.75], [1.0, 0.0], [0.0, 1.0]], [1, 0, 0])
    assert losses.tolist() == [-np.log(0.75), 0.0, np.inf]
    assert not np.signbit(losses[1])
    p = np.array([[0.7, 0.2, 0.1], [0.2, 0.3, 0.5], [0.0, 1.0, 0.0]])
    p.setflags(write=False)
    np.testing.assert_allclose(label_margins(p, [0, 1, 0]), [0.5, -0.2, -1.0], rtol=1e-14)


# Another library.


@pytest.mark.parametrize("case", CONFIDENT_CASES, ids=lambda case: f"n={len(case['labels'])}")
def test_confident_has_cleanlab_s_counts(case):
    """In exact arithmetic from its joint: rows scaled to the labels' counts, columns to 1."""
    labels, joint = case["labels"], case["confident_joint"]
    scales = [Fraction(labels.count(j), sum(row)) for j, row in enumerate(joint)]
    scaled = [[entry * scale for entry in row] for row, scale in zip(joint, scales, strict=True)]
    columns = list(zip(*scaled, strict=True))
    rows = [[entry / sum(column) for entry in column] for column in columns]
    close(estimate_transition(case["probabilities"], labels, method="confident"), rows)
    wrong = sum(scaled[j][i] for j in range(len(rows)) for i in range(len(rows)) if i != j)
    rate = estimate_noise_rate(case["probabilities"], labels, method="confident")
    assert rate == pytest.approx(float(wrong / len(labels)), abs=1e-12)


# Labels by name.

NAMES = ["2", "10", "9"]  # in the order of the columns, which is not that of sorting


@pytest.mark.parametrize("method", METHODS)
def test_labels_by_the_names_of_the_columns_are_those_columns(method):
    p, labels = sampled(0, num_classes=3)
    expected = estimate_transition(p, labels, method=method)
    rate = estimate_noise_rate(p, labels, method=method)
    words = np.array(NAMES)[labels]
    for kind in (words, words.astype(object), words.tolist()):
        assert estimate_transition(p, kind, method=method, classes=NAMES) == expected
        assert estimate_noise_rate(p, kind, method=method, classes=NAMES) == rate


def test_classes_may_be_any_numbers():
    p, labels = sampled(0)
    p, labels = p[labels > 0], labels[labels > 0]  # numbering them afresh would shift all
    expected = label_losses(p, labels).tolist()
    assert label_losses(p, labels.astype(object)).tolist() == expected
    assert label_losses(p, labels + 5, classes=[5, 6, 7, 8]).tolist() == expected


@pytest.mark.parametrize(
    ("p", "labels", "classes", "message"),
    [
        (P, list("aabbb"), None, r"^labels: must be integers .*classes=clf\.classes_"),
        (P, list("aabbc"), ["a", "b"], r"^labels: must be among the classes .* labels\[4\] = 'c'"),
        (P, Y, ["a", "b"], r"^labels: must be among the classes \['a', 'b'\], got labels\[0\] = 0"),
        (P, [[0, 1], [0]], None, r"^labels: must be an array, got lists of different lengths"),
        (P, Y, [0, 1, 2], r"^classes: must be 2 different names"),
        (P, Y, ["a", "a"], r"^classes: must be 2 different names"),
        (np.ma.masked_array(P, np.eye(5, 2)), Y, None, r"^probabilities: .*no masked .*2 of them"),
        (P, np.ma.masked_array(Y, [0, 0, 1, 0, 0]), None, r"^labels: .*no masked entries, got 1"),
        ([0.5, 0.5], [0], None, r"^probabilities: must have shape \(n, k\).*got shape \(2,\);"),
        (np.zeros((0, 3)), [], None, r"^probabilities: .*got shape \(0, 3\);"),
        (np.array([[0.5, 0.5j]]), [0], None, "^probabilities: must be an array of numbers, got co"),
        ([[0.9, 0.1], [0.9, 0.2]], [0, 1], None, r"^probabilities: .*\[1\] with sum 1.1 "),
        ([[90, 10], [20, 80]], [0, 1], None, r"^probabilities: .*sum 100 .*dividing percentages"),
        ([[1.5, -0.5], [0.5, 0.5]], [0, 1], None, r"^probabilities: .*\[0\] with .* from -0.5 "),
        (P, [0, 0, 2, 1, 1], None, r"^labels: must lie in \[0, 2\), got labels\[2\] = 2;"),
        (P, [0, 0, 1, 1], None, r"^labels: must have an entry for each of probabilities, got 4"),
        (P, np.eye(2)[Y], None, r"^labels: must be integers of shape \(n,\).*ravel.*argmax"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence_with_its_first_row(
    p, labels, classes, message
):
    for function in (estimate_transition, estimate_noise_rate, label_losses, label_margins):
        with pytest.raises(ValueError, match=message) as error:
            function(p, labels, classes=classes)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"method": "magic"}, r"^method: must be one of 'surest', 'anchor', 'confident'"),
        ({"method": "confident"}, r"^labels: must be given for method='confident', got None;"),
    ],
)
def test_a_method_must_be_known_and_have_its_labels(keywords, message):
    for function in (estimate_transition, estimate_noise_rate):
        with pytest.raises(ValueError, match=message):
            function(P, **keywords)


# Properties.


def sampled(seed, num_classes=4, size=300):
    """Return probabilities and labels that go together, every class among them."""
    rng = np.random.default_rng(seed)
    y = np.arange(size) % num_classes
    p = rng.dirichlet(np.full(num_classes, 0.3), size) + 2 * np.eye(num_classes)[y]
    noisy = np.where(rng.random(size) < 0.3, rng.integers(0, num_classes, size), y)
    return p / p.sum(axis=1, keepdims=True), noisy


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 2**32 - 1))
def test_classes_may_be_renamed_and_examples_reordered_and_repeated(method, seed):
    p, labels = sampled(seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(4)  # the new class c was order[c]
    T = estimate_transition(p, labels, method=method).rows
    renamed = estimate_transition(p[:, order], order.argsort()[labels], method=method).rows
    np.testing.assert_allclose(renamed, T[np.ix_(order, order)], rtol=0, atol=1e-13)
    rows = rng.permutation(np.repeat(np.arange(len(p)), 3))
    again = estimate_transition(p[rows], labels[rows], method=method).rows
    np.testing.assert_allclose(again, T, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_from_exact_probabilities_with_anchors_t_comes_back_exactly(seed):
    """Noisy posterior = clean posterior @ T, where some examples of each class are certain."""
    T = sigua.random_transition(5, noise_rate=0.4, seed=seed)
    clean = np.vstack([np.eye(5), np.random.default_rng(0).dirichlet(np.ones(5), 500)])
    close(estimate_transition(clean @ T.rows, method="anchor"), T.rows)


def test_none_for_labels_is_refused_where_they_are_needed():
    """Only "anchor" does without."""
    for function in (label_losses, label_margins, sigua.diagnose):
        with pytest.raises(ValueError, match=r"^labels: must be integers of shape \(n,\)"):
            function(P, None)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64])
def test_arrays_are_left_as_they_are_and_every_integer_dtype_gives_the_same(dtype):
    p, labels = sampled(0)
    p.setflags(write=False)  # so that a change would raise
    for method in METHODS:
        expected = estimate_transition(p, labels, method=method)
        assert estimate_transition(p, labels.astype(dtype), method=method) == expected


def test_sums_of_probabilities_that_are_off_by_less_than_two_percent_are_divided_out():
    """Of 100 classes, three decimals may be off by 1 %."""
    p, labels = sampled(1, num_classes=100, size=2000)
    coarse = p.round(3)
    sums = coarse.sum(axis=1)
    assert 1e-3 < np.abs(sums - 1).max() < 0.02
    own = coarse[np.arange(2000), labels] / sums
    np.testing.assert_allclose(np.exp(-label_losses(coarse, labels)), own, rtol=1e-12)
    with pytest.raises(ValueError, match=r"^probabilities: .*\[0\] with sum 1.03 "):
        label_losses([[0.5, 0.53]], [0])


# Classes of which nothing is known.


@pytest.mark.parametrize("method", METHODS)
def test_a_class_without_examples_is_taken_for_free_of_noise_and_named(method):
    p = np.hstack([P, np.zeros((5, 1))])
    expected = np.pad(estimate_transition(P, Y, method=method).rows, (0, 1))
    names = ["b", "a", "cat"]
    given_with = {"labels": [names[i] for i in Y], "classes": names, "method": method}
    with pytest.warns(UserWarning, match="^nothing is known about class cat: ") as first:
        T = estimate_transition(p, **given_with)
    close(T, expected + np.diag([0, 0, 1]))
    with pytest.warns(UserWarning, match="^nothing is known about class cat: ") as second:
        rate = estimate_noise_rate(p, **given_with)
    assert rate == pytest.approx(estimate_noise_rate(P, Y, method=method), abs=1e-14)
    assert first[0].filename == second[0].filename == __file__


def test_a_class_that_is_never_predicted_is_as_noisy_as_the_average():
    """Of 60 labels 6 say 1, which no example is predicted as: its row has the rate, .1."""
    p, y = [[0.8, 0.2]] * 60, [1] * 6 + [0] * 54
    with pytest.warns(UserWarning, match="about class 1: 'surest' assumes that it is as noisy"):
        T = estimate_transition(p, y)
    close(T, [[0.9, 0.1], [0.1, 0.9]])


def test_an_anchor_of_a_class_without_labels_is_not_taken_where_there_are_labels():
    p = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.7, 0.2]]
    with pytest.warns(UserWarning, match=r"about class 2: 'anchor'"):
        T = estimate_transition(p, [0, 1, 1], method="anchor")
    close(T, [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0, 0, 1]])


def test_a_class_without_probability_has_no_anchor_though_someone_is_labelled_so():
    p = [[0.8, 0.2, 0.0], [0.2, 0.8, 0.0], [0.3, 0.7, 0.0]]
    with pytest.warns(UserWarning, match=r"about class 2: 'anchor'"):
        T = estimate_transition(p, [0, 1, 2], method="anchor")
    close(T, [[0.8, 0.2, 0], [0.2, 0.8, 0], [0, 0, 1]])


def test_an_estimate_without_an_inverse_is_refused_in_one_sentence():
    """One example is the surest of both classes."""
    p = [[0.4, 0.4, 0.2], [0.3, 0.1, 0.6]]
    message = r"^probabilities: the estimated rows must make T invertible, .*; try another m"
    for function in (estimate_transition, estimate_noise_rate):
        with pytest.raises(ValueError, match=message):
            function(p, method="anchor")
