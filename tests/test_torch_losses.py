"""Losses besides cross-entropy in PyTorch: against the core's, and under every kind of method."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn
from torch.nn import functional as F

import sigua
from sigua import TransitionMatrix, reference
from sigua import losses as spec
from sigua_torch import SIGUALoss, losses

PAIRS = {
    "gce": (losses.generalized_cross_entropy, spec.generalized_cross_entropy),
    "gce q=0.2": (
        partial(losses.generalized_cross_entropy, q=0.2),
        partial(spec.generalized_cross_entropy, q=0.2),
    ),
    "sce": (losses.symmetric_cross_entropy, spec.symmetric_cross_entropy),
    "sce alpha=6": (
        partial(losses.symmetric_cross_entropy, alpha=6.0, beta=0.1, log_zero=-6.0),
        partial(spec.symmetric_cross_entropy, alpha=6.0, beta=0.1, log_zero=-6.0),
    ),
    "soft": (losses.bootstrapping, spec.bootstrapping),
    "hard": (partial(losses.bootstrapping, hard=True), partial(spec.bootstrapping, hard=True)),
    "focal": (losses.focal, spec.focal),
    "focal gamma=0.5": (partial(losses.focal, gamma=0.5), partial(spec.focal, gamma=0.5)),
    "huber": (partial(losses.huber, delta=0.5), partial(spec.huber, delta=0.5)),
    "log-sum": (losses.log_sum, spec.log_sum),
}
ON_SCORES = {"huber", "log-sum"}  # the others depend on probabilities
each = pytest.mark.parametrize("name", PAIRS)


def batch(n=24, k=4, dtype=torch.float64):
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(scale=2, size=(n, k)), dtype=dtype, requires_grad=True)
    return logits, torch.tensor(rng.integers(0, k, n))


def close(actual, expected, factor=16.0):
    """Assert equal within a few roundings of the largest entry."""
    actual = actual.detach()
    eps = torch.finfo(actual.dtype).eps
    actual, expected = actual.double().numpy(), np.asarray(expected)
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
    assert loss(logits, labels.to(torch.uint8)).equal(loss(logits, labels))


@each
def test_gradients_are_those_of_the_values(name):
    """Finite differences agree with the gradient, for class indices and for probabilities."""
    loss = PAIRS[name][0]
    logits, labels = batch(6)
    soft = torch.tensor(np.random.default_rng(1).dirichlet(np.ones(4), 6))
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), logits)
    assert torch.autograd.gradcheck(lambda x: loss(x, soft), logits)


@each
def test_one_hot_targets_are_class_indices(name):
    """A one-hot target gives the loss of its class."""
    loss = PAIRS[name][0]
    logits, labels = batch()
    one_hot = F.one_hot(labels, 4).double()
    close(loss(logits, one_hot), loss(logits, labels).detach())
    maps = logits.reshape(4, 6, 4).transpose(1, 2)
    close(loss(maps, one_hot.reshape(4, 6, 4).transpose(1, 2)), loss(maps, labels.view(4, 6)).data)


@pytest.mark.parametrize("name", ["gce", "focal", "soft", "hard"])
def test_probabilities_average_over_classes(name):
    """A loss that is linear in the label is averaged over the target's probabilities."""
    loss = PAIRS[name][0]
    logits, _ = batch(6)
    soft = torch.tensor(np.random.default_rng(1).dirichlet(np.ones(4), 6))
    table = torch.stack([loss(logits, torch.full((6,), j)) for j in range(4)], 1)
    close(loss(logits, soft), (table * soft).sum(1).detach())


def test_probabilities_in_reverse_cross_entropy_and_regression():
    """Reverse cross-entropy takes the target's logarithm, and regression the target as it is."""
    p, q = torch.tensor([[0.25, 0.75]]).double(), torch.tensor([[0.5, 0.5]]).double()
    reverse = losses.symmetric_cross_entropy(p.log(), q, alpha=0.0)
    close(reverse, [np.log(2)])  # -(1/4 + 3/4) log(1/2)
    close(losses.huber(p, q), [2 * 0.25**2 / 2])
    close(losses.log_sum(p, q, epsilon=0.25), [2 * np.log(2)])


