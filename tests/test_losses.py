"""Generalised cross-entropy, in the spec: hand-worked values, and what it is in the limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sigua import reference
from sigua.losses import generalized_cross_entropy

LN2 = np.log(2)
# p = (1/2, 1/4, 1/4), so that every value below is a closed form.
LOGITS, LABEL = [[LN2, 0.0, 0.0]], [1]
EPS = np.finfo(np.float64).eps


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=16 * EPS, atol=16 * EPS)


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        (0.5, 1.0),  # (1 - sqrt(1/4)) / (1/2)
        (0.7, (1 - 2**-1.4) / 0.7),
        (1.0, 3 / 4),
    ],
)
def test_values_of_one_half_and_two_quarters(q, expected):
    """At p = (1/2, 1/4, 1/4) and label 1 it is its closed form."""
    close(generalized_cross_entropy(LOGITS, LABEL, q), [expected])


def batches(k=4):
    logits = arrays(np.float64, (5, k), elements=st.floats(-30, 30))
    return given(logits, arrays(np.int64, 5, elements=st.integers(0, k - 1)))


@batches()
def test_it_lies_between_cross_entropy_and_half_of_the_absolute_error(logits, labels):
    """Cross-entropy is approached as q approaches 0; 1 - p_y, for q = 1, is half of |p - y|_1."""
    plain = reference.cross_entropy(logits, labels)
    close(generalized_cross_entropy(logits, labels, q=0), plain)
    # (1 - e^-qL) / q lies within q L^2 / 2 below L.
    gap = plain - generalized_cross_entropy(logits, labels, q=1e-6)
    assert (gap >= -1e-9).all()
    assert (gap <= 1e-6 * plain**2 / 2 + 1e-9).all()
    absolute = np.abs(np.exp(reference.log_softmax(logits)) - np.eye(4)[labels]).sum(axis=1)
    close(2 * generalized_cross_entropy(logits, labels, q=1), absolute)


def test_extreme_logits():
    """Logits of 1e4 either way give finite losses; a masked class (-inf) costs others nothing."""
    loss = generalized_cross_entropy
    assert np.isfinite(loss([[1e4, -1e4, 0.0]] * 3, [0, 1, 2])).all()
    close(loss([[0.5, -0.5, -np.inf]], [1]), loss([[0.5, -0.5]], [1]))
