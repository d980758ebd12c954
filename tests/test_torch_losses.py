"""Losses besides cross-entropy in PyTorch: against the spec, and under every kind of method."""

from functools import partial

import numpy as np
import pytest
import torch
from contract import assert_same
from torch import nn
from torch.nn import functional as F

import sigua
from sigua import TransitionMatrix, reference
from sigua import losses as spec
from sigua_torch import SIGUALoss, losses, two_way

gce, gce_spec = losses.generalized_cross_entropy, spec.generalized_cross_entropy


def brier(logits, labels):
    """Return a loss of one's own: |p - y|^2."""
    return (logits.softmax(1) - F.one_hot(labels, logits.shape[1])).square().sum(1)


def brier_spec(logits, labels):
    p = np.exp(reference.log_softmax(logits))
    return ((p - np.eye(p.shape[1])[labels]) ** 2).sum(axis=1)


PAIRS = {"gce": (gce, gce_spec), "gce q=0.2": (partial(gce, q=0.2), partial(gce_spec, q=0.2))}
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
def test_probabilities_are_what_class_indices_are_where_they_are_one_hot(name):
    """Otherwise the loss is averaged over them."""
    loss, (logits, labels) = PAIRS[name][0], batch()
    close(loss(logits, F.one_hot(labels, 4).double()), loss(logits, labels))
    table = torch.stack([loss(logits, torch.full((24,), j)) for j in range(4)], 1)
    close(loss(logits, SOFT), (table * SOFT).sum(1))
    maps, soft = (x.reshape(4, 6, 4).transpose(1, 2) for x in (logits, SOFT))
    close(loss(maps, soft), (table * SOFT).sum(1).reshape(4, 6))


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
@pytest.mark.parametrize("name", [*PAIRS, "brier"])
def test_composed_with_methods(name, method):
    """A loss under a method has the masks, objective and gradient made of the spec's losses."""
    (loss, core), (logits, labels) = PAIRS.get(name, (brier, brier_spec)), batch()
    known = isinstance(method.condition, sigua.Known)
    marks = np.random.default_rng(2).random(24) < 0.5 if known else None
    criterion = SIGUALoss(method, loss)
    value = criterion(logits, labels, trusted=torch.tensor(marks) if known else None)
    value.backward()
    found = expected_step(method, core, logits.detach().numpy(), labels.numpy(), marks)
    split, objective, gradient = found
    assert_same(criterion.split, split)
    close(value, objective)
    np.testing.assert_allclose(logits.grad, gradient, rtol=0, atol=1e-8)  # of the differences


def test_ascent_on_a_symmetric_loss_is_descent_on_the_flipped_label():
    """For two classes whose losses add up to a constant; cross-entropy's do not (Section 2)."""
    logits, labels = batch(k=2)

    def slopes(loss):
        climb = SIGUALoss(sigua.custom(sigua.Known(), gamma=1.0), loss)
        up = climb(logits, labels, trusted=torch.zeros(24, dtype=torch.bool))
        down = SIGUALoss(sigua.standard(), loss)(logits, 1 - labels)
        return [torch.autograd.grad(each, logits)[0] for each in (up, down)]

    close(*slopes(partial(gce, q=1.0)))
    up, down = slopes(nn.CrossEntropyLoss())
    assert (up - down).abs().max() > 0.01


@pytest.mark.parametrize("shape", [(24,), (24, 1), (6, 4)], ids=str)
def test_a_sigmoid_is_a_softmax_of_two(shape):
    """By small loss each entry of a sigmoid's loss is an example; with T, `two_way` makes two."""
    (logits, labels), T2 = batch(k=2), TransitionMatrix([[0.9, 0.1], [0.6, 0.4]])
    z = (logits[:, 1] - logits[:, 0]).detach().reshape(shape).requires_grad_()
    y = labels.reshape(shape)
    two = np.stack([0 * z.detach().flatten(), z.detach().flatten()], axis=1)
    for method, loss, arguments in (
        (METHODS[0], nn.BCEWithLogitsLoss(), (z, y.double())),
        (sigua.sigua_bc(T2, gamma=0.5), None, (two_way(z), y)),
        (sigua.forward_correction(T2), None, (two_way(z), y)),
    ):
        criterion, step = SIGUALoss(method, loss), reference.step(method, two, labels.numpy())
        (gradient,) = torch.autograd.grad(criterion(*arguments), z)
        np.testing.assert_array_equal(criterion.split.good, step.split.good.reshape(shape))
        np.testing.assert_array_equal(criterion.split.bad, step.split.bad.reshape(shape))
        close(gradient, step.gradient[:, 1].reshape(shape), 64)


@pytest.mark.parametrize("q", [1.5, -0.1, "a"])
def test_a_q_out_of_range_is_refused(q):
    with pytest.raises(ValueError, match=rf"^q: must be a number in \[0, 1\], got {q!r};"):
        gce(torch.zeros(2, 3), torch.tensor([0, 1]), q)


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
