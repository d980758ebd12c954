"""Estimates of the noise rate and T: worked by hand, against cleanlab's counts, by properties."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sigua
from sigua import estimate_noise_rate, estimate_transition, label_losses

# Five examples, of which the third says class 1 and is labelled 0.
P = [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.4, 0.6]]
Y = [0, 0, 0, 1, 1]
CONFIDENT_CASES = json.loads(
    (Path(__file__).parent / "golden" / "confident_joint.json").read_text()
)["cases"]
METHODS = ["anchor", "confident", "dual-t", "gold"]


def arguments(method, labels):
    """Return the labels under the name by which a method takes them."""
    return {"method": method, "true_labels" if method == "gold" else "labels": labels}


def close(T, rows):
    np.testing.assert_allclose(T.rows, np.array(rows, dtype=float), rtol=0, atol=1e-14)


# Worked by hand.


def test_anchor_is_the_surest_example_of_each_class():
    close(estimate_transition(P, method="anchor"), [[0.9, 0.1], [0.1, 0.9]])


def test_quantile_takes_an_anchor_that_is_less_sure():
    """Of five in order, 0.75 is the fourth: 0.8 of .1 .3 .4 .8 .9, and 0.7 of .1 .2 .6 .7 .9."""
    T = estimate_transition(P, method="anchor", quantile=0.75)
    close(T, [[0.8, 0.2], [0.3, 0.7]])


def test_a_quantile_between_two_examples_takes_the_lower():
    T = estimate_transition(P, method="anchor", quantile=0.99)
    close(T, [[0.8, 0.2], [0.3, 0.7]])


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
    T = estimate_transition(p, [0, 0, 1, 2], method="confident")
    close(T, np.eye(3))


def sure_and_unsure():
    """Return 100 surely predicted, 10 of them labelled otherwise, and 100 that are coin tosses.

    Both classes alike: .9 and .1 for the sure, .6 and .4 for the others.
    """
    p = np.repeat([[0.9, 0.1], [0.1, 0.9], [0.6, 0.4], [0.4, 0.6]], 50, axis=0)
    y = np.repeat([0, 1, 0, 1], 50)
    y[[*range(5), *range(50, 55), *range(100, 125), *range(150, 175)]] ^= 1
    return p, y


def test_surest_counts_where_the_model_is_sure_and_smooths_by_a_label_of_each_class():
    """Of 50 of each class 5 are wrong; 2 more labels at a rate of .1: (45 + 1.8) / 52."""
    p, y = sure_and_unsure()
    T = estimate_transition(p, y, method="surest")
    close(T, [[46.8 / 52, 5.2 / 52], [5.2 / 52, 46.8 / 52]])
    assert estimate_noise_rate(p, y, method="surest") == 0.1


def test_two_ways_that_disagree_warn_at_the_user_s_line_and_say_both():
    """Five normal classes that overlap, by Bayes's rule, a fifth of the labels wrong."""
    rng = np.random.default_rng(0)
    true = np.arange(3000) % 5
    x = np.eye(5)[true] + 0.8 * rng.standard_normal((3000, 5))
    p = np.exp(x / 0.64)
    T = sigua.TransitionMatrix.symmetric(0.2, 5)
    p, y = (p / p.sum(axis=1, keepdims=True)) @ T.rows, sigua.corrupt_labels(true, T)
    message = r"disagree: 0\.[12]\d among the surest .*, 0\.[45]\d by confident .*check 100 labels"
    for function in (estimate_noise_rate, estimate_transition):
        with pytest.warns(UserWarning, match=message) as caught:
            function(p, y)
        assert caught[0].filename == __file__


def test_a_class_that_is_never_predicted_is_as_noisy_as_the_average():
    """Of 60 labels 6 say 1, which no example is predicted as: its row has the rate, .1."""
    p, y = [[0.8, 0.2]] * 60, [1] * 6 + [0] * 54
    with pytest.warns(UserWarning, match="about class 1: 'surest' assumes that it is as noisy"):
        T = estimate_transition(p, y)
    np.testing.assert_allclose(T.rows, [[0.9, 0.1], [0.1, 0.9]], rtol=0, atol=1e-14)


def test_dual_t_is_from_true_to_predicted_by_anchors_times_from_predicted_to_observed_by_counts():
    """[[.9, .1], [.1, .9]] times [[1, 0], [1/3, 2/3]]: the predictions are 0 0 1 1 1."""
    T = estimate_transition(P, Y, method="dual-t")
    close(T, [[14 / 15, 1 / 15], [0.4, 0.6]])


