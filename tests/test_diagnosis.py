"""What the diagnosis says of noises whose posteriors are known exactly, by Bayes's rule."""

import numpy as np
import pytest

import sigua
from sigua import diagnose

K = 5


def overlapping(n=5000, seed=0, spread=0.8):
    """Return x = onehot + spread * normal, true classes, and p(true | x), by Bayes's rule."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, K, n)
    x = np.eye(K)[true] + spread * rng.standard_normal((n, K))
    p = np.exp((x - x.max(axis=1, keepdims=True)) / spread**2)
    return x, true, p / p.sum(axis=1, keepdims=True)


def noisy(T, spread=0.8):
    """Return p(observed | x), labels observed, and true ones."""
    _, true, p = overlapping(spread=spread)
    return p @ T.rows, sigua.corrupt_labels(true, T, seed=0), true


def by_rule():
    """Return the same where labels are 1 wherever x1 > 0.5: a model can predict each error."""
    x, true, p = overlapping()
    rule = x[:, 1] > 0.5
    return np.where(rule[:, None], np.eye(K)[1], p), np.where(rule, 1, true), true


def some(n, m=200):
    return np.random.default_rng(0).choice(n, m, replace=False)


NOISES = {
    "clean": sigua.TransitionMatrix.symmetric(0.0, K),
    "sym-20": sigua.TransitionMatrix.symmetric(0.2, K),
    "sym-40": sigua.TransitionMatrix.symmetric(0.4, K),
    "pair-20": sigua.TransitionMatrix.pair(0.2, K),
    "asym": sigua.mapped_transition({1: 0, 3: 2}, 0.4, K),
}


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("spread", [0.8, 0.3])
def test_the_noise_rate_is_right_whether_classes_overlap_or_not(name, spread):
    """Without any checked label; within 0.08, where confident counting is off by up to 0.34."""
    p, y, true = noisy(NOISES[name], spread)
    found = diagnose(p, y)
    assert found.noise_rate.value == pytest.approx((y != true).mean(), abs=0.08)
    assert found.noise_rate.low - 0.02 <= (y != true).mean() <= found.noise_rate.high


def test_overlapping_classes_are_told_from_noise():
    p, y, _ = noisy(NOISES["sym-20"])
    assert diagnose(p, y).overlap
    p, y, _ = noisy(NOISES["sym-20"], spread=0.2)
    assert not diagnose(p, y).overlap


def test_errors_that_follow_from_the_input_are_found_by_checked_labels_alone():
    """The model predicts every wrong label as given, and the surest examples say 0."""
    p, y, true = by_rule()
    checked = some(len(y))
    blind = diagnose(p, y)
    assert blind.noise_rate.value < 0.05 < 0.2 < (y != true).mean()
    assert blind.follows_input is None
    assert "check 100 labels" in str(blind)
    seen = diagnose(p, y, true[checked], checked)
    assert seen.noise_rate.low <= (y != true).mean() <= seen.noise_rate.high
    assert seen.reproduced.value == 1
    assert seen.follows_input == "yes"


@pytest.mark.parametrize("name", ["sym-20", "sym-40", "pair-20", "asym"])
def test_noise_that_depends_on_the_class_alone_does_not_follow_from_the_input(name):
    p, y, true = noisy(NOISES[name], spread=0.3)
    checked = some(len(y), 400)
    assert diagnose(p, y, true[checked], checked).follows_input == "no"


def test_one_class_for_another_is_told_and_named():
    found = diagnose(*noisy(NOISES["asym"], spread=0.3)[:2])
    assert found.one_for_another
    assert {(i, j) for i, j, _ in found.confusions} == {(1, 0), (3, 2)}
    assert "1 for 0 (4" in str(found)
    assert not diagnose(*noisy(NOISES["sym-40"], spread=0.3)[:2]).one_for_another


def test_what_is_counted_is_what_was_checked():
    """By hand: of 4 checked 2 are wrong, one of which is predicted as given, one rightly."""
    p = [[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.1, 0.9], [0.6, 0.4]]
    found = diagnose(p, [0, 1, 1, 1, 0], true_labels=[0, 0, 0, 1], checked=[0, 1, 2, 3])
    assert found.num_checked == 4
    assert found.counted.value == 0.5
    assert (found.reproduced.value, found.corrected.value) == (0.5, 0.5)
    assert found.accuracy.value == 0.75
    assert found.agreement.value == 0.8
    assert found.expected_agreement == pytest.approx((0.9 + 0.9 + 0.8 + 0.9 + 0.6) / 5)


def drawn(n, m, seed):
    return np.random.default_rng(seed).choice(n, m, replace=False)


@pytest.mark.parametrize("m", [1, 5, 20, 100])
def test_few_checked_labels_never_make_it_worse(m):
    """Classes apart, 10 % wrong: of 60 draws at most one says anything but the blind diagnosis.

    The count alone says 0 % (0 to 98) of a single label that is right.
    """
    p, y, true = noisy(sigua.TransitionMatrix.symmetric(0.1, K), spread=0.2)
    blind = diagnose(p, y)
    assert blind.advice.method == sigua.sigua_ag()
    other = narrower = 0
    for seed in range(60):
        places = drawn(len(y), m, seed)
        found = diagnose(p, y, true[places], places)
        other += found.advice.method != sigua.sigua_ag() or found.overlap
        narrower += found.noise_rate.high - found.noise_rate.low <= 0.04
    assert other <= 1
    assert narrower >= 59


def test_a_count_and_the_model_say_together_what_their_intervals_have_in_common():
    """One right label says 0 to 98 %, the model 20 to 24: the model's it is."""
    T = sigua.TransitionMatrix.symmetric(0.22, K)
    p, y, true = noisy(T, spread=0.2)
    right = np.flatnonzero(y == true)[:1]
    found = diagnose(p, y, true[right], right)
    assert (found.counted.low, found.counted.high) == pytest.approx((0, 0.975))
    assert (found.noise_rate.low, found.noise_rate.high) == (found.surest.low, found.surest.high)
    assert found.noise_rate.value == pytest.approx(found.surest.value, abs=1e-3)
    assert "counted and by the model" in str(found)
    many = drawn(len(y), 1000, 0)
    found = diagnose(p, y, true[many], many)
    assert found.noise_rate.low == max(found.counted.low, found.surest.low)
    assert found.noise_rate.high == min(found.counted.high, found.surest.high)


