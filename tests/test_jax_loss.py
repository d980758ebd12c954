"""The pure functions equal the spec: golden vectors, the reference, PyTorch's criterion, Optax."""

import functools

import jax
import numpy as np
import optax
import pytest
import torch
from jax import numpy as jnp
from jax_versions import in_64_bits

import sigua
from sigua import TransitionMatrix, reference
from sigua_jax import sigua_loss, sigua_split
from sigua_torch import SIGUALoss

EPS = float(np.finfo(np.float32).eps)
N, K = 300, 10
PAIR = TransitionMatrix.pair(0.4, K)
SYMMETRIC = TransitionMatrix.symmetric(0.5, K)
# A third of everything is called class 0: 1'T^-1 l can be negative.
ROWS = TransitionMatrix(2 / 3 * np.eye(K) + 1 / 3 * np.eye(K)[0])
SL = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3)
METHODS = [
    sigua.standard(),
    sigua.self_teaching(0.5),
    SL,
    sigua.sigua_sl(0.5, delta=0.4, gamma=0.3, variant="official"),
    sigua.sigua_sl(0.29, delta=sigua.Knots([(2, 0.1), (6, 0.3)]), gamma=lambda t: 0.1, warmup=3),
    *(
        make(T)
        for T in (PAIR, SYMMETRIC, ROWS)
        for make in (
            sigua.backward_correction,
            sigua.nn_backward_correction,
            sigua.forward_correction,
            lambda T: sigua.sigua_bc(T, gamma=0.5, over="batch"),
            lambda T: sigua.sigua_fc(T, floor=3.0),
        )
    ),
    sigua.sigua_bc(ROWS, over="classes"),
    sigua.custom(sigua.SmallLoss(0.5, 0.25, 0), 0.25, "forward", PAIR),
    sigua.custom(sigua.Known(), gamma=0.1),
]


def name(value):
    return repr(value)[:60]


@pytest.fixture
def samples():
    """300 samples drawn from 200 distinct ones, so that losses tie."""
    rng = np.random.default_rng(5)
    rows, labels = rng.normal(scale=2, size=(200, K)).astype("float32"), rng.integers(0, K, 200)
    rows[::3, 0] -= 20  # a class without hope, so that class sums are of both signs
    drawn = rng.integers(0, 200, N)
    return rows[drawn], labels[drawn]


def marks(method, n):
    """The mask that `Known` needs, and nothing for the others."""
    known = isinstance(method.condition, sigua.Known)
    return {"trusted": np.arange(n) % 3 > 0} if known else {}


def assert_same(split, expected):
    for mask, want in zip(split, expected, strict=True):
        assert mask.dtype == bool
        np.testing.assert_array_equal(mask, want)


@functools.partial(jax.jit, static_argnames="method")
def everything(logits, labels, numbers, method, where=None):
    """Return the split, the value and the gradient of one compiled step."""
    given = logits, labels, numbers, method
    split = sigua_split(*given, where=where)
    return split, *jax.value_and_grad(sigua_loss)(*given, where=where)


@pytest.mark.parametrize("epoch", [0, 3.5, 10])
@pytest.mark.parametrize("method", METHODS, ids=name)
def test_agrees_with_the_reference_and_with_torch(method, epoch, samples):
    """Masks are equal, and gradients within 8 eps / n times the weights and entries of T^-1."""
    logits, labels = samples
    trusted = marks(method, N)
    given = logits, labels, epoch, method
    value, gradient = jax.value_and_grad(sigua_loss)(*given, **trusted)
    want = reference.step(method, logits, labels, epoch, **trusted)
    assert_same(sigua_split(*given, **trusted), want.split)
    scale = 1.0 if method.T is None else np.abs(method.T.inverse).max()
    if method.separate:
        scale *= N / min(max(mask.sum(), 1) for mask in want.split)
    finite = scale * np.abs(want.losses).max()
    np.testing.assert_allclose(value, want.objective, rtol=0, atol=8 * EPS * finite)
    np.testing.assert_allclose(gradient, want.gradient, rtol=0, atol=8 * EPS / N * scale)

    criterion, inputs = SIGUALoss(method), torch.tensor(logits, requires_grad=True)
    criterion.set_epoch(epoch)
    criterion(inputs, torch.tensor(labels), *map(torch.tensor, trusted.values())).backward()
    assert_same(sigua_split(*given, **trusted), (mask.numpy() for mask in criterion.split))
    np.testing.assert_allclose(gradient, inputs.grad.numpy(), rtol=0, atol=16 * EPS / N * scale)


