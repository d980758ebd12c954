"""Losses besides cross-entropy in PyTorch: against the core's, and under every kind of method."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn
from torch.nn import functional as F

import sigua
from sigua import TransitionMatrix, reference
from sigua import losses as spec
from sigua_torch import SIGUALoss, losses, two_way

PARAMETERS = {
    "gce": ("generalized_cross_entropy", {}),
    "gce q=0.2": ("generalized_cross_entropy", {"q": 0.2}),
    "sce": ("symmetric_cross_entropy", {}),
    "sce alpha=6": ("symmetric_cross_entropy", {"alpha": 6.0, "beta": 0.1, "log_zero": -6.0}),
    "soft": ("bootstrapping", {}),
    "hard": ("bootstrapping", {"hard": True}),
    "focal": ("focal", {}),
    "focal gamma=0.5": ("focal", {"gamma": 0.5}),
}
PAIRS = {
    name: (partial(getattr(losses, function), **given), partial(getattr(spec, function), **given))
    for name, (function, given) in PARAMETERS.items()
}
each = pytest.mark.parametrize("name", PAIRS)
SOFT = torch.tensor(np.random.default_rng(1).dirichlet(np.ones(4), 24))


def batch(n=24, k=4, dtype=torch.float64):
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(scale=2, size=(n, k)), dtype=dtype, requires_grad=True)
    return logits, torch.tensor(rng.integers(0, k, n))


def close(actual, expected, factor=16.0):
    """Assert equal within a few roundings of the largest entry."""
    eps = torch.finfo(actual.dtype).eps
    actual = actual.detach().double().numpy()
    expected = np.asarray(expected.detach() if torch.is_tensor(expected) else expected)
    atol = factor * eps * max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_are_the_cores(name, dtype):
    """A batch, one example, and a map of examples get the core's losses, in the input's dtype."""
    loss, core = PAIRS[name]
    logits, labels = batch(dtype=dtype)
    expected = core(logits.detach().numpy(), labels)
    close(loss(logits, labels), expected)
    close(loss(logits[0], labels[0]), expected[0])
    maps = logits.reshape(4, 3, 2, 4).permute(0, 3, 1, 2)
    close(loss(maps, labels.reshape(4, 3, 2)), expected.reshape(4, 3, 2))
    assert loss(logits, labels).dtype == dtype


@each
def test_gradients_are_those_of_the_values(name):
    """Finite differences agree with the gradient, for class indices and for probabilities."""
    loss, (logits, labels) = PAIRS[name][0], batch(6)
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), logits)
    assert torch.autograd.gradcheck(lambda x: loss(x, SOFT[:6]), logits)


@each
def test_probabilities_are_what_class_indices_are_where_they_are_one_hot(name):
    """Otherwise a loss that is linear in the label is averaged over them."""
    loss, (logits, labels) = PAIRS[name][0], batch()
    close(loss(logits, F.one_hot(labels, 4).double()), loss(logits, labels))
    if "sce" not in name:
        table = torch.stack([loss(logits, torch.full((24,), j)) for j in range(4)], 1)
        close(loss(logits, SOFT), (table * SOFT).sum(1))
        maps, soft = (x.reshape(4, 6, 4).transpose(1, 2) for x in (logits, SOFT))
        close(loss(maps, soft), (table * SOFT).sum(1).reshape(4, 6))


def test_reverse_cross_entropy_takes_the_logarithm_of_probabilities():
    """By hand: -(1/4 + 3/4) log(1/2)."""
    p, q = torch.tensor([[0.25, 0.75]]).double(), torch.tensor([[0.5, 0.5]]).double()
    close(losses.symmetric_cross_entropy(p.log(), q, alpha=0.0), [np.log(2)])


@each
def test_ignored_targets_cost_nothing(name):
    """An ignored index has loss 0 and gradient 0, and changes no other's; -100 or one's own."""
    loss, (logits, labels) = PAIRS[name][0], batch(8)
    rest = torch.arange(8) != 3
    some = loss(logits, labels.where(rest, -100))
    some.sum().backward()
    assert some[3] == 0
    assert not logits.grad[3].any()
    assert some[rest].equal(loss(logits, labels)[rest])
    assert loss(logits, labels.where(rest, 255), ignore_index=255).equal(some)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_extreme_logits(name, dtype):
    """Logits of 1e4 either way have finite losses and gradients at every label."""
    logits = torch.tensor([[1e4, -1e4, 0.0]] * 3 + [[0.0, 0.0, 0.0]], dtype=dtype)
    value = PAIRS[name][0](logits.requires_grad_(), torch.tensor([0, 1, 2, 0]))
    value.sum().backward()
    assert value.isfinite().all()
    assert logits.grad.isfinite().all()
    assert value.dtype == dtype


@each
def test_masked_classes(name):
    """A class with logit -inf changes no other's loss; as a label it spoils nobody's gradient."""
    loss, (logits, labels) = PAIRS[name][0], batch(6)
    wide = torch.cat([logits.detach(), torch.full((6, 1), -torch.inf).double()], 1)
    close(loss(wide.requires_grad_(), labels), loss(logits, labels))
    labels = labels.index_fill(0, torch.tensor([2]), 4)
    SIGUALoss(sigua.standard(), loss)(wide, labels).backward()
    assert wide.grad.isfinite().all()
    assert wide.grad[0].any()


@each
def test_on_the_device_and_compiled(name):
    """No loss needs to know a value: it runs on the meta device, and as one graph."""
    loss, (logits, labels) = PAIRS[name][0], batch()
    meta = logits.detach().to("meta").requires_grad_()
    loss(meta, labels.to("meta")).sum().backward()
    assert meta.grad.shape == logits.shape
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    close(compiled(logits, labels), loss(logits, labels))


# 1'T^-1 has a negative entry, so that over="classes" can fire.
T = TransitionMatrix([[0.9, 0.1, 0, 0], [0.6, 0.3, 0.1, 0], [0, 0.2, 0.7, 0.1], [0, 0, 0.3, 0.7]])
SYMMETRIC = TransitionMatrix.symmetric(0.4, 4)
SMALL = sigua.SmallLoss(0.5, 0.25, 0)
METHODS = [
    sigua.sigua_sl(0.5, delta=0.25, gamma=0.25, warmup=0),
    sigua.sigua_sl(0.5, delta=0.25, gamma=0.25, warmup=0, variant="official"),
    sigua.custom(sigua.Known(), gamma=0.5, correction="backward", T=T),
    sigua.sigua_bc(T, gamma=0.5, over="classes"),
    sigua.sigua_bc(SYMMETRIC, gamma=0.5, over="batch"),
    sigua.forward_correction(T),
    sigua.custom(SMALL, 0.25, "forward", SYMMETRIC),
]


def measured(method, core, logits, labels):
    """Return the spec's losses under the method, and 1'T^-1 l."""
    if method.correction == "forward":
        p = np.exp(reference.log_softmax(logits))
        return core(np.log(p @ method.T.rows), labels), None
    if method.correction == "none":
        return core(logits, labels), None
    table = np.stack([core(logits, np.full(len(labels), j)) for j in range(logits.shape[1])], 1)
    corrected = table @ method.T.inverse.T
    return corrected[np.arange(len(labels)), labels], corrected.sum(axis=1)


def expected_step(method, core, logits, labels, trusted):
    """Return the split, the objective, and its gradient by central differences."""
    values, sums = measured(method, core, logits, labels)
    split = reference.split(method, values, trusted=trusted, class_sums=sums)
    weights = sigua.signed_weights(split, method.at(0)[0], separate=method.separate)
    gradient = np.empty_like(logits)
    for j in range(logits.shape[1]):
        shift = 1e-6 * np.eye(logits.shape[1])[j]
        up, down = (measured(method, core, logits + s * shift, labels)[0] for s in (1, -1))
        gradient[:, j] = weights * (up - down) / 2e-6 / len(labels)
    return split, sigua.objective(values, weights), gradient


@pytest.mark.parametrize("method", METHODS, ids=lambda method: repr(method)[:40])
@each
def test_composed_with_methods(name, method):
    """A loss under a method has the masks, objective and gradient made of the core's losses."""
    (loss, core), (logits, labels) = PAIRS[name], batch()
    known = isinstance(method.condition, sigua.Known)
    marks = np.random.default_rng(2).random(24) < 0.5 if known else None
    criterion = SIGUALoss(method, loss)
    value = criterion(logits, labels, trusted=torch.tensor(marks) if known else None)
    value.backward()
    found = expected_step(method, core, logits.detach().numpy(), labels.numpy(), marks)
    split, objective, gradient = found
    np.testing.assert_array_equal(criterion.split.good, split.good)
    np.testing.assert_array_equal(criterion.split.bad, split.bad)
    close(value, objective)
    np.testing.assert_allclose(logits.grad, gradient, rtol=0, atol=1e-8)  # of the differences