@each
def test_ignored_targets_cost_nothing(name):
    """An ignored index has loss 0 and gradient 0, and changes no other's; -100 or one's own."""
    loss = PAIRS[name][0]
    logits, labels = batch(8)
    plain = loss(logits, labels)
    ignored = labels.clone()
    ignored[3] = -100
    some = loss(logits, ignored)
    some.sum().backward()
    assert some[3] == 0
    assert not logits.grad[3].any()
    rest = torch.arange(8) != 3
    assert some[rest].equal(plain[rest])
    assert loss(logits, ignored.where(rest, 255), ignore_index=255).equal(some)
    with pytest.raises((IndexError, RuntimeError)):
        loss(logits, ignored.where(rest, 255))


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_extreme_logits(name, dtype):
    """Logits of 1e4 either way have finite losses and gradients at every label."""
    loss = PAIRS[name][0]
    logits = torch.tensor([[1e4, -1e4, 0.0]] * 3 + [[0.0, 0.0, 0.0]], dtype=dtype)
    logits.requires_grad_()
    value = loss(logits, torch.tensor([0, 1, 2, 0]))
    value.sum().backward()
    assert value.isfinite().all()
    assert logits.grad.isfinite().all()
    assert value.dtype == dtype


@pytest.mark.parametrize("name", sorted(PAIRS.keys() - ON_SCORES))
def test_masked_classes(name):
    """A class with logit -inf changes no other's loss; as a label it spoils nobody's gradient."""
    loss = PAIRS[name][0]
    logits, labels = batch(6)
    expected = loss(logits, labels).detach()
    wide = torch.cat([logits.detach(), torch.full((6, 1), -torch.inf).double()], 1)
    close(loss(wide.requires_grad_(), labels), expected)
    labels = labels.index_fill(0, torch.tensor([2]), 4)
    SIGUALoss(sigua.standard(), base=loss)(wide, labels).backward()
    assert wide.grad.isfinite().all()
    assert wide.grad[0].any()


@each
def test_on_the_device_and_compiled(name):
    """No loss needs to know a value: it runs on the meta device, and as one graph."""
    loss = PAIRS[name][0]
    logits, labels = batch()
    meta = logits.detach().to("meta").requires_grad_()
    loss(meta, labels.to("meta")).sum().backward()
    assert meta.grad.shape == logits.shape
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    close(compiled(logits, labels), loss(logits, labels).detach())