def test_hardly_any_label_is_wrong_only_if_the_interval_says_so():
    """Of 60 labels 2 are wrong, 3 %, but it may be 12: too few to say."""
    p = np.repeat([[0.95, 0.05], [0.05, 0.95]], 30, axis=0)
    y = np.repeat([0, 1], 30)
    y[[0, 30]] ^= 1
    found = diagnose(p, y)
    assert found.noise_rate.value < 0.05 < 0.1 < found.noise_rate.high
    assert "hardly any" not in found.advice.why
    assert "hardly any" in diagnose(np.tile(p, (9, 1)), np.tile(y, 9)).advice.why


NAMES = ["10", "1", "2", "b", "a"]


def test_a_report_of_labels_by_name_has_names_only():
    """The classes are in the order of the columns, as are the rows and columns of T."""
    p, y, true = noisy(NOISES["asym"], spread=0.3)
    names = np.array(NAMES)
    numbers = diagnose(p, y, true[:200], range(200))
    found = diagnose(p, names[y], names[true[:200]], range(200), classes=NAMES)
    assert found.classes == tuple(NAMES)
    assert numbers.classes == (0, 1, 2, 3, 4)
    assert found.T == numbers.T
    assert {(i, j) for i, j, _ in found.confusions} == {("1", "10"), ("b", "2")}
    assert "mostly b for 2 (4" in str(found) or "mostly 1 for 10 (4" in str(found)
    frame = pandas_like(p, NAMES)
    assert str(diagnose(frame, names[y], names[true[:200]], range(200))) == str(found)


def pandas_like(values, columns):
    """Return what the core knows of a data frame: an array whose columns have names."""
    frame = np.asarray(values).view(type("Frame", (np.ndarray,), {}))
    frame.columns = columns
    return frame