# Section 2: where the losses of two classes add up to a constant, up is down at the other label.
SYMMETRIC_LOSSES = {
    "mae": partial(losses.generalized_cross_entropy, q=1.0),
    "reverse": partial(losses.symmetric_cross_entropy, alpha=0.0),
    "unhinged": lambda f, y: 1 - (2 * y - 1) * (f[:, 1] - f[:, 0]),
    "sigmoid": lambda f, y: torch.sigmoid(-(2 * y - 1) * (f[:, 1] - f[:, 0])),
    "ramp": lambda f, y: (1 - (2 * y - 1) * (f[:, 1] - f[:, 0])).clamp(0, 2) / 2,
}


def climb_and_descend(loss, logits, labels):
    """Return the gradients of climbing on the labels and of descending on the flipped ones."""
    x, y = torch.tensor(logits, requires_grad=True), torch.tensor(labels)
    climb = SIGUALoss(sigua.custom(sigua.Known(), gamma=1.0), loss)
    up = climb(x, y, trusted=torch.zeros(len(y), dtype=torch.bool))
    down = SIGUALoss(sigua.standard(), loss)(x, 1 - y)
    return torch.autograd.grad(up, x)[0], torch.autograd.grad(down, x)[0]


@pytest.mark.parametrize("name", SYMMETRIC_LOSSES)
@given(
    arrays(np.float64, (6, 2), elements=st.floats(-20, 20)),
    arrays(np.int64, 6, elements=st.integers(0, 1)),
)
def test_ascent_on_a_symmetric_loss_is_descent_on_the_flipped_label(name, logits, labels):
    """For two classes and a symmetric loss, gamma = 1 is label correction (Section 2)."""
    close(*climb_and_descend(SYMMETRIC_LOSSES[name], logits, labels))