def test_gold_is_the_mean_over_those_that_are_of_a_class():
    T = estimate_transition(P, method="gold", true_labels=[0, 0, 1, 1, 0])
    close(T, [[0.7, 0.3], [0.2, 0.8]])


def test_noise_rate_of_gold_weighs_classes_as_they_were_checked():
    """Three of class 0 flip at 0.3 and two of class 1 at 0.2."""
    rate = estimate_noise_rate(P, method="gold", true_labels=[0, 0, 1, 1, 0])
    assert rate == pytest.approx((3 * 0.3 + 2 * 0.2) / 5, abs=1e-14)


def test_noise_rate_weighs_classes_by_the_frequencies_that_t_turns_into_the_observed_ones():
    """T = [[.8, .2], [.4, .6]] turns (1/4, 3/4) into (1/2, 1/2): the rate is .2/4 + .4 * 3/4."""
    p = [[0.8, 0.2], [0.4, 0.6], [0.4, 0.6], [0.4, 0.6]]
    assert np.mean(p, axis=0) == pytest.approx([0.5, 0.5])
    assert estimate_noise_rate(p, method="anchor") == pytest.approx(0.35, abs=1e-14)
    counted = estimate_noise_rate(p, [0, 1, 0, 1], method="anchor")
    assert counted == pytest.approx(0.35, abs=1e-14)
    uneven = estimate_noise_rate(p, [0, 1, 1, 1], method="anchor")  # below what T can yield
    assert uneven == pytest.approx(0.4, abs=1e-14)


# Another library.


@pytest.mark.parametrize("case", CONFIDENT_CASES, ids=lambda case: f"n={len(case['labels'])}")
def test_confident_has_cleanlab_s_counts(case):
    """In exact arithmetic from its joint: rows scaled to the labels' counts, columns to 1."""
    labels, joint = case["labels"], case["confident_joint"]
    scaled = [
        [Fraction(entry * labels.count(j), sum(row)) for entry in row]
        for j, row in enumerate(joint)
    ]
    columns = list(zip(*scaled, strict=True))
    rows = [[entry / sum(column) for entry in column] for column in columns]
    close(estimate_transition(case["probabilities"], labels, method="confident"), rows)
    wrong = sum(scaled[j][i] for j in range(len(rows)) for i in range(len(rows)) if i != j)
    rate = estimate_noise_rate(case["probabilities"], labels, method="confident")
    assert rate == pytest.approx(float(wrong / len(labels)), abs=1e-12)


# Labels by name.

NAMES = ["2", "10", "9"]  # in the order of the columns, which is not that of sorting


class Frame:
    """What the core knows of a data frame: an array whose columns have names."""

    def __init__(self, values, columns):
        self.values, self.columns = np.asarray(values), columns

    def __array__(self, dtype=None, copy=None):
        return self.values


@pytest.mark.parametrize("method", METHODS)
def test_labels_by_the_names_of_the_columns_are_those_columns(method):
    p, labels = sampled(0, num_classes=3)
    expected = estimate_transition(p, **arguments(method, labels))
    rate = estimate_noise_rate(p, **arguments(method, labels))
    words = np.array(NAMES)[labels]
    for kind in (words, words.astype(object), words.tolist()):
        given_labels = arguments(method, kind)
        assert estimate_transition(p, **given_labels, classes=NAMES) == expected
        assert estimate_transition(Frame(p, NAMES), **given_labels) == expected
        assert estimate_noise_rate(Frame(p, NAMES), **given_labels, classes=NAMES) == rate


def test_clean_labels_by_name_have_no_noise_though_sorting_would_number_them_otherwise():
    """'10' sorts before '2' and '9': numbered so, 2/3 of these would be wrong."""
    p, words = np.eye(3).repeat(5, axis=0), np.array(NAMES).repeat(5)
    assert estimate_noise_rate(p, words, classes=NAMES) == 0
    assert estimate_noise_rate(p, np.unique(words, return_inverse=True)[1]) > 0.5
    assert estimate_noise_rate(p, words, classes=NAMES, method="mixture") == 0
    assert (label_losses(p, words, classes=NAMES) == 0).all()
    assert (sigua.label_margins(p, words, classes=NAMES) == 1).all()


