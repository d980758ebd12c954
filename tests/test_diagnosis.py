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


def drawn(n, m=200, seed=0):
    return np.random.default_rng(seed).choice(n, m, replace=False)


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


def test_classes_that_are_well_separated_are_known_without_checked_labels_overlap_is_not():
    """Blind, labels may as well be wrong where examples are hard: 400 checked ones say no."""
    p, y, true = noisy(NOISES["sym-20"])
    checked = drawn(len(y), 400)
    assert diagnose(p, y).overlap.verdict == "cannot tell"
    found = diagnose(p, y, true[checked], checked).overlap
    assert found.verdict == "yes"
    assert found.share.low <= (p.argmax(1) != y).mean() - (y != true).mean() <= found.share.high
    p, y, _ = noisy(NOISES["sym-20"], spread=0.2)
    assert diagnose(p, y).overlap.verdict == "no"


def overlapping_pairs(n=3000):
    """Return p, labels and the truth of 3 pairs of classes: within one, p(true | x) is .7 and .3.

    Nothing is wrong but how the world is.
    """
    rng = np.random.default_rng(0)
    pair, first = rng.integers(0, 3, n), rng.integers(0, 2, n)
    p = np.zeros((n, 6))
    p[np.arange(n), 2 * pair + first], p[np.arange(n), 2 * pair + 1 - first] = 0.7, 0.3
    true = (p.cumsum(axis=1) > rng.random(n)[:, None]).argmax(axis=1)
    return p, true


def test_where_classes_may_overlap_the_interval_begins_at_zero_and_nothing_is_asserted():
    """Clean, though 30 % disagree with a model that could not be better, and is as sure of all."""
    found = diagnose(*overlapping_pairs())
    assert found.surest.low > 0.25
    assert (found.noise_rate.low, found.wrong.verdict) == (0, "cannot tell")
    assert found.noise_rate.high == 1 - found.agreement.low
    assert found.advice.method == sigua.standard()
    assert found.advice.why == ""
    assert "why" not in str(found)


