"""The choice between trained models by held-out labels."""

import numpy as np
import pytest

import sigua
from sigua import choose


def predictions(right, size=400):
    """Return predictions of which so many are right, for labels of 1: the first ones."""
    return (np.arange(size) < right).astype(int)


ONES = np.ones(400, dtype=int)


def test_another_has_to_be_ahead_by_more_than_half_a_standard_error():
    """Both are right in 300, one alone in d: the mean difference is m = d / 400.

    Its variance is m (1 - m), so that the standard error is sqrt(m (1 - m) / 399).
    """
    plain = predictions(300)
    for d, kept in ((0, "plain"), (2, "other"), (40, "other")):
        found = choose({"plain": plain, "other": predictions(300 + d)}, ONES, checked=True)
        assert found.kept == kept
        mean = d / 400
        assert found.errors["other"] == pytest.approx(np.sqrt(mean * (1 - mean) / 399))
    assert found.accuracies == {"plain": 0.75, "other": 0.85}
    assert found.size == 400


@pytest.mark.parametrize(("lost", "kept"), [(18, "plain"), (16, "other")])
def test_differences_of_both_signs_count_as_spread(lost, kept):
    """The other is right in 20 where plain is wrong, wrong in 18 where it is right: 2 +- 6.2.

    Or wrong in 16: 4 +- 6.0, which is more than half of it.
    """
    plain, other = predictions(300), predictions(320)
    other[:lost] = 0
    found = choose({"plain": plain, "other": other}, ONES, checked=True)
    assert found.kept == kept
    mean = (20 - lost) / 400
    error = np.sqrt(((20 + lost) / 400 - mean**2) / 399)
    assert found.errors["other"] == pytest.approx(error)


def test_what_a_prediction_tells_decides_where_one_class_is_given_for_another():
    """Of each class 45 % are labelled as the next one.

    One model predicts the next class in 40 %: it is right in .6 * .55 + .4 * .45 = 51 % of the
    labels. The other predicts the class before in 18 %, and is right in .82 * .55 = 45 % of the
    labels, but knows the true class in 82 %, not 60.
    """
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(3), 2000)
    labels = (true + (rng.random(6000) < 0.45)) % 3
    mixes = (true + (rng.random(6000) < 0.40)) % 3
    knows = (true - (rng.random(6000) < 0.18)) % 3
    found = choose({"plain": mixes, "other": knows}, labels)
    assert found.accuracies == pytest.approx({"plain": 0.51, "other": 0.45}, abs=0.02)
    assert found.kept == "other"
    assert choose({"plain": mixes, "other": knows}, true, checked=True).kept == "other"


def test_the_likelihood_is_counted_on_the_others():
    """Labels 0, 0, 1 where a model says 0, and 1 where it says 1: three of four are right.

    The others say that it is right in 2.5 / 4 for a label that it predicts, and in 3.5 / 4
    for the third label. As so few labels tell little, the counts are shrunk most: by 1,000.
    """
    labels = [0, 0, 1, 1]
    found = choose({"plain": [0, 0, 0, 0], "other": [0, 0, 0, 1]}, labels)
    known, wrong = 1000 * 2.5 / 4, 1000 * (1 - 3.5 / 4)
    want = np.log([(1 + known) / 1002, (1 + known) / 1002, wrong / 1002, known / 1000])
    known, wrong = 1000 * 1.5 / 4, 1000 * (1 - 2.5 / 4)
    always = np.log([(1 + known) / 1003, (1 + known) / 1003, *[(1 + wrong) / 1003] * 2])
    assert found.gains == {"plain": 0, "other": pytest.approx((want - always).mean())}