def test_a_diagnosis_of_labels_by_name_is_that_of_their_columns():
    p, labels = sampled(0, num_classes=3)
    words, true = np.array(NAMES)[labels], np.array(NAMES)[p.argmax(axis=1)]
    expected = sigua.diagnose(p, labels, p.argmax(axis=1)[:50], checked=range(50))
    named = sigua.diagnose(p, words, true[:50], checked=range(50), classes=NAMES)
    assert str(named) == str(expected)
    assert str(sigua.diagnose(Frame(p, NAMES), words, true[:50], checked=range(50))) == str(named)


def test_a_class_that_no_label_names_keeps_its_column():
    """No label is '2': the others are still columns 1 and 2, which '10' and '9' name."""
    p = [[0.1, 0.7, 0.2], [0.3, 0.2, 0.5]]
    np.testing.assert_allclose(label_losses(p, ["10", "9"], classes=NAMES), -np.log([0.7, 0.5]))
    np.testing.assert_allclose(label_losses(p, [1, 2]), -np.log([0.7, 0.5]))


def test_object_arrays_of_integers_are_the_integers():
    p, labels = sampled(0)
    kept = labels > 0  # without class 0, numbering them afresh would shift all
    assert label_losses(p[kept], labels[kept].astype(object)).tolist() == (
        label_losses(p[kept], labels[kept]).tolist()
    )


def test_classes_may_be_any_numbers_and_a_frame_s_counted_columns_are_no_names():
    p, labels = sampled(0)
    expected = label_losses(p, labels).tolist()
    assert label_losses(p, labels + 5, classes=[5, 6, 7, 8]).tolist() == expected
    assert label_losses(Frame(p, range(4)), labels).tolist() == expected
    assert label_losses(Frame(p, range(4)), labels + 5, classes=[5, 6, 7, 8]).tolist() == expected


@pytest.mark.parametrize(
    ("p", "labels", "classes", "message"),
    [
        (P, list("aabbb"), None, r"^labels: must be integers .*classes=clf\.classes_"),
        (P, list("aabbc"), ["a", "b"], r"^labels: must be among the classes .* labels\[4\] = 'c'"),
        (P, Y, ["a", "b"], r"^labels: must be among the classes \['a', 'b'\], got labels\[0\] = 0"),
        (P, [0, None, 0, 1, 1], [0, 1], r"^labels: must be among .* labels\[1\] = None"),
        (P, [[0, 1], [0]], None, r"^labels: must be an array, got lists of different lengths"),
        (P, [True, 0, 0, 1, object()], None, r"^labels: must be integers"),
        (P, Y, [0, 1, 2], r"^classes: must be 2 different names"),
        (P, Y, ["a", "a"], r"^classes: must be 2 different names"),
        (P, Y, "ab", r"^classes: must be 2 different names"),
        (Frame(P, ["a", "b"]), Y, None, r"^labels: must be among .*probabilities\.to_numpy\(\)"),
        (
            Frame(P, ["b", "a"]),
            list("aabbb"),
            ["a", "b"],
            r"^classes: must be the columns .* in their order, got \['a', 'b'\]; "
            r"try probabilities\[list\(classes\)\]",
        ),
        (
            np.ma.masked_array(P, np.eye(5, 2)),
            Y,
            None,
            r"^probabilities: must have no masked entries, got 2 of them",
        ),
        (P, np.ma.masked_array(Y, [0, 0, 1, 0, 0]), None, r"^labels: .*no masked entries, got 1"),
        ([[0.5, 0.5], [1.0]], [0, 1], None, r"^probabilities: must be an array, got lists of diff"),
    ],
)
def test_names_that_do_not_fit_and_arrays_that_are_none_are_refused(p, labels, classes, message):
    for function in (estimate_transition, estimate_noise_rate, label_losses, sigua.label_margins):
        with pytest.raises(ValueError, match=message) as error:
            function(p, labels, classes=classes)
        assert "\n" not in str(error.value)


def test_a_masked_array_without_a_masked_entry_is_an_array():
    expected = label_losses(P, Y).tolist()
    assert label_losses(np.ma.masked_array(P), np.ma.masked_array(Y)).tolist() == expected


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
def test_renaming_the_classes_renames_rows_and_columns(method, seed):
    p, labels = sampled(seed)
    order = np.random.default_rng(seed).permutation(4)  # the new class c was order[c]
    T = estimate_transition(p, **arguments(method, labels)).rows
    renamed = estimate_transition(p[:, order], **arguments(method, order.argsort()[labels])).rows
    np.testing.assert_allclose(renamed, T[np.ix_(order, order)], rtol=0, atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 2**32 - 1))