@pytest.mark.parametrize("seed", range(3))
def test_classes_that_look_alike_and_are_exchanged_do_not_pass_for_well_separated_ones(seed):
    """0 and 1 are alike, as are 2 and 3, and 40 % of them are exchanged: 32 % wrong, none by x."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, K, 5000)
    centres = 3 * np.eye(K)
    centres[[1, 3]] = centres[[0, 2]] + 1.2 * np.eye(K)[[1, 3]]
    x = centres[true] + rng.standard_normal((5000, K))
    clean = np.exp(-((x[:, None] - centres) ** 2).sum(axis=2) / 2)
    T = sigua.mapped_transition({0: 1, 1: 0, 2: 3, 3: 2}, 0.4, K)
    y = sigua.corrupt_labels(true, T, seed=seed)
    p, checked = clean / clean.sum(axis=1, keepdims=True) @ T.rows, drawn(5000, 100, seed)
    blind, seen = diagnose(p, y), diagnose(p, y, true[checked], checked)
    for found in (blind, seen):
        assert found.noise_rate.low <= (y != true).mean() <= found.noise_rate.high
        assert found.follows_input.verdict != "yes"
        assert found.advice.candidates[0] == sigua.standard()
    assert blind.advice.method == sigua.standard()


@pytest.mark.parametrize("weak", [0, 0.5, 2.0])
def test_no_model_predicts_more_labels_than_are_right_so_the_upper_end_holds(weak):
    """However much of the features a model loses to noise of its own."""
    x, true, _ = overlapping(spread=0.5)
    T = NOISES["asym"]
    seen = x + weak * np.random.default_rng(1).standard_normal(x.shape)
    p = np.exp(2 * seen)
    y = sigua.corrupt_labels(true, T, seed=0)
    found = diagnose(p / p.sum(axis=1, keepdims=True), y)
    assert found.noise_rate.low <= (y != true).mean() <= found.noise_rate.high


def test_a_model_that_is_too_sure_or_not_sure_enough_is_named_so():
    """p^4 and p^(1/4), scaled, of the right p: what it predicts stays, what it expects does not."""
    p, y, _ = noisy(NOISES["sym-20"], spread=0.2)
    assert "confident\n" not in str(diagnose(p, y)).splitlines()[1]
    for power, word in ((4, "overconfident"), (0.25, "underconfident")):
        other = p**power / (p**power).sum(axis=1, keepdims=True)
        found = diagnose(other, y)
        assert str(found).splitlines()[1].endswith(word)
        assert (found.noise_rate.low == 0) == (word == "overconfident")


def test_errors_that_follow_from_the_input_are_found_by_checked_labels_alone():
    """The model predicts every wrong label as given, and the surest examples say 0."""
    p, y, true = by_rule()
    checked = drawn(len(y))
    blind = diagnose(p, y)
    assert blind.noise_rate.value < 0.05 < 0.2 < (y != true).mean()
    assert blind.follows_input.verdict == "cannot tell"
    assert "check 100 labels" in str(blind)
    seen = diagnose(p, y, true[checked], checked)
    assert seen.noise_rate.low <= (y != true).mean() <= seen.noise_rate.high
    assert seen.reproduced.value == 1
    assert seen.follows_input.verdict == "yes"
    assert seen.follows_input.share.value == 1
    assert "learns their errors" in seen.advice.why
    assert sigua.count_transition(y[checked], true[checked], K) == seen.T  # no prior
    assert seen.T.rows[2, 1] > 0.1


@pytest.mark.parametrize("name", ["sym-20", "sym-40", "pair-20", "asym"])
def test_noise_that_depends_on_the_class_alone_does_not_follow_from_the_input(name):
    p, y, true = noisy(NOISES[name], spread=0.3)
    checked = drawn(len(y), 400)
    assert diagnose(p, y, true[checked], checked).follows_input.verdict == "no"


def test_one_class_for_another_is_named():
    found = diagnose(*noisy(NOISES["asym"], spread=0.3)[:2])
    assert found.one_for_another.verdict == "yes"
    assert {(i, j) for i, j, _ in found.confusions} == {(1, 0), (3, 2)}
    assert "1 for 0 (4" in str(found)
    assert diagnose(*noisy(NOISES["sym-40"], spread=0.3)[:2]).one_for_another.verdict == "no"


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


@pytest.mark.parametrize("m", [1, 20, 100])
def test_few_checked_labels_never_make_it_worse(m):
    """Well separated, 10 % wrong: of 20 draws at most one says anything but the blind diagnosis.

    The count alone says 0 % (0 to 98) of a single label that is right.
    """
    p, y, true = (part[:2000] for part in noisy(sigua.TransitionMatrix.symmetric(0.1, K), 0.2))
    blind, other = diagnose(p, y), 0
    assert blind.advice.method == sigua.sigua_ag()
    for seed in range(20):
        places = drawn(len(y), m, seed)
        found = diagnose(p, y, true[places], places)
        wider = found.noise_rate.low < blind.noise_rate.low
        wider |= found.noise_rate.high > blind.noise_rate.high
        other += found.advice.method != sigua.sigua_ag() or bool(found.overlap) or wider
    assert other <= 1


def test_a_count_and_the_model_say_together_what_their_intervals_have_in_common():
    """One right label says 0 to 98 %, the model 20 to 24: the model's it is."""
    T = sigua.TransitionMatrix.symmetric(0.22, K)
    p, y, true = noisy(T, spread=0.2)
    right = np.flatnonzero(y == true)[:1]
    found = diagnose(p, y, true[right], right)
    assert (found.counted.low, found.counted.high) == pytest.approx((0, 0.975))
    assert found.noise_rate.low == found.by_model.low > 0
    assert found.noise_rate.high == found.by_model.high == 1 - found.agreement.low
    assert found.noise_rate.value == pytest.approx(found.surest.value, abs=0.01)
    assert "counted and by the model" in str(found)
    many = drawn(len(y), 1000)
    found = diagnose(p, y, true[many], many)
    assert found.noise_rate.low == max(found.counted.low, found.by_model.low)
    assert found.noise_rate.high == min(found.counted.high, found.by_model.high)


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


def test_columns_in_another_order_are_named_in_a_warning():
    """The labels of what it predicts as 1 are 2, and the other way round."""
    p, y, _ = noisy(NOISES["sym-20"], spread=0.2)
    with pytest.warns(UserWarning, match="mostly labelled .* in the order of the classes") as said:
        found = diagnose(p[:, [0, 2, 1, 3, 4]], np.array(NAMES)[y], classes=NAMES)
    assert said[0].filename == __file__
    (doubt,) = found.doubts
    assert doubt.startswith(("what it predicts as 1 is mostly labelled 2", "what it predicts as 2"))
    assert doubt in str(found)
    assert diagnose(p, y).doubts == ()


