"""`SIGUAClassifier`: what it gains, what it says of itself, and what it takes."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import sigua
from sigua_sklearn import PrunedClassifierCV, SIGUAClassifier, _choice
from sigua_sklearn._training import Part, Run

ALWAYS = nn.Linear(4, 3)
WRONG = sigua.TransitionMatrix.symmetric(0.3, 10)


def digits(seed):
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, test_size=0.25, stratify=y, random_state=seed)


def blobs(n=200, rate=0.2):
    """Return three classes that are apart, the labels as given and as they should be."""
    X, y = make_blobs(n, 4, centers=3, random_state=0)
    T = sigua.TransitionMatrix.symmetric(rate, 3)
    return X, sigua.corrupt_labels(y, T, seed=0), y


def quick(method="standard", **parameters):
    return SIGUAClassifier(method, **{"epochs": 3, "random_state": 0} | parameters)


def linear(n_features, n_classes):
    return nn.Linear(n_features, n_classes)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # 200 iterations do not converge
def test_at_30_percent_wrong_labels_it_is_10_points_ahead_of_mlpclassifier_with_nothing_set():
    """And nearly all wrong labels are found. Over seeds the gain is 13 to 20 points."""
    X, X_test, y, y_test = digits(0)
    given = sigua.corrupt_labels(y, WRONG, seed=0)
    clf = SIGUAClassifier(random_state=0).fit(X, given)
    other = MLPClassifier(random_state=0).fit(X, given)
    assert clf.score(X_test, y_test) > other.score(X_test, y_test) + 0.1
    wrong, flagged = given != y, clf.label_issues_
    assert min(wrong[flagged].mean(), flagged[wrong].mean()) > 0.9
    assert clf.noise_rate_ == pytest.approx(wrong.mean(), abs=0.04)


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # 200 iterations do not converge
def test_on_clean_labels_it_is_no_more_than_a_point_below_mlpclassifier():
    X, X_test, y, y_test = digits(0)
    clf = SIGUAClassifier(random_state=0).fit(X[:600], y[:600])
    other = MLPClassifier(random_state=0).fit(X[:600], y[:600])
    assert clf.score(X_test, y_test) > other.score(X_test, y_test) - 0.01
    assert clf.noise_rate_ < 0.03


def test_auto_tries_each_candidate_on_held_out_labels_and_trains_again_on_all():
    X, given, _ = blobs()
    clf = quick("auto").fit(X, given)
    methods = sigua.candidates(warmup=1)
    assert tuple(clf.choice_.accuracies) == methods
    assert clf.choice_.size == 40
    assert clf.method_ == clf.choice_.kept
    assert [seen["method"] for seen in clf.history_[::3]] == [*methods, clf.method_]
    assert [seen["epoch"] for seen in clf.history_] == [0, 1, 2] * 4
    ends = [seen["held_out_accuracy"] for seen in clf.history_[2:9:3]]
    assert ends == list(clf.choice_.accuracies.values())
    assert "held_out_accuracy" not in clf.history_[-1]


def test_a_method_that_was_given_is_trained_once_on_all():
    X, given, _ = blobs()
    method = sigua.self_teaching(0.3, warmup=1)
    clf = quick(method, batch_size=100).fit(X, given)
    assert clf.method_ == method
    assert clf.choice_ is None
    assert len(clf.history_) == 3
    # Of 100 examples 30 are dropped in the end, but the one that the rule keeps beyond.
    assert clf.history_[-1]["dropped"] == pytest.approx(0.29)
    assert clf.noise_rate_ == pytest.approx(0.29, abs=0.005)


def test_few_held_out_labels_decide_nothing():
    X, given, _ = blobs(n=60)
    clf = quick("auto").fit(X, given)
    assert clf.choice_ is None
    assert clf.method_ == sigua.standard()


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.37])
def test_a_part_is_held_out_of_each_class(fraction):
    """As large as the fraction, give or take one; classes of 1 to 500."""
    given = np.repeat(np.arange(4), [500, 100, 30, 1])
    rng = np.random.RandomState(0)
    part = Part(None, rng.permutation(given), np.zeros(631, dtype=bool))
    chosen = _choice.held_out(part, fraction, int(part.given.max()) + 1, rng)
    assert chosen.sum() == int(631 * fraction)
    for j in range(4):
        here = part.given == j
        assert abs(chosen[here].sum() - fraction * here.sum()) <= 1


def plainly_trained(n, diagnosis=None):
    """Return a training that dropped none, and where no label stands out: margins of one hill."""
    return Run(None, [{"dropped": 0.0}], np.linspace(1, -1, n)[None] ** 3, diagnosis=diagnosis)


def test_where_plain_training_is_kept_held_out_labels_say_how_many_are_wrong():
    """As many labels are flagged as are surely wrong, those with the lowest margins."""
    rng, y = np.random.default_rng(0), np.arange(300) % 3
    given = np.where(rng.random(300) < 0.3, (y + 1) % 3, y)
    found = _choice.diagnosed(0.8 * np.eye(3)[y] + 0.2 / 3, Part(None, given, y < 0))
    clf, checked = quick(), np.arange(1000) >= 990
    clf._name_issues(plainly_trained(1000, found), np.zeros(1000, dtype=int), checked)
    assert clf.noise_rate_ == pytest.approx((given != y).mean(), abs=0.03)
    assert 0.15 < found.surest.low < clf.noise_rate_
    count = int(1000 * found.surest.low)
    assert np.flatnonzero(clf.label_issues_).tolist() == list(range(990 - count, 990))


def test_where_nothing_tells_the_noise_rate_it_is_unknown():
    """No label was held out; or too few, or a model that knows nothing predicts them."""
    clf, nobody = quick(), np.zeros(100, dtype=bool)
    clf._name_issues(plainly_trained(100), np.zeros(100, dtype=int), nobody)
    assert np.isnan(clf.noise_rate_)
    assert not clf.label_issues_.any()
    y = np.arange(100) % 2
    knows, guesses = 0.8 * np.eye(2)[y] + 0.1, np.full((100, 2), 0.5)
    assert _choice.diagnosed(knows, Part(None, y, nobody)) is not None
    assert _choice.diagnosed(guesses, Part(None, y, nobody)) is None
    assert _choice.diagnosed(knows[:49], Part(None, y[:49], nobody[:49])) is None
    assert _choice.diagnosed(knows, Part(None, y, ~nobody)) is None


def test_words_and_data_frames():
    X, given, y = blobs()
    words = np.array(["cat", "ant", "dog"])
    frame = pd.DataFrame(X, columns=list("abcd"))
    clf = quick(epochs=20).fit(frame, pd.Series(words[given]))
    assert clf.classes_.tolist() == ["ant", "cat", "dog"]
    assert clf.feature_names_in_.tolist() == list("abcd")
    assert clf.score(frame, words[y]) > 0.9
    p = clf.predict_proba(frame)
    assert (clf.classes_[p.argmax(axis=1)] == clf.predict(frame)).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=0, atol=1e-6)


def test_sparse_rows_are_trained_on_as_dense_ones_are():
    """Without the scaling of the default network, which differs."""
    X, given, _ = blobs()
    dense, sparse = (quick(module=linear).fit(each, given) for each in (X, csr_array(X)))
    assert np.array_equal(dense.predict_proba(X), sparse.predict_proba(csr_array(X)))
    assert quick(epochs=20).fit(csr_array(X), given).score(csr_array(X), given) > 0.7


def test_the_default_network_does_not_depend_on_units():
    X, given, _ = blobs()
    one = quick().fit(X, given).predict_proba(X)
    other = quick().fit(1000 * X + 5, given).predict_proba(1000 * X + 5)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)


def test_a_module_is_made_for_each_fit_and_gets_x_as_it_is():
    X, given, _ = blobs()
    made = []

    def factory(n_features, n_classes):
        made.append((n_features, n_classes))
        return nn.LazyLinear(n_classes)  # whose size the first rows say

    clf = quick("auto", module=factory).fit(X, given)
    assert made == [(4, 3)] * (2 + 4)  # two of them to see that they are not the same
    logits = torch.as_tensor(X, dtype=torch.float32) @ clf.module_.weight.T + clf.module_.bias
    want = logits.softmax(1).detach().numpy()
    np.testing.assert_allclose(clf.predict_proba(X), want, rtol=0, atol=1e-6)


def test_pipelines_searches_clones_and_pickles():
    X, given, _ = blobs()
    methods = ["sigua_ag", sigua.sigua_sl(0.2, delta=0.05, warmup=1)]
    pipeline = make_pipeline(MinMaxScaler(), quick())
    grid = {"siguaclassifier__method": methods, "siguaclassifier__batch_size": [32]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, given)
    best = search.best_estimator_[-1]
    assert best.method in methods
    assert clone(best).get_params() == best.get_params()
    loaded = pickle.loads(pickle.dumps(search.best_estimator_))
    assert np.array_equal(loaded.predict_proba(X), search.predict_proba(X))


def test_a_seed_repeats_a_fit_and_the_callers_random_numbers_go_on():
    X, given, _ = blobs()
    torch.manual_seed(0)
    want = torch.rand(3)
    torch.manual_seed(0)
    first, second, other = (quick(random_state=seed).fit(X, given) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), want)
    p = first.predict_proba(X)
    assert np.array_equal(second.predict_proba(X), p)
    assert not np.array_equal(other.predict_proba(X), p)


def test_checked_labels_are_half_of_each_mini_batch_choose_and_are_no_issues():
    """All other labels are wrong, shifted by a class: what is right is learnt from 120 alone."""
    X, _, y = blobs(n=400)
    checked = np.arange(400) % 10 < 3
    given = np.where(checked, y, (y + 1) % 3)
    clf = quick("auto", epochs=6).fit(X, given, checked=checked)
    assert clf.choice_.size == 60
    assert not clf.label_issues_[checked].any()
    plain = quick(epochs=6).fit(X, given)
    assert (clf.predict(X) == y).mean() > (plain.predict(X) == y).mean() + 0.2


def test_checked_may_be_a_mask_or_indices():
    X, given, _ = blobs()
    rows = [3, 5, 100]
    mask = np.isin(np.arange(200), rows)
    one, other = (quick().fit(X, given, checked=checked) for checked in (mask, rows))
    assert np.array_equal(one.predict_proba(X), other.predict_proba(X))


def test_few_checked_labels_are_kept_whatever_the_method_drops():
    X, given, y = blobs()
    rows = np.flatnonzero(given == y)[:30]
    clf = quick("auto").fit(X, given, checked=rows)
    assert clf.choice_.size == int(0.2 * 170)
    assert not clf.label_issues_[rows].any()


def test_where_all_are_checked_training_is_plain():
    X, _, y = blobs()
    clf = quick("auto").fit(X, y, checked=np.ones(200, dtype=bool))
    assert clf.method_ == sigua.standard()
    assert clf.choice_ is None
    assert clf.noise_rate_ == 0


def test_verbose_shows_a_bar_and_nothing_else_does(capsys):
    X, given, _ = blobs()
    quick("sigua_ag").fit(X, given)
    assert capsys.readouterr().out == ""
    quick("sigua_ag", verbose=True).fit(X, given)
    said = capsys.readouterr().out
    assert "sigua_ag: " in said
    assert "3/3" in said


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"method": "sigua_sl"}, "method: must be .* got 'sigua_sl'; try sigua.sigua_sl"),
        ({"method": "agreement"}, "method: must be .* got 'agreement'; try method='auto'"),
        ({"method": 3}, "method: must be .* got 3; try method='auto'"),
        ({"epochs": 0}, "epochs: must be a whole number of at least 1, got 0"),
        ({"batch_size": 1}, "batch_size: must be a whole number of at least 2, got 1"),
        ({"validation_fraction": 1}, r"validation_fraction: must be a number in \[0, 1\), got 1"),
        ({"module": nn.Linear(4, 3)}, "module: must be a function .* got a Linear itself; try"),
        ({"module": lambda d, k: 3}, "module: must be a function .* got one that makes a int"),
        ({"module": lambda d, k: nn.Linear(d, 1)}, r"logits \(N, 3\), got shape \(2, 1\)"),
        ({"module": "mlp"}, "module: must be a function .* got 'mlp'; try lambda"),
        ({"module": lambda d: nn.Linear(d, 3)}, "module: must be a function .* got <function"),
        ({"module": nn.ReLU}, "module: must be a function .* got <class .*ReLU'>; try"),
        ({"module": lambda d, k: nn.Linear(9, k)}, r"one that refuses such rows \(mat1 and mat"),
        ({"module": lambda d, k: nn.Embedding(d, k)}, "got one that refuses such rows"),
        ({"module": lambda d, k: nn.LSTM(d, k)}, r"logits \(N, 3\), got a tuple for N = 2; try"),
        ({"module": lambda d, k: ALWAYS}, "module: must make a new network at each call, got the"),
        (
            {"module": lambda d, k: nn.Sequential(nn.Linear(d, k), nn.Softmax(1))},
            "got probabilities; try leaving out its last layer, a softmax",
        ),
        ({"method": sigua.custom(sigua.Known(), 0.01)}, r"^method: must not need marks .* try fit"),
    ],
)
def test_what_cannot_be_is_refused(parameters, sentence):
    X, given, _ = blobs()
    with pytest.raises(ValueError, match=sentence):
        quick(**parameters).fit(X, given)


class Diverged(nn.Linear):
    """What it returns is NaN in training."""

    def forward(self, x):
        return super().forward(x) * (float("nan") if self.training else 1)


@pytest.mark.parametrize("method", ["auto", "standard"])
def test_a_training_that_diverges_is_said_to(method):
    X, given, _ = blobs()
    with pytest.raises(ValueError, match=r"^learning_rate: must be small .* loss of nan in"):
        quick(method, module=Diverged).fit(X, given)


@pytest.mark.parametrize("checked", [np.ones(3, dtype=bool), [200], [-1], [0.5], [[1]]])
def test_checked_that_are_no_examples_are_refused(checked):
    X, given, _ = blobs()
    with pytest.raises(ValueError, match=r"^checked: (a mask )?must (be indices|have shape)"):
        quick().fit(X, given, checked=checked)


def test_checked_examples_that_were_never_drawn_are_right():
    """Of 100 checked not all are in the mini-batches of one epoch; none of them is an issue."""
    X, _, y = blobs(120)
    clf = SIGUAClassifier(epochs=1, random_state=0).fit(X, y, checked=np.arange(100))
    assert not clf.label_issues_[:100].any()
    assert (clf.label_quality_[:100] == 1).all()


def test_a_refused_fit_leaves_the_classifier_as_it_was():
    X, _, y = blobs(120)
    clf = SIGUAClassifier("standard", epochs=2, random_state=0).fit(X, y)
    before = clf.predict_proba(X)
    words = np.where(y, "a", "b")
    refused = [
        (100 * X, words, "x", "checked"),
        (X, y, (y > 0).astype(int), "checked: must name each example once"),
        (X[:, :2], 0 * y, None, "y: must have at least two classes"),
        (np.where(X[0, 0] == X, 1e300, X), y, None, "X: must be finite in float32"),
    ]
    for X_new, y_new, checked, words in refused:
        with pytest.raises(ValueError, match=words):
            clf.fit(X_new, y_new, checked)
        np.testing.assert_array_equal(clf.predict_proba(X), before)
    with pytest.raises(ValueError, match=r"^device: must be one that PyTorch has here, got 'nope'"):
        SIGUAClassifier(device="nope").fit(X, y)
    assert SIGUAClassifier("standard", epochs=1, device=torch.device("cpu")).fit(X, y).module_


def test_who_was_checked_is_refused_in_another_order_than_the_rows():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)))
    checked = pd.Series(np.arange(60) < 20)
    with pytest.raises(ValueError, match=r"^checked: must be in the order of the rows of X, "):
        SIGUAClassifier(epochs=1).fit(frame, np.arange(60) % 3, checked=checked[::-1])


ESTIMATORS = [SIGUAClassifier(epochs=3), PrunedClassifierCV(LogisticRegression(max_iter=500))]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_own_check(estimator, check):
    """All; that of the array API is skipped by scikit-learn, unless SCIPY_ARRAY_API is set."""
    check(estimator)
