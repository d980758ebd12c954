"""The choice between trained models by held-out labels."""

import numpy as np
import pytest

import sigua
from sigua import choose


def predictions(right, size=400):
    """Return predictions of which so many are right, for labels of 1: the first ones."""
    return (np.arange(size) < right).astype(int)


ONES = np.ones(400, dtype=int)


def test_another_has_to_be_ahead_by_more_than_a_standard_error():
    """Both are right in 300, one alone in d: the mean difference is m = d / 400.

    Its variance is m (1 - m), so that the standard error is sqrt(m (1 - m) / 399).
    """
    plain = predictions(300)
    for d, kept in ((0, "plain"), (2, "other"), (40, "other")):
        found = choose({"plain": plain, "other": predictions(300 + d)}, ONES)
        assert found.kept == kept
        mean = d / 400
        assert found.errors["other"] == pytest.approx(np.sqrt(mean * (1 - mean) / 399))
    assert found.accuracies == {"plain": 0.75, "other": 0.85}
    assert found.size == 400


def test_differences_of_both_signs_count_as_spread():
    """The other is right in 20 where plain is wrong, wrong in 16 where it is right: 4 +- 6."""
    plain, other = predictions(300), predictions(320)
    other[:16] = 0
    found = choose({"plain": plain, "other": other}, ONES)
    assert found.kept == "plain"
    assert found.errors["other"] == pytest.approx(np.sqrt((36 / 400 - 1e-4) / 399))


def test_the_best_of_several_is_kept_whichever_comes_first():
    models = {"plain": predictions(200), "better": predictions(250), "best": predictions(300)}
    assert choose(models, ONES).kept == "best"
    assert choose(dict(reversed(models.items())), ONES).kept == "best"
    assert choose({"plain": ONES, **dict(list(models.items())[1:])}, ONES).kept == "plain"


def test_scores_are_asked_for_their_largest_and_words_will_do():
    scores = np.eye(3)[[0, 1, 2, 2]]
    found = choose({"plain": scores, "other": [0, 1, 2, 0]}, [0, 1, 2, 0])
    assert found.accuracies == {"plain": 0.75, "other": 1.0}
    words = np.array(["cat", "dog", "dog"])
    found = choose({"plain": ["cat", "cat", "cat"], "other": words}, words)
    assert found.accuracies["plain"] == pytest.approx(1 / 3)


def test_candidates_begin_with_plain_training_and_may_be_the_names():
    methods = sigua.candidates(warmup=5)
    assert methods == (
        sigua.standard(),
        sigua.sigua_ag(5),
        sigua.sigua_ag(5, power=1),
    )
    made = dict(zip(methods, (predictions(n) for n in (200, 300, 260)), strict=True))
    found = choose(made, ONES)
    assert found.kept == sigua.sigua_ag(5)
    text = str(found)
    assert "400 held-out labels" in text
    assert "75.0 %  +25.0 +- 2.2  sigua_ag(" in text
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
        ({"a": [0, 1], "b": [0, 1]}, [[0, 1]], r"^labels: .*shape \(1, 2\)"),
    ],
)
def test_what_does_not_fit_is_refused(models, labels, message):
    with pytest.raises(ValueError, match=message):
        choose(models, labels)
