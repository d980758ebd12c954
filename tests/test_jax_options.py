"""What else the criterion takes: soft labels, smoothing, weights, other losses, one sigmoid."""

import functools

import jax
import numpy as np
import optax
import pytest
import scipy.sparse
import torch
from jax import numpy as jnp
from torch import nn

import sigua
from sigua import TransitionMatrix, reference
from sigua_jax import cross_entropy, sigua_loss, sigua_split
from sigua_torch import SIGUALoss

EPS = float(np.finfo(np.float32).eps)
N, K = 120, 5
PAIR = TransitionMatrix.pair(0.3, K)
SYMMETRIC = TransitionMatrix.symmetric(0.4, K)
FULL = TransitionMatrix(0.6 * np.eye(K) + 0.3 / K + 0.1 * np.eye(K)[0])  # not symmetric, no zeros
SPARSE = TransitionMatrix(scipy.sparse.csr_array(PAIR.rows))
SL = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0)
OFFICIAL = sigua.sigua_sl(0.5, delta=0.4, gamma=0.3, warmup=0, variant="official")
METHODS = [
    sigua.standard(),
    SL,
    OFFICIAL,
    *(
        make(T)
        for T in (PAIR, SYMMETRIC, FULL, SPARSE)
        for make in (
            lambda T: sigua.sigua_bc(T, gamma=0.5),
            sigua.forward_correction,
        )
    ),
    sigua.sigua_bc(FULL, gamma=0.5, over="batch"),
]
WEIGHT = np.array([1.0, 0.25, 3.0, 0.0, 2.0], "float32")


def name(value):
    return repr(value)[:70]


@pytest.fixture
def samples():
    """Logits, labels, and class probabilities, some of them one-hot."""
    rng = np.random.default_rng(3)
    soft = rng.dirichlet(np.ones(K), N)
    soft[::4] = np.eye(K)[rng.integers(0, K, len(soft[::4]))]
    logits = rng.normal(scale=2, size=(N, K)).astype("float32")
    return logits, rng.integers(0, K, N), soft.astype("float32")


def assert_as_torch(logits, labels, method, options, others, **to_torch):
    """Value, masks and gradient are those of PyTorch's criterion.

    Weights of Eq. 3 and entries of T^-1 multiply what float32 rounds.
    """
    given = jnp.asarray(logits), jnp.asarray(labels), 0, method
    value, gradient = jax.value_and_grad(sigua_loss)(*given, **options, **others)
    split = sigua_split(*given, **options, **others)
    inputs = torch.tensor(logits, requires_grad=True)
    options = {k: torch.tensor(v) if k == "weight" else v for k, v in options.items()}
    criterion = SIGUALoss(method, **options, **to_torch)
    criterion.set_epoch(0)
    loss = criterion(inputs, torch.tensor(labels))
    loss.backward()
    for mask, want in zip(split, criterion.split, strict=True):
        np.testing.assert_array_equal(mask, want.numpy())
    scale = 32 * EPS * (1 if method.T is None else np.abs(method.T.inverse).max() * K)
    np.testing.assert_allclose(value, loss.item(), rtol=scale, atol=scale)
    np.testing.assert_allclose(gradient, inputs.grad.numpy(), rtol=0, atol=scale / N * 4)
    return value, split


OPTIONS = [
    {"label_smoothing": 0.2},
    {"weight": WEIGHT},
    {"weight": WEIGHT, "label_smoothing": 0.2},
    {"per_class": True},
    {"per_class": True, "weight": WEIGHT},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "+".join(o))
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_options_are_those_of_torch(method, options, samples):
    """Smoothing, class weights and a selection per class, with class indices."""
    logits, labels, _ = samples
    value, _ = assert_as_torch(logits, labels, method, options, {})
    total = sigua_loss(logits, labels, 0, method, reduction="sum", **options)
    denominator = WEIGHT[labels].sum() if "weight" in options else N
    np.testing.assert_allclose(total / denominator, value, rtol=8 * EPS)