@pytest.mark.parametrize("method", METHODS[::3], ids=name)
def test_float64_agrees_with_the_reference_to_float64(method, samples):
    """Under `jax_enable_x64` nothing is rounded to float32 on the way."""
    logits, labels = samples
    trusted = marks(method, N)
    want = reference.step(method, logits, labels, 10, **trusted)
    with in_64_bits():
        inputs = jnp.asarray(logits, jnp.float64)
        value, gradient = jax.value_and_grad(sigua_loss)(inputs, labels, 10, method, **trusted)
        assert value.dtype == gradient.dtype == jnp.float64
        single = jax.value_and_grad(sigua_loss)(logits, labels, 10, method, **trusted)
        assert {part.dtype for part in single} == {jnp.dtype("float32")}
    np.testing.assert_allclose(value, want.objective, rtol=1e-12)
    np.testing.assert_allclose(gradient, want.gradient, rtol=0, atol=1e-15 * 100)


def test_standard_is_optax(samples):
    """So is any method while rho is 1: the value and the gradient of Optax's cross-entropy."""

    def plain(logits):
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    logits, labels = samples
    want, slopes = jax.value_and_grad(plain)(logits)
    for method in (sigua.standard(), SL):
        value, gradient = jax.value_and_grad(sigua_loss)(logits, labels, 0, method)
        np.testing.assert_allclose(value, want, rtol=4 * EPS)
        np.testing.assert_allclose(gradient, slopes, rtol=0, atol=4 * EPS / N)


