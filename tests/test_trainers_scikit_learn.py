"""The page for scikit-learn users: its blocks run, and it says what these libraries do.

What `fit` of Keras returns is drawn as it is.
"""

import pickle
import re
import sys
import types
from pathlib import Path

import keras
import numpy as np
import pytest
import torch
from scikeras.wrappers import KerasClassifier
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict

import sigua
from sigua import plot
from sigua_keras import SIGUA

pytestmark = [
    # Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
]
PAGE = Path(__file__).parents[1] / "examples" / "guide" / "scikit_learn.md"


@pytest.fixture(scope="module")
def page():
    """What the page's blocks leave behind, run one after the other."""
    module = types.ModuleType("scikit_learn_page")  # one with a name, for pickle
    sys.modules[module.__name__] = module
    text = PAGE.read_text(encoding="utf-8")
    for match in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
        place = f"{PAGE.name}:{text[: match.start()].count(chr(10)) + 2}"
        exec(compile(match[1], place, "exec"), module.__dict__)
    yield module.__dict__
    del sys.modules[module.__name__]


@pytest.fixture
def classifier(page):
    """SciKeras's classifier, for a few epochs."""
    return clone(page["clf"]).set_params(epochs=7)


def test_out_of_fold_probabilities_find_most_of_the_wrong_labels(page):
    """Made wrong were 40 %; both lists are mostly right, and hold most of them."""
    wrong = page["y"] != page["true_labels"]
    for those in (page["suspects"], page["issues"].suspects):
        assert wrong[those].mean() > 0.85
        assert those[wrong].mean() > 0.85


def test_the_share_dropped_and_the_diagnosis_come_near_the_noise_rate(page):
    """In all three, by whichever way the method came in."""
    wrong = (page["y"] != page["true_labels"]).mean()
    for history in (page["clf"].history_, page["wrapped"].history_.history):
        assert history["sigua_bad"][0] == 0
        assert history["sigua_bad"][-1] == pytest.approx(wrong, abs=0.08)
    assert sigua.estimate_noise_rate(page["p"], page["words"], classes=page["classes"]) == (
        pytest.approx(wrong, abs=0.08)
    )


def test_skorch_tells_the_epoch_anew_in_each_fold(page):
    """A fitted classifier is cloned at epoch 0, and its network made afresh."""
    net = clone(page["net"]).fit(page["x"], page["y"])
    assert net.criterion_.epoch == 19
    other = clone(net).initialize()
    assert other.criterion_.epoch == 0
    weights = [each.module_[0].weight for each in (net, other)]
    assert not torch.equal(*weights)
    assert pickle.loads(pickle.dumps(net)).criterion_.epoch == 19


def test_scikeras_makes_a_callback_for_each_fit(page, classifier):
    """So that a fitted classifier can be cloned, and each fold begins at epoch 0."""
    x, y = page["x"], page["y"]
    first = classifier.fit(x, y).history_["sigua_bad"]
    again = clone(classifier).fit(x, y).history_["sigua_bad"]
    assert len(first) == len(again) == 7
    for dropped in (first, again):
        assert dropped[0] == 0
        assert dropped[-1] > 0.2
    cross_val_predict(classifier, x, y, cv=2, method="predict_proba")


def test_scikeras_is_searched_over_whole_callbacks(page, classifier):
    methods = [sigua.standard(), page["method"]]
    grid = {"callbacks": [SIGUA(method) for method in methods]}
    bare = KerasClassifier(page["model"], epochs=7, batch_size=128, verbose=0)
    search = GridSearchCV(bare, grid, cv=2, error_score="raise").fit(page["x"], page["y"])
    chosen = search.best_params_["callbacks"].method
    assert chosen in methods
    dropped = search.best_estimator_.history_["sigua_bad"][-1]
    assert (dropped > 0.2) == (chosen != sigua.standard())
    with pytest.raises(TypeError, match="set_params"):
        clone(classifier).set_params(callbacks__method=methods[0])


def test_scikeras_pickles_a_fitted_classifier(page, classifier):
    want = classifier.fit(page["x"], page["y"]).predict_proba(page["x"])
    loaded = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_allclose(loaded.predict_proba(page["x"]), want, rtol=1e-5, atol=1e-7)
    loaded.partial_fit(page["x"], page["y"])
    assert len(loaded.history_["sigua_bad"]) == 8
    assert loaded.history_["sigua_bad"][-1] > 0.2


def test_keras_wrapper_loses_fit_kwargs_in_a_clone(page):
    """As the page says; once this fails, the page can be shorter."""
    made = keras.wrappers.SKLearnClassifier(page["forgetting"], fit_kwargs={"epochs": 20})
    assert clone(made).fit_kwargs is None
    assert not hasattr(made, "predict_proba")


def test_keras_wrapper_takes_what_fit_needs_from_params(page):
    """Seven epochs, and not one: out of fold most true labels are found, and rows sum to 1."""
    options = {"method": "decision_function", "params": {"epochs": 7, "verbose": 0}}
    p = cross_val_predict(page["wrapped"], page["x"], page["y"], cv=2, **options)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=0, atol=1e-5)
    assert (p.argmax(axis=1) == page["true_labels"]).mean() > 0.8


def test_the_history_of_keras_is_drawn():
    """Of 64 floor(64 * rho) + 1 are kept once anybody is dropped; rho is 1, .75, .5, .5."""
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    x, method = np.random.default_rng(0).normal(size=(64, 5)), sigua.sigua_sl(0.5, 0.25, warmup=2)
    fitted = model.fit(x, np.arange(64) % 3, 64, epochs=4, verbose=0, callbacks=[SIGUA(method)])
    for recorded in (fitted, fitted.history):
        good, bad, _ = (line.get_ydata() / 100 for line in plot.selection(recorded).get_lines())
        np.testing.assert_allclose(good, np.array([64, 49, 33, 33]) / 64, rtol=1e-6)
        np.testing.assert_allclose(bad, fitted.history["sigua_bad"], rtol=1e-6)
