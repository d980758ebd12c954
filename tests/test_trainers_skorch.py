"""skorch makes a scikit-learn classifier of it."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from programs import module_of
from sklearn.base import clone

import sigua

EXAMPLE = Path(__file__).parents[1] / "examples" / "trainers" / "skorch_search.py"
METHOD = sigua.sigua_sl(0.5, delta=0.2, gamma=0.1, warmup=4)


@pytest.fixture(scope="module")
def example():
    """The example as a module."""
    return module_of(EXAMPLE)


@pytest.fixture
def net(example):
    """The network alone, without its pipeline, for a few epochs."""
    return example.classifier(METHOD, max_epochs=6)[-1]


@pytest.fixture(scope="module")
def digits(example):
    """Pixels in [0, 1] and labels, half of them wrong."""
    x, y, *_ = example.load()
    return x / 16, y


def test_probabilities_are_the_softmax_of_the_logits(net, digits):
    x, y = digits
    p = net.fit(x, y).predict_proba(x)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=0, atol=1e-5)
    logits = torch.cat(list(net.forward_iter(x)))
    np.testing.assert_allclose(p, logits.softmax(dim=1), rtol=1e-5, atol=1e-7)


def test_the_criterion_has_the_epoch_and_goes_on_in_partial_fit(net, digits):
    net.fit(*digits)
    assert net.criterion_.epoch == 5
    net.partial_fit(*digits)
    assert net.criterion_.epoch == 11


def test_the_method_is_a_parameter_like_any_other(net):
    other = clone(net).set_params(criterion__method=sigua.standard())
    assert net.get_params()["criterion__method"] == METHOD
    assert clone(net).get_params()["criterion__method"] == METHOD
    assert other.get_params()["criterion__method"] == sigua.standard()


def test_a_pickle_and_a_checkpoint_hold_the_epoch(net, digits, tmp_path):
    net.fit(*digits).save_params(f_criterion=tmp_path / "criterion.pt")
    other = pickle.loads(pickle.dumps(net))
    assert np.array_equal(other.predict_proba(digits[0]), net.predict_proba(digits[0]))
    assert other.criterion_.epoch == 5
    other = clone(net).initialize()
    other.load_params(f_criterion=tmp_path / "criterion.pt")
    assert other.criterion_.epoch == 5