def test_ascent_on_cross_entropy_is_not():
    """Cross-entropy is not symmetric: climbing away from p_0 = .95 is slow, descending is fast."""
    up, down = climb_and_descend(nn.CrossEntropyLoss(), np.array([[2.0, -1.0]]), np.array([0]))
    assert down.abs().max() > 10 * up.abs().max()


TWO = TransitionMatrix([[0.9, 0.1], [0.6, 0.4]])


def sigmoids(shape):
    """Return a logit and a label for each of 12, and the two logits of the same softmax."""
    rng = np.random.default_rng(3)
    z, labels = rng.normal(scale=3, size=12), rng.integers(0, 2, 12)
    logits = torch.tensor(z).reshape(shape).requires_grad_()
    return logits, torch.tensor(labels).reshape(shape), np.stack([0 * z, z], axis=1), labels


def assert_step(criterion, logits, value, step):
    value.backward()
    shape = logits.shape
    np.testing.assert_array_equal(criterion.split.good, step.split.good.reshape(shape))
    np.testing.assert_array_equal(criterion.split.bad, step.split.bad.reshape(shape))
    close(value, step.objective, 64)
    close(logits.grad, step.gradient[:, 1].reshape(shape), 64)


@pytest.mark.parametrize("shape", [(12,), (4, 3)], ids=str)
@pytest.mark.parametrize(
    "method", [sigua.sigua_bc(TWO, gamma=0.5), sigua.forward_correction(TWO)], ids=repr
)
def test_two_way_makes_a_softmax_of_a_sigmoid(method, shape):
    """With a 2 x 2 T, one logit per label trains as the softmax of (0, z) in the core."""
    logits, target, two, labels = sigmoids(shape)
    criterion = SIGUALoss(method)
    step = reference.step(method, two, labels)
    assert_step(criterion, logits, criterion(two_way(logits), target), step)