def test_reductions_agree(samples):
    """The entries of "none" are the signed losses: they sum to "sum", which is n times "mean"."""
    logits, labels = samples
    for method in (SL, sigua.sigua_sl(0.5, delta=0.4, gamma=0.3, variant="official")):
        given = logits, labels, 7, method
        each = sigua_loss(*given, reduction="none")
        total = sigua_loss(*given, reduction="sum")
        losses = reference.cross_entropy(logits, labels)
        weights = sigua.signed_weights(
            sigua_split(*given), method.at(7)[0], separate=method.separate
        )
        np.testing.assert_allclose(each, losses * weights, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(each.sum(), total, rtol=8 * EPS)
        np.testing.assert_allclose(sigua_loss(*given) * N, total, rtol=8 * EPS)


@pytest.mark.parametrize("method", METHODS, ids=name)
def test_where_is_as_if_the_others_were_not_there(method, samples):
    """They take no rank and are not in n; NaN, -100 and garbage among them reach nobody."""
    logits, labels = (part.copy() for part in samples)
    there = np.arange(N) % 4 > 0
    logits[~there], labels[~there] = np.nan, -100
    logits[::8] = 1e30
    trusted = marks(method, N)
    some = {name: mask[there] for name, mask in trusted.items()}
    want = reference.step(method, logits[there], labels[there], 10, **some)
    given = logits, labels, 10, method
    value, gradient = jax.value_and_grad(sigua_loss)(*given, where=there, **trusted)
    split = sigua_split(*given, where=there, **trusted)
    assert_same((mask[there] for mask in split), want.split)
    assert not (split.good | split.bad)[~there].any()
    assert np.isfinite(value)
    assert (gradient[~there] == 0).all()
    scale = 1.0 if method.T is None else np.abs(method.T.inverse).max()
    if method.separate:
        scale *= N / min(max(mask.sum(), 1) for mask in want.split)
    atol = 8 * EPS / there.sum() * scale
    np.testing.assert_allclose(gradient[there], want.gradient, rtol=0, atol=atol)


@pytest.mark.parametrize("method", METHODS[:-1], ids=name)
def test_nothing_takes_part(method):
    """An empty mini-batch, or one without a participant, has loss 0 and gradient 0."""
    for n in (0, 4):
        given = jnp.ones((n, K)), jnp.zeros(n, int), 10, method
        value, gradient = jax.value_and_grad(sigua_loss)(*given, where=jnp.zeros(n, bool))
        assert value == 0
        assert (gradient == 0).all()


def test_an_infinite_loss_does_not_hold_the_mean_below_a_floor():
    """Losses inf, log 5 and log 5, that is 1.61: at or above 1.5, so that both are good."""
    logits = jnp.zeros((3, 5)).at[0, 1].set(-jnp.inf)
    method = sigua.custom(sigua.NoiseFloor(1.5), gamma=1.0)
    split = sigua_split(logits, np.array([1, 1, 2]), 0, method)
    assert split.good.tolist() == [False, True, True]


def test_nan_reaches_the_user_and_inf_says_nothing():
    """Losses .127, 2.127, inf, .313, 1.313: n = 5 counts the infinite one."""
    logits = jnp.array([[2.0, 0.0], [0.0, 2.0], [-jnp.inf, 0.0], [1.0, 0.0], [1.0, 0.0]])
    given = jnp.array([0, 0, 0, 0, 1]), 0, sigua.sigua_sl(0.5, delta=0.3, gamma=0.5, warmup=0)
    value, gradient = jax.value_and_grad(sigua_loss)(logits, *given)
    good, bad = sigua_split(logits, *given)
    assert good.tolist() == [True, False, False, True, True]
    assert bad.tolist() == [False, True, False, False, False]
    want = (0.126928 + 0.313262 + 1.313262 - 0.5 * 2.126928) / 5
    assert value == pytest.approx(want, abs=1e-5)
    assert jnp.isfinite(gradient).all()
    assert (gradient[2] == 0).all()
    spoiled = logits.at[0, 0].set(jnp.nan)
    assert jnp.isnan(sigua_loss(spoiled, *given))
    assert not any(mask[0] for mask in sigua_split(spoiled, *given))


@pytest.mark.parametrize(
    ("make", "T"),
    [
        (sigua.backward_correction, PAIR),
        (sigua.backward_correction, SYMMETRIC),
        (sigua.forward_correction, PAIR),
        (sigua.forward_correction, ROWS),
        (sigua.forward_correction, TransitionMatrix.symmetric(0.0, K)),
    ],
    ids=name,
)
def test_an_impossible_label_says_nothing_under_correction(make, T):
    """No class that T turns into the label is possible: value 0 and a gradient of 0."""
    logits, labels = np.zeros((4, K), "float32"), np.arange(4) + 1
    logits[2, T.rows[:, 3] > 0 if make is sigua.forward_correction else 3] = -np.inf
    method = make(T)
    others = [0, 1, 3]
    want = reference.step(method, logits[others], labels[others])
    value, gradient = jax.value_and_grad(sigua_loss)(logits, labels, 0, method)
    np.testing.assert_allclose(value, want.objective * 3 / 4, rtol=8 * EPS)
    assert jnp.isfinite(gradient).all()
    assert (gradient[2] == 0).all()


@pytest.mark.parametrize("masked", [-1e4, -1e9, -np.inf])
def test_forward_correction_is_exact_where_classes_are_masked(masked):
    """Class 3 all but impossible: T'p at label 3 is .4 p_2, with p_2 = 1/9."""
    logits = np.zeros((1, K), "float32")
    logits[0, 3] = masked
    given = logits, np.array([3]), 0, sigua.forward_correction(PAIR)
    value, gradient = jax.value_and_grad(sigua_loss)(*given)
    assert value == pytest.approx(-np.log(0.4 / 9), rel=1e-6)
    assert jnp.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_logits_are_ranked_in_float32(dtype):
    """The same examples as for the same logits in float32, although their half losses tie."""
    rng = np.random.default_rng(0)
    logits = jnp.array(3 * rng.normal(size=(8192, 300)), dtype)
    given = rng.integers(0, 300, 8192), 0, sigua.sigua_sl(0.4, delta=0.1, warmup=0)
    value, gradient = jax.value_and_grad(sigua_loss)(logits, *given)
    split = sigua_split(logits, *given)
    assert_same(split, sigua_split(logits.astype("float32"), *given))
    assert split.good.sum() == 4915 + 1  # floor(8192 * 0.6) + 1, without a tie
    assert value.dtype == "float32"
    assert gradient.dtype == dtype


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_narrow_labels_are_labels(dtype):
    """Of 300 classes, more than such a dtype counts."""
    logits = np.random.default_rng(0).normal(size=(20, 300)).astype("float32")
    labels = np.arange(20)
    want = sigua_loss(logits, labels, 0, sigua.standard())
    assert sigua_loss(logits, labels.astype(dtype), 0, sigua.standard()) == want


def test_trusted_is_a_mask_or_two(samples):
    """A `Split` says good, bad, or neither, for `Known`; a mask says good or bad."""
    logits, labels = samples
    method = sigua.custom(sigua.Known(), gamma=0.5)
    mask = np.arange(N) % 3
    split = sigua.Split(mask == 0, mask == 1)
    assert_same(sigua_split(logits, labels, 0, method, trusted=split), split)
    losses = reference.cross_entropy(logits, labels)
    want = (losses @ (split.good - 0.5 * split.bad)) / N
    value = sigua_loss(logits, labels, 0, method, trusted=split)
    np.testing.assert_allclose(value, want, rtol=8 * EPS)
    found = sigua_split(logits, labels, 0, method, trusted=mask == 0)
    assert_same(found, (mask == 0, mask != 0))


def test_a_rule_of_ones_own_may_ask_for_everything(samples):
    """The order statistic, the mean and the class sums are the reference's."""

    class Rule:
        def at(self, epoch):
            return (7,)

        def split(self, batch, count):
            good = (batch.losses <= batch.smallest(count)) | (batch.losses > batch.mean())
            return sigua.Split(good, batch.class_sums() < 0)

    logits, labels = samples
    method = sigua.custom(Rule(), 1.0, "backward", ROWS)
    want = reference.step(method, logits, labels).split
    assert 0 < want.good.sum() < N
    assert want.bad.any()
    assert_same(sigua_split(logits, labels, 0, method), want)
    with pytest.raises(ValueError, match="class_sums: must come from backward correction"):
        sigua_split(logits, labels, 0, sigua.custom(Rule()))


@pytest.mark.parametrize(
    "T", [TransitionMatrix.symmetric(0.0, 3), TransitionMatrix(np.eye(3))], ids=name
)
def test_a_masked_class_is_no_part_of_a_correction_without_noise(T):
    """The loss is cross-entropy: log(1 + e) - 1 for logits 0, 1, -inf and label 1, not NaN."""
    given = jnp.array([[0.0, 1.0, -jnp.inf]]), np.array([1]), 0, sigua.sigua_bc(T)
    value, gradient = jax.value_and_grad(sigua_loss)(*given)
    assert value == pytest.approx(np.log(1 + np.e) - 1, rel=1e-6)
    p = np.e / (1 + np.e)
    np.testing.assert_allclose(gradient, [[1 - p, p - 1, 0]], rtol=1e-6)


@pytest.mark.parametrize("method", METHODS, ids=name)
def test_masked_classes_are_decided_as_by_the_spec(method, samples):
    """With logits of -inf a corrected loss may be infinite, of either sign: it says nothing.

    Then value and gradient are those of the spec, and nothing is NaN, with smoothing and in a
    selection per class, too.
    """
    logits, labels = (part.copy() for part in samples)
    rows = np.arange(N)
    logits[rows[::3], (labels[::3] + 1) % K] = -np.inf
    logits[rows[::5], (labels[::5] + 4) % K] = -np.inf
    logits[rows[::50], labels[::50]] = -np.inf
    trusted = marks(method, N)
    given = logits, labels, 10, method
    want = reference.step(method, logits, labels, 10, **trusted)
    value, gradient = jax.value_and_grad(sigua_loss)(*given, **trusted)
    assert_same(sigua_split(*given, **trusted), want.split)
    scale = 1.0 if method.T is None else np.abs(method.T.inverse).max()
    if method.separate:
        scale *= N / min(max(mask.sum(), 1) for mask in want.split)
    finite = np.abs(want.losses[np.isfinite(want.losses)]).max(initial=0)
    np.testing.assert_allclose(value, want.objective, rtol=0, atol=8 * EPS * scale * (1 + finite))
    np.testing.assert_allclose(gradient, want.gradient, rtol=0, atol=8 * EPS / N * scale)
    for options in ({"label_smoothing": 0.1}, {"per_class": True}):
        if not method.needs_cross_entropy:
            found = jax.value_and_grad(sigua_loss)(*given, **trusted, **options)
            assert all(np.isfinite(part).all() for part in found)