# 1'T^-1 has a negative entry, so that over="classes" can fire.
T = TransitionMatrix([[0.9, 0.1, 0, 0], [0.6, 0.3, 0.1, 0], [0, 0.2, 0.7, 0.1], [0, 0, 0.3, 0.7]])
SYMMETRIC = TransitionMatrix.symmetric(0.4, 4)
METHODS = [
    sigua.sigua_sl(0.5, delta=0.25, gamma=0.25, warmup=0),
    sigua.stop_grad(sigua.sigua_sl(0.5, delta=0.25, warmup=0)),
    sigua.sigua_sl(0.5, delta=0.25, gamma=0.25, warmup=0, variant="official"),
    sigua.custom(sigua.Known(), gamma=0.5),
    sigua.backward_correction(SYMMETRIC),
    sigua.sigua_bc(T, gamma=0.5),
    sigua.sigua_bc(T, gamma=0.5, over="classes"),
    sigua.sigua_bc(SYMMETRIC, gamma=0.5, over="batch"),
    sigua.custom(sigua.Known(), gamma=0.5, correction="backward", T=T),
    sigua.custom(sigua.SmallLoss(0.5, 0.25, 0), 0.25, "backward", SYMMETRIC),
]
FORWARD = [
    sigua.forward_correction(T),
    sigua.custom(sigua.SmallLoss(0.5, 0.25, 0), 0.25, "forward", SYMMETRIC),
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
    marks = trusted if isinstance(method.condition, sigua.Known) else None
    split = reference.split(method, values, trusted=marks, class_sums=sums)
    weights = sigua.signed_weights(split, method.at(0)[0], separate=method.separate)
    gradient = np.empty_like(logits)
    for j in range(logits.shape[1]):
        shift = 1e-6 * np.eye(logits.shape[1])[j]
        up, down = (measured(method, core, logits + s * shift, labels)[0] for s in (1, -1))
        gradient[:, j] = weights * (up - down) / 2e-6 / len(labels)
    return split, sigua.objective(values, weights), gradient


def on_probabilities(loss, core):
    """Return both losses after a softmax."""
    return (
        lambda logits, target: loss(logits.softmax(1), target),
        lambda logits, labels: core(np.exp(reference.log_softmax(logits)), labels),
    )


@pytest.mark.parametrize("method", METHODS + FORWARD, ids=lambda method: repr(method)[:40])
@each
def test_composed_with_methods(name, method):
    """A base under a method has the masks, objective and gradient made of the core's losses."""
    loss, core = PAIRS[name]
    if name in ON_SCORES and method.correction == "forward":  # which is about probabilities
        loss, core = on_probabilities(loss, core)
    logits, labels = batch()
    trusted = torch.tensor(np.random.default_rng(2).random(24) < 0.5)
    known = isinstance(method.condition, sigua.Known)
    criterion = SIGUALoss(method, base=loss)
    value = criterion(logits, labels, **({"trusted": trusted} if known else {}))
    value.backward()
    split, objective, gradient = expected_step(
        method, core, logits.detach().numpy(), labels.numpy(), trusted.numpy()
    )
    np.testing.assert_array_equal(criterion.split.good, split.good)
    np.testing.assert_array_equal(criterion.split.bad, split.bad)
    close(value, objective)
    np.testing.assert_allclose(logits.grad, gradient, rtol=0, atol=1e-8)  # of the differences


@each
def test_ignored_targets_in_the_criterion(name):
    """Ignored targets take no part: training and evaluation are those of the others alone."""
    loss = PAIRS[name][0]
    logits, labels = batch()
    ignored = torch.cat([labels, torch.tensor([-100])])
    wide = torch.cat([logits.detach(), torch.full((1, 4), 9.0).double()])
    for method in (METHODS[0], METHODS[5]):
        criterion = SIGUALoss(method, base=loss)
        close(criterion(wide.requires_grad_(), ignored), criterion(logits, labels).item())
        criterion.eval()
        close(criterion(wide, ignored), loss(logits, labels).mean().item())


# Section 2: where the losses of two classes add up to a constant, up is down at the other label.
SYMMETRIC_LOSSES = {
    "mae": partial(losses.generalized_cross_entropy, q=1.0),
    "reverse": partial(losses.symmetric_cross_entropy, alpha=0.0),
    "unhinged": lambda f, y: 1 - (2 * y - 1) * (f[:, 1] - f[:, 0]),
    "sigmoid": lambda f, y: torch.sigmoid(-(2 * y - 1) * (f[:, 1] - f[:, 0])),
    "ramp": lambda f, y: (1 - (2 * y - 1) * (f[:, 1] - f[:, 0])).clamp(0, 2) / 2,
}


def climb_and_descend(base, logits, labels):
    """Return the gradients of climbing on the labels and of descending on the flipped ones."""
    x = torch.tensor(logits, requires_grad=True)
    y = torch.tensor(labels)
    climb = SIGUALoss(sigua.custom(sigua.Known(), gamma=1.0), base=base)
    up = climb(x, y, trusted=torch.zeros(len(y), dtype=torch.bool))
    down = SIGUALoss(sigua.standard(), base=base)(x, 1 - y)
    return torch.autograd.grad(up, x)[0], torch.autograd.grad(down, x)[0]


@pytest.mark.parametrize("name", SYMMETRIC_LOSSES)
@given(
    arrays(np.float64, (6, 2), elements=st.floats(-20, 20)),
    arrays(np.int64, 6, elements=st.integers(0, 1)),
)
def test_ascent_on_a_symmetric_loss_is_descent_on_the_flipped_label(name, logits, labels):
    """For two classes and a symmetric loss, gamma = 1 is label correction (Section 2)."""
    up, down = climb_and_descend(SYMMETRIC_LOSSES[name], logits, labels)
    close(up, down)


def test_ascent_on_cross_entropy_is_not():
    """Cross-entropy is not symmetric, and its ascent is no descent on the other label."""
    up, down = climb_and_descend(None, np.array([[2.0, -1.0]]), np.array([0]))
    # Climbing away from p_0 = .95 is slow, and descending from it is fast.
    assert down.abs().max() > 10 * up.abs().max()


SIGMOID = nn.BCEWithLogitsLoss(reduction="none")
TWO = TransitionMatrix([[0.9, 0.1], [0.6, 0.4]])
BINARY = [
    sigua.backward_correction(TWO),
    sigua.sigua_bc(TWO, gamma=0.5),
    sigua.sigua_bc(TWO, gamma=0.5, over="classes"),
    sigua.nn_backward_correction(TransitionMatrix.symmetric(0.3, 2), over="batch"),
    sigua.forward_correction(TWO),
    sigua.sigua_fc(TWO),  # whose floor is cross-entropy's, hence a sigmoid's, too
    sigua.custom(
        sigua.SmallLoss(0.5, 0.25, 0), 0.25, "forward", TransitionMatrix.symmetric(0.3, 2)
    ),
]


def two(z):
    """Return the logits of the two-way softmax that equals a sigmoid."""
    z = np.asarray(z, dtype=np.float64).ravel()
    return np.stack([np.zeros_like(z), z], axis=1)


@pytest.mark.parametrize("method", BINARY, ids=lambda method: repr(method)[:40])
@pytest.mark.parametrize("shape", [(12,), (12, 1), (4, 3)], ids=str)
@pytest.mark.parametrize("integer", [True, False])
@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))  # not elements, which would tie: then rounding decides
def test_a_sigmoid_is_a_two_way_softmax(method, shape, integer, seed):
    """With a 2 x 2 T, one logit per label trains as the two-way softmax of (0, z) in the core."""
    rng = np.random.default_rng(seed)
    z, labels = rng.normal(scale=6, size=12), rng.integers(0, 2, 12)
    logits = torch.tensor(z).reshape(shape).requires_grad_()
    target = torch.tensor(labels).reshape(shape)
    criterion = SIGUALoss(method, base=SIGMOID)
    value = criterion(logits, target if integer else target.double())
    value.backward()
    step = reference.step(method, two(z), labels)
    np.testing.assert_array_equal(criterion.split.good, step.split.good.reshape(shape))
    np.testing.assert_array_equal(criterion.split.bad, step.split.bad.reshape(shape))
    scale = abs(method.T.inverse).max()
    close(value / scale, step.objective / scale, 64)
    close(logits.grad / scale, step.gradient[:, 1].reshape(shape) / scale, 64)


