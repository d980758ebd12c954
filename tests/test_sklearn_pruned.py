"""`PrunedClassifierCV`: any classifier, without the labels that its cross-validation rejects."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits, make_blobs, make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import KFold, cross_val_predict, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import sigua
from sigua_sklearn import PrunedClassifierCV
from sigua_sklearn.pruned import flag_by_class


def noisy(rate=0.3):
    X, y = load_digits(return_X_y=True)
    return X / 16, sigua.corrupt_labels(y, sigua.TransitionMatrix.symmetric(rate, 10), seed=0), y


def test_it_is_a_clone_fitted_to_the_labels_that_were_not_flagged():
    X, given, y = noisy()
    linear = LogisticRegression(C=0.1)
    clf = PrunedClassifierCV(linear, cv=3, compare=False).fit(X, given)
    p = cross_val_predict(linear, X, given, cv=3, method="predict_proba")
    assert np.array_equal(clf.label_issues_, flag_by_class(p, given))
    kept = ~clf.label_issues_
    want = clone(linear).fit(X[kept], given[kept])
    assert np.array_equal(clf.predict_proba(X), want.predict_proba(X))
    assert clf.noise_rate_ == clf.label_issues_.mean()
    assert clf.choice_ is None
    wrong = given != y
    assert wrong[clf.label_issues_].mean() > 0.8


def overlapping():
    """Twenty classes, of which a linear model predicts some third: pruning costs three points."""
    return make_blobs(1500, 64, centers=20, cluster_std=4.5, center_box=(-2, 2), random_state=0)


@pytest.mark.parametrize(
    ("clf", "data", "kept"),
    [
        (KNeighborsClassifier(), noisy()[:2], "pruned"),
        (LinearDiscriminantAnalysis(), overlapping(), "plain"),
    ],
)
def test_what_is_predicted_better_is_kept(clf, data, kept):
    """Without what was flagged where labels are wrong, with all where classes overlap."""
    X, given = data
    found = PrunedClassifierCV(clf, cv=3).fit(X, given)
    assert found.label_issues_.any()
    assert found.choice_.kept == kept
    rows = np.flatnonzero(~found.label_issues_) if kept == "pruned" else np.arange(len(X))
    want = clone(clf).fit(X[rows], given[rows])
    assert np.array_equal(found.predict_proba(X), want.predict_proba(X))


def test_a_fold_has_no_say_in_what_is_left_out_where_it_is_predicted():
    """Other labels there, shifted by a class, change nothing of what is predicted for it."""
    X, given, _ = noisy()
    X, given = X[:600], given[:600]
    folds = [(np.flatnonzero(np.arange(600) % 3 != j), np.arange(j, 600, 3)) for j in range(3)]
    clf = PrunedClassifierCV(KNeighborsClassifier())
    other = given.copy()
    other[folds[0][1]] = (given[folds[0][1]] + 1) % 10
    one, two = (clf._predict_pruned(X, labels, folds) for labels in (given, other))
    assert np.array_equal(one[folds[0][1]], two[folds[0][1]])
    assert not np.array_equal(one, two)


def test_a_fold_without_a_class_in_its_training_part_is_refused():
    """Sorted labels in folds that are not shuffled; a class of one example is left as it is."""
    X, y = load_digits(return_X_y=True)
    order = np.argsort(y, kind="stable")
    with pytest.raises(ValueError, match=r"^cv: must train on each class .*out class 0, .*try"):
        PrunedClassifierCV(LogisticRegression(), cv=KFold(10)).fit(X[order], y[order])
    words = np.array(list("abcdefghij"))[y[order]]
    with pytest.raises(ValueError, match="without class 'a', whose"):
        PrunedClassifierCV(LogisticRegression(), cv=KFold(10)).fit(X[order], words)


@pytest.mark.filterwarnings("ignore:lbfgs failed")  # long before, accuracy stands still
def test_it_gains_where_classes_are_rare():
    """Eleven classes of 1 to 18 %, 30 % of the labels wrong; balanced accuracy, too."""
    weights = np.array([18, 16, 14, 12, 10, 9, 8, 6, 4, 2, 1]) / 100
    X, y = make_classification(
        *(4000, 20), n_informative=10, n_classes=11, n_clusters_per_class=1, flip_y=0,
        weights=weights, class_sep=1.2, random_state=0,
    )  # fmt: skip
    X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)
    given = sigua.corrupt_labels(y, sigua.TransitionMatrix.symmetric(0.3, 11), seed=0)
    plain = LogisticRegression().fit(X, given)
    pruned = PrunedClassifierCV(LogisticRegression(), compare=False).fit(X, given)
    assert pruned.score(X_test, y_test) > plain.score(X_test, y_test)
    balanced = [balanced_accuracy_score(y_test, clf.predict(X_test)) for clf in (plain, pruned)]
    assert balanced[1] > balanced[0] + 0.02


def test_by_hand_the_lowest_margins_of_each_class_go_as_many_as_t_says():
    """Twenty of each class, sure and right but for four of class 0 that are surely of class 1.

    T, by the surest, says so too: 4 of the 20 labels 0 are wrong, and none of the labels 1.
    """
    given = np.repeat([0, 1], 20)
    true = np.where(np.arange(40) < 4, 1, given)
    p = np.where(np.eye(2)[true] == 1, 0.99, 0.01)
    assert np.flatnonzero(flag_by_class(p, given)).tolist() == [0, 1, 2]


def test_no_class_disappears_even_if_the_classifier_never_predicts_it():
    given = np.repeat([0, 1, 2], [200, 190, 10])
    p = np.full((400, 3), 0.02)
    p[np.arange(400), np.where(given == 2, 0, given)] = 0.96
    kept = given[~flag_by_class(p, given)]
    assert (np.bincount(kept, minlength=3) > 0).all()


def test_clean_labels_that_a_classifier_predicts_are_all_kept():
    given = np.repeat(np.arange(4), 50)
    p = np.full((200, 4), 0.05)
    p[np.arange(200), given] = 0.85
    assert not flag_by_class(p, given).any()


def test_words_frames_of_words_and_sparse_rows_go_to_the_classifier_as_they_are():
    rng = np.random.default_rng(0)
    y = np.array(["cat", "dog"])[rng.integers(0, 2, 100)]
    frame = pd.DataFrame({"said": np.where(y == "cat", "meow", "woof")})
    columns = make_column_transformer((OneHotEncoder(), ["said"]))
    pipeline = make_pipeline(columns, LogisticRegression())
    clf = PrunedClassifierCV(pipeline).fit(frame, pd.Series(y))
    assert clf.classes_.tolist() == ["cat", "dog"]
    assert clf.feature_names_in_.tolist() == ["said"]
    assert clf.score(frame, y) == 1
    X, given, _ = noisy()
    dense, sparse = (
        PrunedClassifierCV(LogisticRegression(C=0.1, tol=0.01), cv=2).fit(each, given)
        for each in (X, csr_array(X))
    )
    assert (dense.label_issues_ == sparse.label_issues_).mean() > 0.99


def test_a_classifier_that_knows_nothing_flags_nobody_and_a_warning_says_so():
    """It predicts one class for all: no T can be estimated from that."""
    X, given = np.zeros((60, 1)), np.arange(60) % 3
    with pytest.warns(UserWarning, match="estimator: no label is flagged, because .* try a") as w:
        clf = PrunedClassifierCV(LogisticRegression()).fit(X, given)
    assert w[0].filename == __file__
    assert not clf.label_issues_.any()


def test_a_classifier_without_probabilities_is_refused():
    with pytest.raises(ValueError, match=r"^estimator: must be .* got Perceptron\(\); try"):
        PrunedClassifierCV(Perceptron()).fit(*noisy()[:2])


def test_it_shows_the_methods_that_the_classifier_has():
    assert not hasattr(PrunedClassifierCV(GaussianNB()), "decision_function")
    assert hasattr(PrunedClassifierCV(LogisticRegression()), "decision_function")


PAGE = Path(__file__).parents[1] / "examples" / "guide" / "scikit_learn.md"


def test_the_guide_s_blocks_run_and_both_find_the_wrong_labels():
    """Those that need neither skorch nor Keras; of the digits 40 % were made wrong."""
    text = PAGE.read_text(encoding="utf-8").partition("## skorch\n")[0]
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    left = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), left)
    wrong = left["y"] != left["true_labels"]
    for clf in (left["clf"], left["pruned"]):
        flagged = clf.label_issues_
        assert min(wrong[flagged].mean(), flagged[wrong].mean()) > 0.8
    assert np.mean(left["clf"].predict(left["x"]) == left["true_labels"]) > 0.9