def test_the_best_of_several_is_kept_whichever_comes_first():
    labels = np.arange(400) % 2
    models = {n: np.where(np.arange(400) < n, labels, np.arange(400) // 2 % 2) for n in (100, 200)}
    models[300] = np.where(np.arange(400) < 300, labels, np.arange(400) // 2 % 2)
    assert choose(models, labels).kept == 300
    assert choose(dict(reversed(models.items())), labels).kept == 300


def test_scores_are_asked_for_their_largest_and_words_will_do():
    scores = np.eye(3)[[0, 1, 2, 2]]
    found = choose({"plain": scores, "other": [0, 1, 2, 0]}, [0, 1, 2, 0])
    assert found.accuracies == {"plain": 0.75, "other": 1.0}
    for kind in (str, object):
        words = np.array(["cat", "dog", "dog"], dtype=kind)
        found = choose({"plain": ["cat", "cat", "cat"], "other": words}, words)
        assert found.accuracies == {"plain": pytest.approx(1 / 3), "other": 1.0}


def test_candidates_begin_with_plain_training_and_may_be_the_names():
    methods = sigua.candidates(warmup=5)
    assert methods == (sigua.standard(), sigua.sigua_ag(5), sigua.sigua_ag(5, power=1))
    assert sigua.candidates(5, num_classes=4096) == methods
    assert sigua.candidates(5, num_classes=4097) == methods[:2]  # of which counts would be too many
    made = dict(zip(methods, (predictions(n) for n in (200, 300, 260)), strict=True))
    found = choose(made, ONES, checked=True)
    assert found.kept == sigua.sigua_ag(5)
    text = str(found)
    assert "400 held-out labels" in text
    assert "75.0 %  +0.250 +- 0.022  sigua_ag(" in text
    assert text.count("(kept)") == 1


@pytest.mark.parametrize(
    ("models", "labels", "message"),
    [
        ({"plain": [0, 1]}, [0, 1], r"^predictions: must map at least two .*, got 1; try"),
        ([[0, 1], [0, 1]], [0, 1], r"^predictions: .* got list; try"),
        ({"a": [0, 1], "b": [0, 1, 1]}, [0, 1], r"^predictions\['b'\]: must have .*2 labels.*3"),
        ({"a": [0, 1], "b": np.zeros((2, 2, 2))}, [0, 1], r"^predictions\['b'\]: .*shape \(2, 2,"),
        ({"a": [0, 1], "b": [[0, 1], [np.nan, 0]]}, [0, 1], r"^predictions\['b'\]: .*NaN"),
        ({"a": [0, 1], "b": np.zeros((2, 2))}, [0, 2], r"^labels: "),
        ({"a": [0], "b": [0]}, [0], r"^labels: must be at least two"),
        ({"a": np.eye(2), "b": np.eye(2)}, ["x", "y"], r"^predictions\['a'\]: must name their cl"),
        ({"a": [0, 1], "b": ["0", "1"]}, [0, 1], r"^predictions\['b'\]: .* got '0' and .* is 0;"),
        ({"a": [0, 1], "b": [0.1, 0.9]}, [0, 1], r"^predictions\['b'\]: must be classes as in"),
        ({"a": [0, 1], "b": [[0.1], [0.9]]}, [0, 1], r"^predictions\['b'\]: .*above 0.5"),
        ({"a": [0, 1], "b": [0, np.nan]}, [0, 1], r"^predictions\['b'\]: must be .*got NaN"),
        ({"a": [0, 1], "b": [0, 1]}, [0, np.nan], r"^labels: must be numbers or words, got NaN"),
        ({"a": [0, 1], "b": [0, 1]}, np.array(["a", None]), r"^labels: must be numbers or words"),
        ({"a": [0, 1], "b": [0, 1]}, [[0, 1]], r"^labels: .*shape \(1, 2\)"),
    ],
)
def test_what_does_not_fit_is_refused(models, labels, message):
    with pytest.raises(ValueError, match=message):
        choose(models, labels)


@pytest.mark.parametrize("checked", [False, True])
def test_fewer_than_20_held_out_labels_decide_nothing(checked):
    """Right in each, against one class for all: 19 labels keep plain, and say why; 20 do not."""
    labels = np.arange(20) % 2
    for size, kept in ((2, "plain"), (19, "plain"), (20, "other")):
        made = {"plain": 0 * labels[:size], "other": labels[:size]}
        found = choose(made, labels[:size], checked=checked)
        assert (found.kept, found.gains["other"] > 0) == (kept, True)
        assert ("fewer than 20 labels decide nothing" in str(found)) == (size < 20)


def test_a_choice_has_a_hash_equal_ones_the_same():
    models = {"plain": predictions(200), "other": predictions(300)}
    one, same = (choose(models, ONES, checked=True) for _ in range(2))
    assert {one: 1}[same] == 1
    assert len({one, choose(models, ONES)}) == 2


def test_a_class_for_nearly_every_label_will_do():
    """Which would be a table of 10,000 x 10,000."""
    rng = np.random.default_rng(0)
    many = rng.integers(0, 100_000, (3, 10_000))
    found = choose({"plain": many[0], "other": many[1]}, many[2])
    assert found.accuracies["plain"] < 0.01


def test_classes_that_are_numbered_differently_are_told():
    """What they tell of the labels is all the same; no model of these labels is so often wrong."""
    labels = np.arange(400) % 10
    plain = np.where(np.arange(400) % 7 == 0, (labels + 5) % 10, labels)
    with pytest.warns(UserWarning, match=r"^predictions\['other'\]: agree with less than half"):
        assert choose({"plain": plain, "other": (labels + 1) % 10}, labels).kept == "other"
