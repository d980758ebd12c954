"""Losses besides cross-entropy, in the spec: hand-worked values, limits, and what they bound."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sigua import losses, reference

LN2 = np.log(2)
# p = (1/2, 1/4, 1/4), so that every value below is a closed form.
LOGITS, LABEL = [[LN2, 0.0, 0.0]], [1]
EPS = np.finfo(np.float64).eps


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=16 * EPS, atol=16 * EPS)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (partial(losses.generalized_cross_entropy, q=0.5), 1.0),  # (1 - sqrt(1/4)) / (1/2)
        (partial(losses.generalized_cross_entropy, q=1.0), 3 / 4),
        (losses.generalized_cross_entropy, (1 - 2**-1.4) / 0.7),
        (losses.symmetric_cross_entropy, 0.1 * 2 * LN2 + 4 * 3 / 4),
        (partial(losses.symmetric_cross_entropy, alpha=6, beta=0.1), 12 * LN2 + 0.3),
        (partial(losses.bootstrapping, beta=0.5), 0.5 * 2 * LN2 + 0.5 * 1.5 * LN2),
        (partial(losses.bootstrapping, beta=0.5, hard=True), 0.5 * 2 * LN2 + 0.5 * LN2),
        (losses.bootstrapping, 0.95 * 2 * LN2 + 0.05 * 1.5 * LN2),
        (partial(losses.bootstrapping, hard=True), 0.8 * 2 * LN2 + 0.2 * LN2),
        (losses.focal, 9 / 16 * 2 * LN2),
        (partial(losses.focal, gamma=0.5), 3**0.5 / 2 * 2 * LN2),
    ],
)
def test_values_of_one_half_and_two_quarters(loss, expected):
    """Each loss at p = (1/2, 1/4, 1/4) and label 1 is its closed form."""
    close(loss(LOGITS, LABEL), [expected])


def batches(k=4):
    logits = arrays(np.float64, (5, k), elements=st.floats(-30, 30))
    return given(logits, arrays(np.int64, 5, elements=st.integers(0, k - 1)))


@batches()
def test_limits_that_are_cross_entropy(logits, labels):
    """Without what each adds, the losses are cross-entropy; GCE approaches it as q does 0."""
    plain = reference.cross_entropy(logits, labels)
    close(losses.generalized_cross_entropy(logits, labels, q=0), plain)
    close(losses.symmetric_cross_entropy(logits, labels, alpha=1, beta=0), plain)
    close(losses.bootstrapping(logits, labels, beta=1), plain)
    close(losses.bootstrapping(logits, labels, beta=1, hard=True), plain)
    close(losses.focal(logits, labels, gamma=0), plain)
    # (1 - e^-qL) / q lies within q L^2 / 2 below L.
    gap = plain - losses.generalized_cross_entropy(logits, labels, q=1e-6)
    assert (gap >= -1e-9).all()
    assert (gap <= 1e-6 * plain**2 / 2 + 1e-9).all()


@batches()
def test_mean_absolute_error_is_a_special_case(logits, labels):
    """GCE with q = 1 is half of |p - y|_1, and reverse cross-entropy with log 0 = -2 all of it."""
    p = np.exp(reference.log_softmax(logits))
    absolute = np.abs(p - np.eye(4)[labels]).sum(axis=1)
    close(2 * losses.generalized_cross_entropy(logits, labels, q=1), absolute)
    close(losses.symmetric_cross_entropy(logits, labels, 0, 1, log_zero=-2), absolute)


ALL = [
    losses.generalized_cross_entropy,
    losses.symmetric_cross_entropy,
    losses.bootstrapping,
    partial(losses.bootstrapping, hard=True),
    losses.focal,
]


@pytest.mark.parametrize("loss", ALL)
def test_extreme_logits(loss):
    """Logits of 1e4 either way give finite losses; a masked class (-inf) costs others nothing."""
    assert np.isfinite(loss([[1e4, -1e4, 0.0]] * 3, [0, 1, 2])).all()
    close(loss([[0.5, -0.5, -np.inf]], [1]), loss([[0.5, -0.5]], [1]))