@pytest.mark.parametrize("method", BINARY, ids=lambda method: repr(method)[:40])
def test_a_sigmoid_evaluates_as_itself(method):
    """After .eval() it is nn.BCEWithLogitsLoss, for targets 0 and 1 and between."""
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(size=(8, 3)))
    for target in (torch.tensor(rng.integers(0, 2, (8, 3))), torch.tensor(rng.random((8, 3)))):
        criterion = SIGUALoss(method, base=SIGMOID).eval()
        close(criterion(logits, target), nn.BCEWithLogitsLoss()(logits, target.double()).item())


def test_soft_targets_of_a_sigmoid():
    """A target between 0 and 1 averages the corrected losses of the two labels."""
    logits, method = torch.tensor([0.7, -1.2]).double(), sigua.backward_correction(TWO)
    soft = np.array([0.25, 0.9])
    corrected = reference.backward_corrected(two(logits), TWO)
    expected = (1 - soft) * corrected[:, 0] + soft * corrected[:, 1]
    criterion = SIGUALoss(method, base=SIGMOID, reduction="none")
    close(criterion(logits.requires_grad_(), torch.tensor(soft)), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_extreme_logits_of_a_sigmoid(dtype):
    """One-sided noise and logits of 1e4 either way: finite losses, gradients that pull."""
    one_sided = TransitionMatrix([[1.0, 0.0], [0.3, 0.7]])
    target = torch.tensor([0, 1, 0, 1])
    for method in (sigua.backward_correction(one_sided), sigua.forward_correction(one_sided)):
        logits = torch.tensor([1e4, -1e4, -1e4, 1e4], dtype=dtype, requires_grad=True)
        value = SIGUALoss(method, base=SIGMOID)(logits, target)
        value.backward()
        assert value.isfinite()
        assert logits.grad.isfinite().all()
    # Forward: label 1 at p(1) = 0 is 1e4 wrong, and descends at full speed.
    assert logits.grad[1] == -0.25


def test_class_weights_of_a_sigmoid():
    """What was pos_weight is the weight of class 1, and the mean is over the weights."""
    logits, target = torch.tensor([0.5, -1.0, 2.0]).double(), torch.tensor([1, 0, 0])
    weight = torch.tensor([1.0, 3.0]).double()
    criterion = SIGUALoss(sigua.forward_correction(TWO), weight, base=SIGMOID, reduction="none")
    losses = reference.forward_corrected(two(logits), TWO)[np.arange(3), target]
    close(criterion(logits.requires_grad_(), target), losses * [3, 1, 1])


def test_two_way_serves_a_loss_of_ones_own():
    """Any loss over two classes takes a sigmoid's logits through `two_way`."""
    method = sigua.custom(sigua.Known(), 0.5, "backward", TWO)
    z, labels = np.array([0.3, -2.0, 1.5]), np.array([0, 1, 1])
    trusted = torch.tensor([True, False, True])
    criterion = SIGUALoss(method, base=losses.generalized_cross_entropy)
    value = criterion(
        losses.two_way(torch.tensor(z)).requires_grad_(), torch.tensor(labels), trusted=trusted
    )
    core = spec.generalized_cross_entropy
    close(value, expected_step(method, core, two(z), labels, trusted.numpy())[1])


@pytest.mark.parametrize("shape", [(12,), (12, 1), (3, 4)], ids=str)
def test_small_loss_on_sigmoids(shape):
    """Without T, every entry of the base's loss is an example: several labels, several examples."""
    rng = np.random.default_rng(3)
    z, labels = rng.normal(size=12), rng.integers(0, 2, 12)
    method = sigua.sigua_sl(0.5, delta=0.25, gamma=0.25, warmup=0)
    criterion = SIGUALoss(method, base=SIGMOID)
    logits = torch.tensor(z).reshape(shape).requires_grad_()
    value = criterion(logits, torch.tensor(labels).reshape(shape).double())
    value.backward()
    step = reference.step(method, two(z), labels)
    np.testing.assert_array_equal(criterion.split.good, step.split.good.reshape(shape))
    close(value, step.objective)
    close(logits.grad, step.gradient[:, 1].reshape(shape))


def test_several_labels_as_one_example():
    """A base that averages its labels makes a row one example."""
    rng = np.random.default_rng(3)
    z, labels = torch.tensor(rng.normal(size=(8, 3))), torch.tensor(rng.integers(0, 2, (8, 3)))
    method = sigua.sigua_sl(0.5, delta=0.25, warmup=0)
    criterion = SIGUALoss(method, base=lambda z, y: SIGMOID(z, y).mean(1))
    criterion(z.requires_grad_(), labels.double())
    rows = reference.cross_entropy(two(z.detach()), labels.ravel()).reshape(8, 3).mean(axis=1)
    np.testing.assert_array_equal(criterion.split.good, reference.split(method, rows).good)


@pytest.mark.parametrize("shape", [(10,), (10, 1), (5, 2)], ids=str)
@pytest.mark.parametrize("robust", [False, True])
def test_small_loss_on_regression(shape, robust):
    """Squared (or Huber) errors select as any loss does: the largest are dropped or climbed on."""
    target = torch.arange(10.0).reshape(shape)
    errors = torch.tensor([0.1, 4.0, 0.3, 0.2, 9.0, 0.5, 0.4, 3.0, 5.0, 0.6]).reshape(shape)
    base = partial(F.huber_loss if robust else F.mse_loss, reduction="none")
    criterion = SIGUALoss(sigua.sigua_sl(0.5, delta=0.2, gamma=0.5, warmup=0), base=base)
    prediction = (target + errors).requires_grad_()
    value = criterion(prediction, target)
    value.backward()
    # count of smaller <= 5 of 10: six are good; two more are bad
    good = (errors < 1).reshape(-1)
    assert criterion.split.good.reshape(-1).tolist() == good.tolist()
    bad = [False, True, False, False, False, False, False, True, False, False]
    assert criterion.split.bad.reshape(-1).tolist() == bad
    slope = errors.clamp(max=1) if robust else 2 * errors
    weights = good.float() - 0.5 * torch.tensor(bad).float()
    close(prediction.grad, (slope * weights.reshape(shape) / 10).numpy())


def test_regression_forgets_outliers():
    """A line through points of which 30 % are wrong: least squares is off, small loss is not."""
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.uniform(-1, 1, (200, 1)))
    y = 2 * x + 1
    y[:60] += 6.0

    def fit(method):
        line = nn.Linear(1, 1).double()
        criterion = SIGUALoss(method, base=nn.MSELoss(reduction="none"))
        optimizer = torch.optim.SGD(line.parameters(), 0.2)
        for epoch in range(200):
            criterion.set_epoch(epoch)
            optimizer.zero_grad()
            criterion(line(x), y).backward()
            optimizer.step()
        return line.weight.item(), line.bias.item()

    assert fit(sigua.self_teaching(0.35, warmup=20)) == pytest.approx((2, 1), abs=1e-6)
    assert fit(sigua.standard())[1] > 2.5  # 0.3 * 6 too high


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            partial(losses.generalized_cross_entropy, q=1.5),
            r"^q: must be a number in \[0, 1\], got 1.5;",
        ),
        (partial(losses.generalized_cross_entropy, q="a"), r"^q: must be a number in .* got 'a';"),
        (partial(losses.symmetric_cross_entropy, alpha=-1), "^alpha: must be a number in"),
        (partial(losses.symmetric_cross_entropy, log_zero=1.0), "^log_zero: must be a number in"),
        (partial(losses.bootstrapping, beta=2), "^beta: must be a number in"),
        (partial(losses.focal, gamma=-1), "^gamma: must be a number in"),
        (partial(losses.huber, delta=0), "^delta: must be a number above 0, got 0;"),
        (partial(losses.huber, delta="a"), "^delta: must be a number"),
        (partial(losses.log_sum, epsilon=0), "^epsilon: must be a number above 0"),
    ],
)
def test_refused_parameters(call, message):
    """A parameter out of range is refused by name."""
    with pytest.raises(ValueError, match=message):
        call(torch.zeros(2, 3), torch.tensor([0, 1]))