@pytest.mark.parametrize("options", [{}, *OPTIONS[:3]], ids=lambda o: "+".join(o) or "plain")
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_soft_labels_are_those_of_torch(method, options, samples):
    """Class probabilities, with smoothing and class weights; the denominator is then n."""
    logits, _, soft = samples
    assert_as_torch(logits, soft, method, options, {})


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_soft_labels_and_smoothing_are_those_of_optax(smoothing, samples):
    logits, labels, soft = samples
    for given, rows in ((labels, np.eye(K)[labels]), (soft, soft)):
        want = optax.softmax_cross_entropy(logits, optax.smooth_labels(rows, smoothing)).mean()
        value = sigua_loss(logits, given, 0, sigua.standard(), label_smoothing=smoothing)
        np.testing.assert_allclose(value, want, rtol=8 * EPS)


@pytest.mark.parametrize("T", [PAIR, SYMMETRIC, FULL, SPARSE], ids=name)
def test_corrected_soft_labels_are_averages_over_the_labels(T, samples):
    """The losses q' T^-1 l and -q' log(T'p), from the spec's tables with all labels."""
    logits, _, soft = samples
    tables = {
        sigua.backward_correction: reference.backward_corrected(logits, T),
        sigua.forward_correction: reference.forward_corrected(logits, T),
    }
    for make, table in tables.items():
        each = sigua_loss(logits, soft, 0, make(T), reduction="none")
        np.testing.assert_allclose(each, (soft * table).sum(1), rtol=0, atol=1e-5)


def test_one_hot_rows_are_labels(samples):
    """Value, gradient and masks, although T'p of the label underflows in float32.

    Logits 200, 0, 0, 0, 0 and label 2: T'p = .7 p_2 + .3 p_1, with p_1 = p_2 = exp(-200).
    """
    logits, labels, _ = samples
    logits[0], labels[0] = [200, 0, 0, 0, 0], 2
    rows = np.eye(K, dtype="float32")[labels]
    for method in METHODS:
        index = jax.value_and_grad(sigua_loss)(logits, labels, 0, method)
        dense = jax.value_and_grad(sigua_loss)(logits, rows, 0, method)
        np.testing.assert_allclose(dense[0], index[0], rtol=32 * EPS)
        np.testing.assert_allclose(dense[1], index[1], rtol=0, atol=64 * EPS / N)
    each = sigua_loss(logits, rows, 0, sigua.forward_correction(PAIR), reduction="none")
    assert each[0] == pytest.approx(200, rel=1e-6)


def test_class_weights_scale_and_never_decide():
    """Losses log 2 each, weights 1 and 3, labels 0, 0, 1: (1 + 1 + 3) log 2 over 5.

    Then losses .2, 1 and 5 of 5 labels, the middle one bad by SIGUA whatever its weight is.
    """
    weight = jnp.array([1.0, 3.0])
    value = sigua_loss(jnp.zeros((3, 2)), jnp.array([0, 0, 1]), 0, sigua.standard(), weight=weight)
    assert value == pytest.approx(np.log(2), rel=1e-6)
    losses = np.array([0.2, 0.2, 1.0, 1.0, 5.0])
    labels = np.array([0, 0, 1, 0, 0])
    logits = np.zeros((5, 2), "float32")
    logits[np.arange(5), labels] = -np.log(np.expm1(losses))
    method = sigua.sigua_sl(0.6, delta=0.2, gamma=0.5, warmup=0)  # keeps 3, ties included
    split = sigua_split(logits, labels, 0, method, weight=weight)
    assert split.good.tolist() == [True, True, True, True, False]
    value = sigua_loss(logits, labels, 0, method, weight=weight)
    assert value == pytest.approx((0.2 + 0.2 + 3 * 1 + 1) / (1 + 1 + 3 + 1 + 1), rel=1e-5)


def generalized(logits, labels, q=0.7):
    """(1 - p_y^q) / q, for class indices."""
    log_p = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)[:, 0]
    return -jnp.expm1(q * log_p) / q


def generalized_in_torch(logits, labels, q=0.7):
    return -torch.expm1(-q * nn.functional.cross_entropy(logits, labels, reduction="none")) / q


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_another_loss_is_that_of_torch(method, per_class, samples):
    """At the label, once per class for backward correction, on log(T'p) for forward correction."""
    logits, labels, _ = samples
    both = {"per_class": per_class}
    assert_as_torch(logits, labels, method, both, {"base": generalized}, base=generalized_in_torch)