def test_columns_in_another_order_are_told_by_name():
    """The labels of what it predicts as 1 are 2, and the other way round."""
    p, y, _ = noisy(NOISES["sym-20"], spread=0.2)
    found = diagnose(p[:, [0, 2, 1, 3, 4]], np.array(NAMES)[y], classes=NAMES)
    (doubt,) = found.doubts
    assert doubt.startswith(
        ("what it predicts as 1 is mostly labelled 2:", "what it predicts as 2")
    )
    assert doubt in str(found)
    assert diagnose(p, y).doubts == ()


def test_a_model_that_is_far_surer_than_right_or_that_saw_the_labels_is_told():
    p, y, _ = noisy(NOISES["sym-20"], spread=0.2)
    shuffled = np.random.default_rng(0).permutation(y)
    assert "rows and labels in one order" in diagnose(p, shuffled).doubts[0]
    seen = 0.7 * np.eye(K)[y] + 0.06  # in sample: a forest gives each label its vote
    found = diagnose(seen, y)
    assert "was it trained on them" in found.doubts[0]
    assert found.noise_rate.high < 0.01


def test_checked_labels_that_were_picked_are_told_and_have_no_say():
    """The most suspicious of 20 % wrong: the model predicts none of them as given."""
    p, y, true = noisy(NOISES["sym-20"], spread=0.2)
    places = np.argsort(p[np.arange(len(y)), y])[:100]
    found, blind = diagnose(p, y, true[places], places), diagnose(p, y)
    assert not found.at_random
    assert found.doubts == ("it predicts 0 % of the checked labels: they must be drawn at random",)
    assert found.counted.value == 1
    assert (found.noise_rate, found.T, found.advice) == (blind.noise_rate, blind.T, blind.advice)
    assert found.follows_input is None
    assert "unknown: check 100 labels" in str(found)
    for seed in range(20):
        places = drawn(len(y), 100, seed)
        assert diagnose(p, y, true[places], places).at_random


def test_a_mask_and_indices_are_the_same():
    p, y, true = noisy(NOISES["sym-20"])
    checked = np.sort(some(len(y)))
    mask = np.zeros(len(y), dtype=bool)
    mask[checked] = True
    assert diagnose(p, y, true[checked], checked) == diagnose(p, y, true[mask], mask)


def advice(name, spread, m=0):
    p, y, true = noisy(NOISES[name], spread)
    if not m:
        return diagnose(p, y).advice
    checked = some(len(y), m)
    return diagnose(p, y, true[checked], checked).advice


def test_the_advice_is_by_what_is_known():
    """Plain where hardly a label is wrong; by agreement where classes are apart; else by T."""
    assert advice("clean", 0.3).method == sigua.standard()
    assert advice("clean", 0.3, 200).method == sigua.standard()
    assert advice("sym-40", 0.2).method == sigua.sigua_ag()
    assert type(advice("sym-20", 0.8).method) is sigua.forward_correction
    assert "check 100 labels at random" in advice("sym-20", 0.8).why
    counted = advice("sym-20", 0.8, 200)
    assert type(counted.method) is sigua.forward_correction
    assert "half of the checked" in counted.take


def test_checked_labels_say_which_method_they_go_with():
    """Agreement if errors spread over classes that are apart; T if they go to one, or follow x."""
    assert advice("sym-40", 0.2, 200).method == sigua.sigua_ag()
    assert "sigua_ag(), and half of the checked" in advice("sym-40", 0.2, 200).take
    assert type(advice("pair-20", 0.2, 200).method) is sigua.forward_correction
    p, y, true = by_rule()
    for m in (60, 200):
        found = diagnose(p, y, true[:m], np.arange(m))
        assert found.follows_input == "yes"
        assert found.advice.method == sigua.forward_correction(found.T)


def test_t_is_counted_with_the_surest_for_a_prior_where_the_two_agree():
    p, y, true = noisy(NOISES["pair-20"], 0.3)
    checked = some(len(y))
    prior = sigua.estimate_transition(p, y)
    found = diagnose(p, y, true[checked], checked)
    assert sigua.count_transition(y[checked], true[checked], K, prior=prior) == found.T