@each
def test_refused_shapes(name):
    """A column of labels, which would broadcast, is refused."""
    with pytest.raises(ValueError, match=r"^target: must have the input's shape, with or without"):
        PAIRS[name][0](torch.zeros(2, 3), torch.tensor([[0], [1]]))


def test_refused_sigmoids():
    """With T, a sigmoid's loss that reduces, has weights, or does not fit its target is refused."""
    method = sigua.sigua_bc(TWO)
    with pytest.raises(ValueError, match=r"^base: must return a loss per example, .*'mean'"):
        SIGUALoss(method, base=nn.BCEWithLogitsLoss())
    weighted = nn.BCEWithLogitsLoss(reduction="none", pos_weight=torch.tensor(2.0))
    with pytest.raises(ValueError, match=r"^base: must be unweighted"):
        SIGUALoss(method, base=weighted)
    SIGUALoss(sigua.standard(), base=weighted)  # nothing to correct
    criterion = SIGUALoss(method, base=SIGMOID)
    with pytest.raises(ValueError, match=r"^target: must have the shape of the logits"):
        criterion(torch.zeros(3, 1), torch.zeros(3))
    with pytest.raises(ValueError, match=r"^target: must be a torch tensor"):
        criterion(torch.zeros(3), [0, 1, 1])
    with pytest.raises(ValueError, match=r"^T: must have a row per class"):
        SIGUALoss(sigua.sigua_bc(SYMMETRIC), base=SIGMOID)(torch.zeros(3), torch.zeros(3))