@pytest.mark.parametrize("method", [*METHODS[:5], METHODS[-1]], ids=name)
def test_a_loss_of_soft_labels_is_given_soft_labels(method, samples):
    """Once per class, too: Optax's takes nothing else. Expected: our own cross-entropy."""
    logits, _, soft = samples
    given = logits, soft, 0, method
    found = jax.value_and_grad(sigua_loss)(*given, base=optax.softmax_cross_entropy)
    want = jax.value_and_grad(sigua_loss)(*given)
    np.testing.assert_allclose(found[0], want[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], want[1], rtol=0, atol=64 * EPS / N * K)


def test_rank_by_decides_and_nothing_else(samples):
    """Smoothed losses, ranked by plain ones: the split is that of plain cross-entropy."""
    logits, labels, _ = samples
    options = {"label_smoothing": 0.3, "rank_by": cross_entropy}
    plain = functools.partial(nn.functional.cross_entropy, reduction="none")
    _, split = assert_as_torch(
        logits, labels, SL, {"label_smoothing": 0.3}, {"rank_by": cross_entropy}, rank_by=plain
    )
    want = sigua_split(logits, labels, 0, SL)
    for found, mask in zip(split, want, strict=True):
        np.testing.assert_array_equal(found, mask)
    smoothed = sigua_split(logits, labels, 0, SL, label_smoothing=0.3)
    assert (smoothed.good != want.good).any()
    each = sigua_loss(logits, labels, 0, sigua.standard(), reduction="none", **options)
    rows = optax.smooth_labels(jnp.eye(K)[labels], 0.3)
    np.testing.assert_allclose(each, optax.softmax_cross_entropy(logits, rows), rtol=8 * EPS)


def test_the_computed_floor_takes_plain_cross_entropy_to_decide(samples):
    """`sigua_nf` over another loss: all are bad where the mean cross-entropy is below the floor."""
    _, labels, _ = samples
    method = sigua.sigua_nf(0.5, K)
    options = {"base": generalized, "rank_by": cross_entropy}
    certain = 9.0 * np.eye(K, dtype="float32")[labels]
    assert sigua_split(certain, labels, 0, method, **options).bad.all()
    assert sigua_split(0 * certain, labels, 0, method, **options).good.all()
    with pytest.raises(ValueError, match=r"rank_by: .* sigua_nf .*\.cross_entropy"):
        sigua_split(certain, labels, 0, method, base=generalized, rank_by=generalized)
    with pytest.raises(ValueError, match=r"base: .* try rank_by=sigua_jax\.cross_entropy"):
        sigua_split(certain, labels, 0, method, base=generalized)
    with pytest.raises(ValueError, match=r"per_class: .* the floor of sigua_nf"):
        sigua_split(certain, labels, 0, method, per_class=True)


@pytest.mark.parametrize("method", METHODS, ids=name)
def test_per_class_judges_each_label_apart(method, samples):
    """As the spec does with the labels as groups; who takes no part has no rank in its class."""
    logits, labels, _ = samples
    there = np.arange(N) % 7 > 0
    want = reference.step(method, logits[there], labels[there], groups=labels[there])
    value, gradient = jax.value_and_grad(sigua_loss)(
        logits, np.where(there, labels, -100), 0, method, where=there, per_class=True
    )
    split = sigua_split(logits, labels, 0, method, where=there, per_class=True)
    np.testing.assert_array_equal(split.good[there], want.split.good)
    np.testing.assert_array_equal(split.bad[there], want.split.bad)
    assert not (split.good | split.bad)[~there].any()
    scale = 32 * EPS * (1 if method.T is None else np.abs(method.T.inverse).max())
    np.testing.assert_allclose(value, want.objective, rtol=scale)
    np.testing.assert_allclose(gradient[there], want.gradient, rtol=0, atol=scale / N * 4)