def of_a_forest(y):
    """In sample each label has the votes of the trees that were grown on it."""
    return 0.7 * np.eye(K)[y] + 0.06


@pytest.mark.parametrize("in_sample", [of_a_forest, lambda y: np.eye(K)[y]], ids=["forest", "tree"])
def test_probabilities_of_examples_that_were_trained_on_give_a_warning(in_sample):
    _, y, _ = noisy(NOISES["sym-20"], spread=0.2)
    with pytest.warns(UserWarning, match="predicts nearly every label: was it trained on them"):
        found = diagnose(in_sample(y), y)
    assert found.noise_rate.high < 0.01


def test_out_of_fold_the_nearest_neighbour_is_told_from_one_that_was_trained_on_the_label():
    """It predicts the label of another example of the same class: all rows are of 0 and 1."""
    _, y, true = noisy(NOISES["sym-20"], spread=0.2)
    order = np.argsort(true, kind="stable")
    neighbour = np.empty_like(y)
    neighbour[order] = np.roll(y[order], 1)
    with pytest.warns(UserWarning, match="are 0 or 1, which do not say where it is most confident"):
        found = diagnose(np.eye(K)[neighbour], y)
    assert len(found.doubts) == 1
    assert found.noise_rate.low == 0 < (y != true).mean() < found.noise_rate.high
    assert str(found).splitlines()[1].endswith("overconfident")


def test_checked_labels_that_are_the_most_suspicious_ones_give_a_warning_and_have_no_say():
    """Of 20 % wrong: the model predicts none of them as given."""
    p, y, true = noisy(NOISES["sym-20"], spread=0.2)
    places = np.argsort(p[np.arange(len(y)), y])[:100]
    with pytest.warns(UserWarning, match="0 % of the checked labels: they must be drawn at random"):
        found = diagnose(p, y, true[places], places)
    blind = diagnose(p, y)
    assert not found.at_random
    assert len(found.doubts) == 1
    assert found.counted.value == 1
    assert (found.noise_rate, found.T, found.advice) == (blind.noise_rate, blind.T, blind.advice)
    assert found.follows_input.verdict == "cannot tell"
    assert "cannot tell: check 100 labels" in str(found)
    for seed in range(5):
        places = drawn(len(y), 100, seed)
        assert diagnose(p, y, true[places], places).at_random


def test_a_mask_and_indices_are_the_same():
    p, y, true = noisy(NOISES["sym-20"])
    checked = np.sort(drawn(len(y)))
    mask = np.zeros(len(y), dtype=bool)
    mask[checked] = True
    assert diagnose(p, y, true[checked], checked) == diagnose(p, y, true[mask], mask)


PLAIN, AGREEMENT = (sigua.standard(),), (sigua.sigua_ag(),)
FORWARD = sigua.forward_correction
ADVICE = [
    # Plain where hardly a label is wrong; by agreement where classes are well separated.
    ("clean", 0.3, 0, PLAIN, "given", False, "hardly any"),
    ("clean", 0.3, 200, PLAIN, "given", False, "hardly any"),
    ("sym-40", 0.2, 0, AGREEMENT, "given", False, ""),
    ("sym-40", 0.2, 200, AGREEMENT, "given", False, ""),
    # Blind, where classes may overlap or be mistaken, plain is tried, too, and labels choose.
    ("sym-20", 0.8, 0, sigua.candidates(), "given", False, ""),
    ("pair-20", 0.3, 0, sigua.candidates(), "given", False, ""),
    ("asym", 0.3, 0, sigua.candidates(), "given", False, ""),
    # Checked labels say that it is T; a tenth of 5,000, 20 % of them wrong, tells as much as
    # 500 * 0.8^2 = 320 checked ones, of which half choose.
    ("pair-20", 0.2, 400, FORWARD, "checked", True, "mistaken for another"),
    ("sym-20", 0.8, 400, FORWARD, "given", True, "classes overlap"),
    ("sym-20", 0.8, 600, FORWARD, "given", True, "classes overlap"),
    ("sym-20", 0.8, 700, FORWARD, "checked", True, "classes overlap"),
]