def test_order_and_repetition_of_the_examples_are_of_no_account(method, seed):
    p, labels = sampled(seed)
    rows = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(p)), 3))
    T = estimate_transition(p, **arguments(method, labels)).rows
    again = estimate_transition(p[rows], **arguments(method, labels[rows])).rows
    np.testing.assert_allclose(again, T, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "T", [sigua.random_transition(5, noise_rate=0.4, seed=s) for s in range(3)]
)
def test_from_exact_probabilities_with_anchors_t_comes_back_exactly(T):
    """Noisy posterior = clean posterior @ T, where some examples of each class are certain."""
    rng = np.random.default_rng(0)
    clean = np.vstack([np.eye(5), rng.dirichlet(np.ones(5), 500)])
    close(estimate_transition(clean @ T.rows, method="anchor"), T.rows)
    certain = np.arange(500) % 5
    p = np.eye(5)[certain] @ T.rows
    close(estimate_transition(p, method="gold", true_labels=certain), T.rows)
    rate = estimate_noise_rate(p, method="gold", true_labels=certain)
    assert rate == pytest.approx(1 - T.rows.trace() / 5, abs=1e-12)


@pytest.mark.parametrize("method", ["confident", "dual-t"])
def test_from_certain_probabilities_of_the_true_class_counting_gives_the_realised_t(method):
    y = np.arange(3000) % 3
    noisy = sigua.corrupt_labels(y, sigua.TransitionMatrix.pair(0.3, 3), seed=0)
    realised = np.array([np.bincount(noisy[y == i], minlength=3) / 1000 for i in range(3)])
    T = estimate_transition(np.eye(3)[y], noisy, method=method)
    close(T, realised)
    rate = estimate_noise_rate(np.eye(3)[y], noisy, method=method)
    assert rate == pytest.approx((noisy != y).mean(), abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint64])
def test_arrays_are_left_as_they_are_and_every_integer_dtype_gives_the_same(method, dtype):
    p, labels = sampled(0)
    expected = estimate_transition(p, **arguments(method, labels))
    before, small = p.copy(), labels.astype(dtype)
    for array in (p, small):
        array.setflags(write=False)
    T = estimate_transition(p, **arguments(method, small))
    estimate_noise_rate(p, **arguments(method, small))
    assert expected == T
    assert np.array_equal(p, before)
    assert np.array_equal(small, labels)


def rounded_to_bfloat16(p):
    """Return float32 with the 16 bits kept that bfloat16 has, rounded down."""
    return (p.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


@pytest.mark.parametrize(
    "rounded", [rounded_to_bfloat16, lambda p: p.round(3)], ids=["bfloat16", "three decimals"]
)
def test_probabilities_whose_rounded_sums_are_off_by_less_than_two_percent_are_divided_out(rounded):
    """As PyTorch's criterion takes them: of 100 classes, three decimals may be off by 1 %."""
    p, labels = sampled(1, num_classes=100, size=2000)
    coarse = rounded(p)
    sums = coarse.astype(float).sum(axis=1)
    assert 1e-3 < np.abs(sums - 1).max() < 0.02
    own = coarse[np.arange(2000), labels] / sums
    np.testing.assert_allclose(np.exp(-label_losses(coarse, labels)), own, rtol=1e-12)
    with pytest.raises(ValueError, match=r"^probabilities: .*\[0\] with sum 1.03 "):
        label_losses([[0.5, 0.53]], [0])


def test_float16_probabilities_whose_rounded_sums_are_off_are_taken():
    p, labels = sampled(1, num_classes=10)
    half = p.astype(np.float16)
    assert (half.astype(float).sum(axis=1) != 1).any()
    T = estimate_transition(half, labels)
    np.testing.assert_allclose(T.rows.sum(axis=1), 1, atol=1e-12)


# Classes of which nothing is known.


def three_classes(p):
    """Return `p` with a column of zeros for a class 2 that nothing is known of."""
    return np.hstack([p, np.zeros((len(p), 1))])


@pytest.mark.parametrize("method", METHODS)
def test_a_class_without_examples_is_taken_for_free_of_noise_and_named(method):
    with pytest.warns(UserWarning, match=r"^nothing is known about class 2: ") as caught:
        T = estimate_transition(three_classes(P), **arguments(method, Y))
    close(
        T, np.pad(estimate_transition(P, **arguments(method, Y)).rows, (0, 1)) + np.diag([0, 0, 1])
    )
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=r"^nothing is known about class 2: ") as caught:
        rate = estimate_noise_rate(three_classes(P), **arguments(method, Y))
    assert rate == pytest.approx(estimate_noise_rate(P, **arguments(method, Y)), abs=1e-14)
    assert caught[0].filename == __file__