@pytest.mark.parametrize("shape", [(12,), (12, 1), (3, 4)], ids=str)
def test_small_loss_on_sigmoids(shape):
    """Without T, every entry of the loss is an example: several labels, several examples."""
    logits, target, two, labels = sigmoids(shape)
    method = METHODS[0]
    criterion = SIGUALoss(method, nn.BCEWithLogitsLoss())
    step = reference.step(method, two, labels)
    assert_step(criterion, logits, criterion(logits, target.double()), step)


def test_several_labels_as_one_example():
    """A loss that averages its labels makes a row one example."""
    logits, target, two, labels = sigmoids((4, 3))
    sigmoid = nn.BCEWithLogitsLoss(reduction="none")
    criterion = SIGUALoss(METHODS[0], lambda z, y: sigmoid(z, y).mean(1))
    criterion(logits, target.double())
    rows = reference.cross_entropy(two, labels).reshape(4, 3).mean(axis=1)
    np.testing.assert_array_equal(criterion.split.good, reference.split(METHODS[0], rows).good)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_extreme_logits_of_a_sigmoid(dtype):
    """One-sided noise and logits of 1e4 either way: finite losses, gradients that pull."""
    one_sided = TransitionMatrix([[1.0, 0.0], [0.3, 0.7]])
    for method in (sigua.backward_correction(one_sided), sigua.forward_correction(one_sided)):
        logits = torch.tensor([1e4, -1e4, -1e4, 1e4], dtype=dtype, requires_grad=True)
        value = SIGUALoss(method)(two_way(logits), torch.tensor([0, 1, 0, 1]))
        value.backward()
        assert value.isfinite()
        assert logits.grad.isfinite().all()
    assert logits.grad[1] == -0.25  # forward: label 1 at p(1) = 0 descends at full speed


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(losses.generalized_cross_entropy, q=1.5), r"^q: must be .* \[0, 1\], got 1.5;"),
        (partial(losses.generalized_cross_entropy, q="a"), r"^q: must be a number in .* got 'a';"),
        (partial(losses.symmetric_cross_entropy, alpha=-1), "^alpha: must be a number in"),
        (partial(losses.symmetric_cross_entropy, log_zero=1.0), "^log_zero: must be a number in"),
        (partial(losses.bootstrapping, beta=2), "^beta: must be a number in"),
        (partial(losses.focal, gamma=-1), "^gamma: must be a number in"),
    ],
)
def test_refused_parameters(call, message):
    """A parameter out of range is refused by name."""
    with pytest.raises(ValueError, match=message):
        call(torch.zeros(2, 3), torch.tensor([0, 1]))


@each
@pytest.mark.parametrize(
    "target",
    [torch.full((8,), 0.7), torch.zeros(5).long(), torch.zeros(8, 1).long(), torch.zeros(8, 1)],
    ids=["floats", "fewer", "column", "column of floats"],
)
def test_targets_that_do_not_fit_are_refused(name, target):
    """By PyTorch: 0.7 would be cut to class 0, and a column would broadcast."""
    with pytest.raises((ValueError, RuntimeError), match="target"):
        PAIRS[name][0](torch.zeros(8, 3), target)