@pytest.mark.parametrize("loss", list(map(losses.__dict__.get, losses.__all__[:-1])))
def test_targets_that_do_not_fit_are_refused_in_a_sentence(loss):
    """Before the loss is taken: 0.7 would be cut to class 0, and 5 rows broadcast against 8."""
    logits = torch.zeros(8, 3)
    with pytest.raises(
        ValueError, match=r"^target: must be integers if it holds class indices, got torch.float32;"
    ):
        loss(logits, torch.full((8,), 0.7))
    for target in (torch.zeros(5, dtype=torch.long), torch.zeros(8, 2)):
        with pytest.raises(
            ValueError, match=r"^target: must have the input's shape, with or without"
        ):
            loss(logits, target)


@pytest.mark.parametrize(
    "method",
    [
        sigua.standard(),
        sigua.sigua_sl(0.5, delta=0.25, gamma=0.5, warmup=0),
        sigua.custom(sigua.SmallLoss(0.5, 0.25, 0), 0.5, "forward", TransitionMatrix.pair(0.3, 4)),
    ],
    ids=["standard", "sl", "sl on forward"],
)
def test_mixup_as_class_probabilities_ranks_each_example_by_its_mixed_loss(method):
    """The loss of a mixed label is the mean of the two labels' losses, and one loss has one rank.

    Two calls, which select once for each label, come to the same only where nobody is selected.
    """
    logits, labels = batch()
    other, share = torch.roll(labels, 1), 0.7
    one_hot = F.one_hot(labels, 4).double()
    target = share * one_hot + (1 - share) * torch.roll(one_hot, 1, 0)
    criterion = SIGUALoss(method)
    value = criterion(logits, target)
    first, second = (
        reference.losses_and_slopes(method, logits.detach().numpy(), y.numpy())[0]
        for y in (labels, other)
    )
    mixed = share * first + (1 - share) * second
    split = reference.split(method, mixed)
    weights = sigua.signed_weights(split, method.at(0)[0])
    assert criterion.split.good.tolist() == split.good.tolist()
    assert criterion.split.bad.tolist() == split.bad.tolist()
    close(value, sigua.objective(mixed, weights))
    twice = share * criterion(logits, labels) + (1 - share) * criterion(logits, other)
    assert (abs(twice - value) < 1e-12).item() == (method == sigua.standard())