def test_an_anchor_of_a_class_without_labels_is_not_taken_where_there_are_labels():
    p = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.7, 0.2]]
    with pytest.warns(UserWarning, match=r"about class 2: 'anchor'"):
        T = estimate_transition(p, [0, 1, 1], method="anchor")
    close(T, [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0, 0, 1]])


def test_a_class_that_nobody_is_confidently_is_named():
    """All are alike, and reach both thresholds: .9 for 0, which is likelier, and .1 for 1."""
    with pytest.warns(UserWarning, match=r"about class 1: 'confident'"):
        T = estimate_transition([[0.9, 0.1]] * 3, [0, 0, 1], method="confident")
    close(T, [[2 / 3, 1 / 3], [0, 1]])


def test_a_class_that_is_never_predicted_is_named_by_dual_t():
    """Predicted are 0 0 0, observed as 0 0 1; what would be predicted as 1 is observed as 1."""
    with pytest.warns(UserWarning, match=r"about class 1: 'dual-t'"):
        T = estimate_transition([[0.6, 0.4], [0.7, 0.3], [0.9, 0.1]], [0, 0, 1], method="dual-t")
    close(T, [[0.6, 0.4], [0.4, 0.6]])


def test_an_estimate_without_an_inverse_is_refused_in_one_sentence():
    """One example is the surest of both classes."""
    p = [[0.4, 0.4, 0.2], [0.3, 0.1, 0.6]]
    message = r"^probabilities: the estimated rows must make T invertible, .*; try another m"
    with pytest.raises(ValueError, match=message):
        estimate_transition(p, method="anchor")
    with pytest.raises(ValueError, match=message):
        estimate_noise_rate(p, method="anchor")


# The mixture.


def test_mixture_weighs_the_larger_losses():
    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.uniform(0.05, 0.3, 700), rng.uniform(2.0, 4.0, 300)])
    rate = estimate_noise_rate(losses=rng.permutation(losses), method="mixture")
    assert rate == pytest.approx(0.3, abs=1e-6)


def test_mixture_sees_through_an_overlap():
    """Losses are -log(1 - v) with v from N(.3, .1) and N(.7, .1): 2 % lie beyond the middle.

    The weight's standard error is that of a proportion, 0.0030, and a little for the overlap.
    """
    rng = np.random.default_rng(0)
    wrong = rng.random(20_000) < 0.25
    values = np.clip(rng.normal(np.where(wrong, 0.7, 0.3), 0.1), 0, 0.999)
    rate = estimate_noise_rate(losses=-np.log1p(-values), method="mixture")
    assert rate == pytest.approx(wrong.mean(), abs=0.005)


def test_mixture_takes_probabilities_and_labels_instead_of_losses():
    p, labels = sampled(2)
    rate = estimate_noise_rate(p, labels, method="mixture")
    assert rate == estimate_noise_rate(losses=label_losses(p, labels), method="mixture")
    assert 0 < rate < 1


@pytest.mark.parametrize("losses", [[0.5], [0.5] * 9, [np.inf] * 9, [0.0] * 9])
def test_mixture_of_equal_losses_finds_no_noise(losses):
    assert estimate_noise_rate(losses=losses, method="mixture") == 0


def test_mixture_takes_infinite_losses_for_large():
    assert estimate_noise_rate(losses=[0.0, 0.1, 0.0, np.inf], method="mixture") == 0.25


def test_label_losses_are_minus_log_of_the_label_s_probability():
    losses = label_losses([[0.25, 0.75], [1.0, 0.0], [0.0, 1.0]], [1, 0, 0])
    assert losses.tolist() == [-np.log(0.75), 0.0, np.inf]
    assert not np.signbit(losses[1])