def test_labels_by_a_rule_need_the_checked_ones():
    p, y, true = by_rule()
    checked = some(len(y))
    found = diagnose(p, y, true[checked], checked)
    assert "learns their errors" in found.advice.why
    assert sigua.count_transition(y[checked], true[checked], K) == found.T  # no prior
    assert found.T.rows[2, 1] > 0.1


def test_it_prints_in_some_ten_lines_of_terminal_width():
    p, y, true = noisy(NOISES["sym-20"])
    for text in (str(diagnose(p, y)), str(diagnose(p, y, true[:200], np.arange(200)))):
        lines = text.splitlines()
        assert len(lines) <= 12
        assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"checked": [0]}, "true_labels: must be given with checked, got None;"),
        ({"true_labels": [0]}, "true_labels: must have an entry for each of the 3 checked, got 1"),
        ({"true_labels": [0, 1], "checked": [0]}, "true_labels: .* the 1 checked, got 2"),
        ({"true_labels": [0], "checked": [True, False]}, r"checked: a mask must have shape \(3,\)"),
        ({"true_labels": [0], "checked": [3]}, r"checked: must be indices in \[0, 3\), got 3 to 3"),
        ({"true_labels": [0], "checked": [-1]}, r"checked: must be indices in \[0, 3\), got -1 to"),
        ({"true_labels": [0], "checked": [0.5]}, r"checked: must be indices or a bool mask, got"),
        ({"true_labels": [0], "checked": [[1], [2, 0]]}, "checked: must be an array, got lists of"),
        ({"true_labels": [0, 1], "checked": [1, 0, 1]}, r"checked: .*; try checked.astype\(bool\)"),
        ({"true_labels": [0, 0], "checked": [1, 1]}, "checked: must name each example once"),
        ({"true_labels": [2], "checked": [1]}, r"true_labels: must lie in \[0, 2\)"),
    ],
)
def test_bad_input_is_refused(keywords, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        diagnose([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]], [0, 0, 1], **keywords)


@pytest.mark.parametrize("kind", ["flat", "shuffled", "one class"])
def test_a_model_that_knows_nothing_is_said_to_know_nothing(kind):
    """No better than guessing: near-uniform rows, labels in another order, or all the same."""
    rng = np.random.default_rng(0)
    p, y, _ = noisy(sigua.TransitionMatrix.symmetric(0.0, K))
    if kind == "flat":
        p, y = rng.dirichlet(np.full(4, 50), 1500), rng.integers(0, 4, 1500)
    elif kind == "shuffled":
        y = rng.permutation(y)
    else:
        y = np.zeros_like(y)
    found = diagnose(p, y)
    assert found.above_chance.low <= 0 <= found.above_chance.high
    assert found.advice.method == sigua.standard()
    assert "hardly more probable to the model than random ones" in found.advice.why


def test_a_class_that_noise_makes_a_majority_does_not_hide_what_the_model_knows():
    """Two classes that are apart; 70 % of the labels are 1, as the model predicts for all."""
    T = sigua.TransitionMatrix([[0.55, 0.45], [0.05, 0.95]])
    true = np.random.default_rng(0).integers(0, 2, 1000)
    p, y = T.rows[true], sigua.corrupt_labels(true, T, seed=0)
    found = diagnose(p, y)
    frequencies = np.bincount(y) / 1000
    gains = p[np.arange(1000), y] - p @ frequencies
    assert found.above_chance.value == pytest.approx(gains.mean(), rel=1e-12)
    assert found.above_chance.low == pytest.approx(gains.mean() - 1.96 * gains.std() / 1000**0.5)
    assert found.above_chance.low > 0
    assert found.advice.method == sigua.sigua_ag()


def test_few_labels_say_nothing():
    p, y, _ = noisy(sigua.TransitionMatrix.symmetric(0.0, K), 0.2)
    assert "fewer than 50 labels" in diagnose(p[:49], y[:49]).advice.why
    assert "hardly any label is wrong" in diagnose(p[:50], y[:50]).advice.why