def test_a_class_of_nobody_and_a_mini_batch_of_nobody():
    """Class 1 of three has no example; of none at all, value and gradient are 0."""
    logits = jnp.array([[1.0, 0, 0], [0, 0, 4], [0, 0, 0], [0, 0, 3], [0, 0, 2]])
    split = sigua_split(logits, jnp.array([0, 2, 2, 2, 2]), 0, SL, per_class=True)
    assert split.good.tolist() == [True, True, False, True, True]  # floor(4 / 2) + 1 of class 2
    for n in (0, 4):
        value, gradient = jax.value_and_grad(sigua_loss)(
            jnp.ones((n, K)), jnp.zeros(n, int), 0, SL, per_class=True, where=jnp.zeros(n, bool)
        )
        assert value == 0
        assert (gradient == 0).all()


T2 = TransitionMatrix([[0.9, 0.1], [0.3, 0.7]])
BINARY = [
    sigua.standard(),
    SL,
    sigua.sigua_bc(T2, gamma=0.5),
    sigua.forward_correction(T2),
    sigua.sigua_nf(0.3, 2),
    sigua.sigua_fc(T2),
]


@pytest.fixture
def binary():
    rng = np.random.default_rng(1)
    return rng.normal(scale=2, size=60).astype("float32"), rng.integers(0, 2, 60)


@pytest.mark.parametrize("method", BINARY, ids=name)
def test_one_sigmoid_output_is_a_softmax_of_two(method, binary):
    """Logits z are (0, z) to the spec; labels are integers, or the probability of class 1."""
    z, labels = binary
    want = reference.step(method, np.stack([0 * z, z], 1), labels)
    for given in (labels, labels.astype("float32")):
        value, gradient = jax.value_and_grad(sigua_loss)(z, given, 0, method)
        split = sigua_split(z, given, 0, method)
        np.testing.assert_array_equal(split.good, want.split.good)
        np.testing.assert_array_equal(split.bad, want.split.bad)
        np.testing.assert_allclose(value, want.objective, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(gradient, want.gradient[:, 1], rtol=0, atol=64 * EPS / 60)


def test_one_sigmoid_output_is_that_of_optax(binary):
    """With probabilities of class 1, too; several labels are examples once they are raveled."""
    z, labels = binary
    for given in (labels, 0.8 * labels + 0.1):
        want = optax.sigmoid_binary_cross_entropy(z, given).mean()
        np.testing.assert_allclose(sigua_loss(z, given, 0, sigua.standard()), want, rtol=8 * EPS)
    split = sigua_split(z, labels, 0, SL, per_class=True)
    groups = reference.step(SL, np.stack([0 * z, z], 1), labels, groups=labels).split
    np.testing.assert_array_equal(split.good, groups.good)


@pytest.mark.parametrize("method", BINARY[:4], ids=name)
@pytest.mark.parametrize("kind", [int, "float32"])
def test_a_loss_of_one_logit_is_given_one_logit(method, kind, binary):
    """Also once per class, and on the log-odds of T'p. Expected: our own cross-entropy."""
    z, labels = binary
    given = z, labels.astype(kind), 0, method
    found = jax.value_and_grad(sigua_loss)(*given, base=optax.sigmoid_binary_cross_entropy)
    want = jax.value_and_grad(sigua_loss)(*given)
    np.testing.assert_allclose(found[0], want[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], want[1], rtol=0, atol=64 * EPS / 60)


def test_without_a_correction_a_base_may_take_anything():
    """A regression on pairs: the largest of four squared errors, 0, 1, 4 and 9, is left out."""
    aims = jnp.zeros((4, 2))
    found = jnp.array([[0.0, 0], [1, 1], [2, 2], [3, 3]])

    def squared(found, aims):
        return optax.squared_error(found, aims).mean(-1)

    method = sigua.self_teaching(0.5, warmup=0)  # floor(4 / 2) + 1 stay
    value = sigua_loss(found, aims, 0, method, base=squared)
    assert value == pytest.approx((0 + 1 + 4) / 4)
    there = jnp.array([True, True, True, False])
    spoiled = found.at[3].set(jnp.nan)
    value, gradient = jax.value_and_grad(sigua_loss)(
        spoiled, aims, 0, sigua.standard(), base=squared, where=there
    )
    assert value == pytest.approx(5 / 3)
    assert (gradient[3] == 0).all()
    assert jnp.isfinite(gradient).all()


def test_an_infinite_loss_of_a_base_leaves_no_nan_in_the_gradient():
    """-log p_y by way of p_y: at p_y = 0 it is infinite, and so is its slope."""

    def naive(logits, labels):
        return -jnp.log(jnp.take_along_axis(jax.nn.softmax(logits), labels[:, None], -1)[:, 0])

    logits, labels = jnp.array([[0.0, 200.0], [0.0, 0.0]]), jnp.array([0, 0])
    for method in (sigua.standard(), SL, sigua.sigua_bc(T2), sigua.custom(sigua.NoiseFloor(0.1))):
        value, gradient = jax.value_and_grad(sigua_loss)(logits, labels, 0, method, base=naive)
        assert jnp.isfinite(value)
        assert jnp.isfinite(gradient).all()
        assert (gradient[0] == 0).all()
        assert not any(mask[0] for mask in sigua_split(logits, labels, 0, method, base=naive))
    spoiled = logits.at[1, 1].set(jnp.nan)
    value, gradient = jax.value_and_grad(sigua_loss)(spoiled, labels, 0, SL, base=naive)
    assert jnp.isnan(value)


@pytest.mark.parametrize("method", METHODS, ids=name)
def test_nan_reaches_the_user_when_compiled(method, samples):
    """XLA on the CPU may lose a NaN in log and exp of a fused loop."""
    logits, labels, soft = samples
    logits[3] = np.nan
    for given, options in ((labels, {"label_smoothing": 0.1}), (soft, {})):
        step = jax.jit(jax.value_and_grad(lambda x, y, o=options: sigua_loss(x, y, 0, method, **o)))
        value, gradient = step(logits, given)
        assert np.isnan(value)
        assert np.isnan(gradient[3]).all()
        assert np.isfinite(gradient[4:]).all()


def test_all_of_it_compiles_once(samples):
    """Under `jit`, with a traced epoch: soft labels, weights, smoothing, where, per class."""
    logits, labels, soft = samples
    traces = []

    @jax.jit
    def step(logits, labels, soft, weight, where, epoch):
        traces.append(1)
        method = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=4)
        options = {"weight": weight, "label_smoothing": 0.1, "where": where}
        return (
            jax.grad(sigua_loss)(logits, labels, epoch, method, per_class=True, **options),
            jax.grad(sigua_loss)(logits, soft, epoch, method, **options),
        )

    for epoch in range(4):
        found = step(logits, labels, soft, WEIGHT, np.arange(N) > 3, epoch)
        assert all(jnp.isfinite(part).all() for part in found)
    assert len(traces) == 1


