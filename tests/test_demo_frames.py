"""Data frames, categories and cross tables of pandas are read by their names, or refused."""

import numpy as np
import pandas as pd
import pytest

import sigua
from sigua import estimate_noise_rate, label_losses, label_margins

SIZES = ["low", "middle", "high"]  # sorted, they are in another order


def sampled():
    """Return probabilities, a row per example, and clean labels by name."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    p = rng.dirichlet(np.full(3, 0.3), 90) + 2 * np.eye(3)[y]
    return p / p.sum(axis=1, keepdims=True), np.array(SIZES)[y]


def close(actual, expected):
    """Assert equal but for the order in which a row is summed."""
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)


def test_columns_are_found_by_name_in_whatever_order_they_are():
    """And counted columns are no names."""
    p, words = sampled()
    frame = pd.DataFrame(p, columns=SIZES)
    losses = label_losses(p, words, classes=SIZES)
    for columns in (SIZES, SIZES[::-1], sorted(SIZES)):
        close(label_losses(frame[columns], words), losses)
        margins = label_margins(frame[columns], pd.Series(words))
        close(margins, label_margins(p, words, classes=SIZES))
        assert estimate_noise_rate(frame[columns], words) < 0.05
    close(label_losses(pd.DataFrame(p), words, classes=SIZES), losses)
    with pytest.raises(ValueError, match=r"^labels: must be among .*probabilities\.to_numpy\(\)"):
        label_losses(frame, np.zeros(90, int))
    with pytest.raises(ValueError, match=r"^classes: must be the columns .*; try probabilities"):
        label_losses(frame[SIZES[::-1]], words, classes=SIZES)


def test_categories_are_their_names_and_not_their_codes():
    """Codes count the categories in their own order, whatever the columns' is."""
    p, words = sampled()
    labels = pd.Categorical(words, categories=SIZES[::-1], ordered=True)
    expected = label_losses(p, words, classes=SIZES).tolist()
    assert label_losses(p, labels, classes=SIZES).tolist() == expected
    assert label_losses(pd.DataFrame(p, columns=SIZES), pd.Series(labels)).tolist() == expected
    with pytest.raises(ValueError, match=r"^labels: must be integers .*classes=clf\.classes_"):
        label_losses(p, labels)


def test_nullable_integers_are_integers_and_missing_ones_are_refused():
    p, _ = sampled()
    y = np.arange(90) % 3
    assert label_losses(p, pd.Series(y, dtype="Int64")).tolist() == label_losses(p, y).tolist()
    with pytest.raises(ValueError, match=r"^labels: must be integers"):
        label_losses(p, pd.Series([None, *y[1:]], dtype="Int64"))


def test_a_cross_table_is_a_transition_matrix_only_if_its_classes_are_in_one_order():
    true = ["cat"] * 10 + ["dog"] * 10
    given = ["cat"] * 9 + ["dog"] * 11
    table = pd.crosstab(pd.Series(true), pd.Series(given), normalize="index")
    for rows in (table, table.reset_index(drop=True)):  # counted rows are no names
        assert sigua.TransitionMatrix(rows).rows.tolist() == [[0.9, 0.1], [0.0, 1.0]]
    with pytest.raises(ValueError, match=r"^rows: must be the same classes .*; try rows\.reindex"):
        sigua.TransitionMatrix(table[["dog", "cat"]])


def test_rows_in_another_order_are_refused():
    """The same index in another order; an index of its own, or none, says nothing."""
    p, words = sampled()
    frame, series = pd.DataFrame(p, columns=SIZES), pd.Series(words)
    right = estimate_noise_rate(frame, series)
    with pytest.raises(ValueError, match=r"^labels: must be in the order of the rows"):
        estimate_noise_rate(frame, series[::-1])
    assert estimate_noise_rate(frame[::-1], series[::-1]) == right
    assert estimate_noise_rate(frame, series.set_axis(range(100, 190))) == right
    assert estimate_noise_rate(frame, list(words)) == right