def test_sums_that_are_a_little_off_are_divided_out():
    assert label_losses([[0.25, 0.7505]], [0]) == pytest.approx(np.log(1.0005 / 0.25), abs=1e-14)


# Bad input.

BAD = [
    (([0.5, 0.5], [0]), r"^probabilities: must have shape \(n, k\).*got shape \(2,\);"),
    ((np.zeros((0, 3)), []), r"^probabilities: .*got shape \(0, 3\);"),
    (([[0.9, 0.1], [0.9, 0.2]], [0, 1]), r"^probabilities: .*probabilities\[1\] with sum 1.1 "),
    (
        ([[90, 10], [20, 80]], [0, 1]),
        r"^probabilities: .*\[0\] with sum 100 .*dividing percentages",
    ),
    (([[1.5, -0.5], [0.5, 0.5]], [0, 1]), r"^probabilities: .*\[0\] with sum 1 and .* from -0.5 "),
    (([[0.5, 0.5], [np.nan, 1.0]], [0, 1]), r"^probabilities: .*\[1\] with sum nan "),
    ((P, [0, 0, 2, 1, 1]), r"^labels: must lie in \[0, 2\), got labels\[2\] = 2;"),
    ((P, [0, 0, 1, 1]), r"^labels: must have an entry for each of probabilities, got 4 for 5;"),
    ((P, np.eye(2)[Y]), r"^labels: must be integers of shape \(n,\).*argmax"),
    ((P, np.array(Y)[:, None]), r"^labels: must be integers of shape \(n,\).*ravel"),
]


@pytest.mark.parametrize(("positional", "message"), BAD)
def test_bad_input_is_named_with_its_first_row(positional, message):
    for function in (estimate_transition, estimate_noise_rate, label_losses):
        with pytest.raises(ValueError, match=message) as error:
            function(*positional)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=message.replace("labels", "true_labels")):
        estimate_transition(positional[0], method="gold", true_labels=positional[1])
    with pytest.raises(ValueError, match=message):
        estimate_noise_rate(*positional, method="mixture")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"method": "magic"}, r"^method: must be one of 'surest', 'anchor', 'confident'"),
        ({"method": "confident"}, r"^labels: must be given for method='confident', got None;"),
        ({"method": "dual-t"}, r"^labels: must be given for method='dual-t'"),
        ({"method": "gold"}, r"^true_labels: must be given for method='gold'"),
        ({"method": "anchor", "true_labels": Y}, r"^true_labels: must be left out for 'anchor'"),
        ({"method": "anchor", "quantile": 97}, r"^quantile: .*\[0, 1\], got 97; .*0\.97"),
        (
            {"method": "gold", "true_labels": Y, "labels": Y},
            r"^labels: must be left out for 'gold'",
        ),
        ({"labels": Y, "quantile": 0.97}, r"^quantile: must be left out for 'surest'"),
    ],
)
def test_what_is_missing_superfluous_or_in_percent_is_refused(keywords, message):
    for function in (estimate_transition, estimate_noise_rate):
        with pytest.raises(ValueError, match=message):
            function(P, **keywords)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, r"^losses: must be given for method='mixture', got None; try losses=, or"),
        ({"probabilities": P}, r"^losses: must be given for method='mixture'"),
        ({"losses": [0.1], "labels": [0]}, r"^labels: must be left out for 'mixture with losses'"),
        ({"losses": [0.1], "true_labels": [0]}, r"^true_labels: must be left out for 'mixture'"),
        ({"losses": [0.1, -0.2]}, r"^losses: must lie in \[0, inf\], got losses\[1\] = -0.2;"),
        ({"losses": [0.1, np.nan]}, r"^losses: must lie in \[0, inf\], got losses\[1\] = nan;"),
        ({"losses": [[0.1], [0.2]]}, r"^losses: must have shape \(n,\), got shape \(2, 1\);"),
        ({"losses": []}, r"^losses: must have shape"),
        ({"losses": 0.5}, r"^losses: must have shape"),
    ],
)
def test_losses_that_are_none_are_refused(keywords, message):
    with pytest.raises(ValueError, match=message):
        estimate_noise_rate(method="mixture", **keywords)


def test_losses_are_for_the_mixture_only():
    with pytest.raises(ValueError, match=r"^losses: must be left out for 'anchor'"):
        estimate_noise_rate(P, method="anchor", losses=[0.1])