@pytest.mark.parametrize(("name", "spread", "m", "tried", "by", "with_checked", "why"), ADVICE)
def test_what_is_advised(name, spread, m, tried, by, with_checked, why):
    """A single method only where nothing is in doubt, and the first of them is plain elsewhere."""
    p, y, true = noisy(NOISES[name], spread)
    checked = drawn(len(y), m)
    found = diagnose(p, y, *((true[checked], checked) if m else ())).advice
    if tried is FORWARD:
        assert type(found.method) is FORWARD
        assert found.candidates[0] == sigua.standard()
    else:
        assert (found.method, found.candidates) == (tried[0], tried)
    assert (found.chosen_by, found.with_checked) == (by, with_checked)
    assert (why in found.why) if why else found.why == "" or tried is AGREEMENT
    assert (found.take == "sigua.sigua_ag()") == (tried is AGREEMENT)


@pytest.mark.parametrize("m", [60, 200])
def test_where_errors_follow_from_the_input_the_checked_choose(m):
    p, y, true = by_rule()
    found = diagnose(p, y, true[:m], np.arange(m))
    assert found.follows_input
    assert found.advice.method == sigua.forward_correction(found.T)
    assert found.advice.candidates == (sigua.standard(), found.advice.method)
    assert found.advice.chosen_by == "checked"
    other = "other " if found.advice.with_checked else ""
    want = f"the {other}checked labels: sigua.choose(predictions, labels, checked=True)"
    assert want in str(found)


def test_t_is_counted_with_the_surest_for_a_prior_where_the_two_agree():
    p, y, true = noisy(NOISES["pair-20"], 0.3)
    checked = drawn(len(y))
    prior = sigua.estimate_transition(p, y)
    found = diagnose(p, y, true[checked], checked)
    assert sigua.count_transition(y[checked], true[checked], K, prior=prior) == found.T


def test_it_prints_in_some_ten_lines_of_terminal_width():
    p, y, true = noisy(NOISES["sym-20"])
    for text in (str(diagnose(p, y)), str(diagnose(p, y, true[:200], np.arange(200)))):
        lines = text.splitlines()
        assert len(lines) <= 13
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
    with pytest.warns(UserWarning, match="hardly more probable to the model than random ones"):
        found = diagnose(p, y)
    assert found.above_chance.low <= 0 <= found.above_chance.high
    assert found.advice.candidates == (sigua.standard(),)
    assert "knows hardly anything" in found.advice.why


@pytest.mark.filterwarnings("ignore:labels are hardly more probable:UserWarning")
def test_many_classes_take_no_singular_values_even_if_the_model_knows_nothing(monkeypatch):
    def refuse(rows):
        raise AssertionError("O(k^3)")

    monkeypatch.setattr(np.linalg, "cond", refuse)
    k = 300
    y = np.arange(3 * k) % k
    given = np.where(np.arange(3 * k) < k, (y + 1) % k, y)
    knowing = 0.5 * np.eye(k)[y] + 0.5 / k
    for p, known in ((knowing, True), (np.full((3 * k, k), 1 / k), False)):
        assert (diagnose(p, given).T is not None) == known
        checked = np.arange(0, 3 * k, 9)
        assert diagnose(p, given, y[checked], checked).T is not None


def test_a_class_that_noise_makes_a_majority_does_not_hide_what_the_model_knows():
    """Two well separated classes; 70 % of the labels are 1, as the model predicts for all."""
    T = sigua.TransitionMatrix([[0.55, 0.45], [0.05, 0.95]])
    true = np.random.default_rng(0).integers(0, 2, 1000)
    p, y = T.rows[true], sigua.corrupt_labels(true, T, seed=0)
    found = diagnose(p, y)
    frequencies = np.bincount(y) / 1000
    gains = p[np.arange(1000), y] - p @ frequencies
    assert found.above_chance.value == pytest.approx(gains.mean(), rel=1e-12)
    assert found.above_chance.low == pytest.approx(gains.mean() - 1.96 * gains.std() / 1000**0.5)
    assert found.above_chance.low > 0
    assert sigua.sigua_ag() in found.advice.candidates


def test_few_labels_say_nothing():
    p, y, _ = noisy(sigua.TransitionMatrix.symmetric(0.0, K), 0.2)
    assert "fewer than 50 labels" in diagnose(p[:49], y[:49]).advice.why
    assert "hardly any label is wrong" in diagnose(p[:50], y[:50]).advice.why