def test_true_labels_in_another_order_are_refused():
    """Of all rows, or of those checked, a mask, too; what lies beside the right rows is read."""
    p, words = sampled()
    frame, series, places = pd.DataFrame(p, columns=SIZES), pd.Series(words), np.array([7, 3, 5])
    right = sigua.diagnose(frame, series, series.iloc[places], places)
    assert right.noise_rate.value == 0
    assert sigua.diagnose(p, words, list(words[places]), places, classes=SIZES) == right
    with pytest.raises(ValueError, match=r"^true_labels: .*index in another order; try true_"):
        sigua.diagnose(frame, series, series[::-1])
    with pytest.raises(ValueError, match=r"probabilities\.iloc\[checked\]\.index\]$"):
        sigua.diagnose(frame, series, series.iloc[places][::-1], places)
    with pytest.raises(ValueError, match=r"^true_labels: must be in the order"):
        sigua.diagnose(p, series, series[::-1], classes=SIZES)
    mask = pd.Series(np.arange(90) < 3)
    assert sigua.diagnose(p, series, words[:3], mask, classes=SIZES).num_checked == 3
    with pytest.raises(ValueError, match=r"^checked: must be in the order of the .* of labels"):
        sigua.diagnose(p, series, words[:3], mask[::-1], classes=SIZES)


def test_checked_labels_in_another_order_are_refused():
    given, true = pd.Series([0, 1, 1, 0]), pd.Series([0, 1, 0, 0])
    shuffled = true[[2, 0, 1, 3]]
    for count in (
        sigua.count_noise_rate,
        lambda *pair: sigua.count_transition(*pair, 2),
        lambda *pair: sigua.transition_intervals(*pair, 2),
    ):
        with pytest.raises(ValueError, match=r"^true_labels: must be in the order of .* of labels"):
            count(given, shuffled)
    assert sigua.count_noise_rate(given[[2, 0, 1, 3]], shuffled).value == 0.25


def test_predictions_in_another_order_than_the_labels_are_refused():
    """Classes or scores; an index of its own says nothing."""
    labels = pd.Series(["a", "b"] * 10)
    scores = pd.get_dummies(labels).astype(float)
    for made in (labels, scores):
        right = {"plain": labels[::2].repeat(2).to_numpy(), "other": made}
        assert sigua.choose(right, labels).accuracies == {"plain": 0.5, "other": 1.0}
        right["other"] = made.set_axis(range(100, 120))
        assert sigua.choose(right, labels).accuracies["other"] == 1
        right["other"] = made[::-1]
        with pytest.raises(ValueError, match=r"^predictions\['other'\]: must be in the order of"):
            sigua.choose(right, labels)


def test_scores_in_a_frame_are_of_the_classes_that_its_columns_name():
    labels, sizes = [10, 1, 2, 1], [10, 1, 2]
    frame = pd.DataFrame(np.eye(3)[[0, 1, 2, 0]], columns=sizes)
    found = sigua.choose({"plain": frame, "other": labels}, labels)
    assert found.accuracies == {"plain": 0.75, "other": 1.0}
    with pytest.raises(ValueError, match=r"^labels: must be among the classes \[10, 1, 2\]"):
        sigua.choose({"plain": frame, "other": [3] * 4}, [3] * 4)


def test_label_issues_go_by_rows_and_rates_by_class():
    """Two labels of each class; half of the first in the frame's order of classes, none else."""
    margins, words = pd.Series([0.1, -0.5, 0.2, -0.1]), pd.Series(["b", "a", "b", "a"])
    for rates in ({"b": 0.5, "a": 0.0}, pd.Series({"b": 0.5, "a": 0.0}), [0.0, 0.5]):
        found = sigua.rank_label_issues(margins=margins, noise_rate=rates, labels=words)
        assert found.suspects.tolist() == [True, False, False, False]
    for rates in (pd.Series([0.5, 0.0]), {"b": 0.5}, {"b": 0.5, "a": 0, "c": 0}):
        with pytest.raises(ValueError, match=r"^noise_rate: must have a rate for each .*'a', 'b'"):
            sigua.rank_label_issues(margins=margins, noise_rate=rates, labels=words)
    for rate in (None, 0.5):
        with pytest.raises(ValueError, match=r"^labels: must be in the order of .* of losses"):
            sigua.rank_label_issues(margins=margins, noise_rate=rate, labels=words[::-1])