def test_sparse_noise_among_many_classes_makes_no_square_array():
    """Of 20,000 classes, whose k x k array would be refused: pair noise, by hand.

    Logits 0 but for 5 at the label: p_y = e^5 / (e^5 + k - 1), others 1 / (e^5 + k - 1).
    """
    k = 20_000
    T = TransitionMatrix.pair(0.3, k)
    logits = np.zeros((3, k), "float32")
    labels = np.array([7, 0, k - 1])
    logits[np.arange(3), labels] = 5
    total = np.exp(5) + k - 1
    want = -np.log((0.7 * np.exp(5) + 0.3) / total)
    value, gradient = jax.value_and_grad(sigua_loss)(logits, labels, 0, sigua.forward_correction(T))
    assert value == pytest.approx(want, rel=1e-5)
    assert jnp.isfinite(gradient).all()
    soft = np.eye(k, dtype="float32")[labels]
    assert sigua_loss(logits, soft, 0, sigua.forward_correction(T)) == pytest.approx(want, rel=1e-5)
    back = sigua_loss(logits, labels, 0, sigua.backward_correction(T))
    # T'(T^-1 l)_y averages back to l: .7 [T^-1 l]_y + .3 [T^-1 l]_{y + 1} = l_y.
    other = sigua_loss(logits, (labels + 1) % k, 0, sigua.backward_correction(T))
    assert 0.7 * back + 0.3 * other == pytest.approx(np.log(total) - 5, rel=1e-4)
