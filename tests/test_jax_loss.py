"""What a call takes and means: labels, who takes part, losses, groups; what of it is exact."""

from functools import partial

import contract
import jax
import numpy as np
import optax
import pytest
from contract import COMPOSED, PAIR, K, N, assert_same, name
from jax import numpy as jnp
from jax_versions import as_users_do, in_64_bits

import sigua
from sigua import TransitionMatrix, reference
from sigua_jax import CrossEntropy, corrected_losses, select, sigua_loss, two_way

EPS = float(np.finfo(np.float32).eps)
SL = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0)
KNOWN = sigua.custom(sigua.Known(), gamma=0.1)
AGREEMENT = sigua.Agreement  # whose state, the confidence, has tests of its own
METHODS = [m for m in COMPOSED if not isinstance(m.condition, AGREEMENT)]
METHODS = [sigua.standard(), sigua.sigua_bc(PAIR, gamma=0.5), *METHODS, KNOWN]


@pytest.fixture
def samples():
    """Logits, labels, and class probabilities, some of them one-hot."""
    rng, (logits, labels) = np.random.default_rng(3), contract.samples()
    soft = rng.dirichlet(np.ones(K), N)
    soft[::4] = np.eye(K)[rng.integers(0, K, len(soft[::4]))]
    return logits, labels, soft.astype("float32")


def marks(method, n=N):
    """The mask that `Known` needs, and nothing for the others."""
    known = isinstance(method.condition, sigua.Known)
    return {"trusted": np.arange(n) % 3 > 0} if known else {}


def step(method, logits, labels, **options):
    """Return value, gradient and selection of one compiled step."""

    @jax.jit
    def compiled(logits, labels):
        found = jax.value_and_grad(sigua_loss)(logits, labels, 10, method, **options)
        losses = corrected_losses(logits, labels, method)
        return *found, select(losses, 10, method, logits=logits, labels=labels, **options)

    return compiled(logits, labels)


def differentiated(logits, labels, epoch, method, **options):
    """Return value and gradient, compiled: operator by operator takes longer."""
    whole = jax.value_and_grad(lambda x: sigua_loss(x, labels, epoch, method, **options))
    return jax.jit(whole)(logits)


@pytest.mark.parametrize("method", METHODS, ids=name)
def test_float64_is_float64(method, samples):
    """Under `jax_enable_x64` nothing is rounded on the way, and float32 stays what it is."""
    logits, labels, _ = samples
    options = marks(method)
    want = reference.step(method, logits, labels, 10, **options)
    with in_64_bits():
        inputs = jnp.asarray(logits, jnp.float64)
        value, gradient = differentiated(inputs, labels, 10, method, **options)
        single = jax.jit(lambda x, t: sigua_loss(x, labels, t, method, **options))(logits, 10)
        assert value.dtype == gradient.dtype == jnp.float64
        assert single.dtype == jnp.float32
    np.testing.assert_allclose(value, want.objective, rtol=1e-12)
    np.testing.assert_allclose(gradient, want.gradient, rtol=0, atol=1e-13)


def test_standard_is_optax(samples):
    """So is any method while rho is 1, with soft labels and smoothing, too."""
    logits, labels, soft = samples
    warm = sigua.sigua_sl(0.5, delta=0.2)
    for method, (given, rows) in zip(
        (sigua.standard(), warm), ((labels, np.eye(K)[labels]), (soft, soft)), strict=True
    ):
        for smoothing in (0.0, 0.1):
            loss = CrossEntropy(smoothing=smoothing)
            want = optax.softmax_cross_entropy(logits, optax.smooth_labels(rows, smoothing)).mean()
            value = sigua_loss(logits, given, 0, method, loss=loss)
            np.testing.assert_allclose(value, want, rtol=8 * EPS)


@pytest.mark.parametrize("groups", [None, "class"])
@pytest.mark.parametrize("method", METHODS[:-1], ids=name)
def test_nothing_takes_part(method, groups):
    """An empty mini-batch, or one without a participant, has loss 0 and gradient 0."""
    for n, where in ((0, None), (0, jnp.zeros(0, bool)), (4, jnp.zeros(4, bool))):
        given = jnp.ones((n, K)), jnp.zeros(n, int), 10, method
        value, gradient = differentiated(*given, groups=groups, where=where)
        assert value == 0
        assert (gradient == 0).all()


@pytest.mark.parametrize("method", METHODS, ids=name)
def test_nan_reaches_the_user_when_compiled(method, samples):
    """XLA on the CPU may lose a NaN in log and exp of a fused loop."""
    logits, labels, soft = samples
    logits[3] = np.nan
    for given, loss in ((labels, None), (labels, CrossEntropy(smoothing=0.1)), (soft, None)):
        objective = partial(sigua_loss, epoch=0, method=method, loss=loss, **marks(method))
        value, gradient = as_users_do(jax.value_and_grad(objective), logits, given)
        assert np.isnan(value)
        assert np.isnan(gradient[3]).all()
        assert np.isfinite(gradient[4:]).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_logits_are_ranked_in_float32(dtype):
    """The same examples as for the same logits in float32, although their half losses tie."""
    rng = np.random.default_rng(0)
    logits = jnp.array(3 * rng.normal(size=(8192, 300)), dtype)
    labels, method = rng.integers(0, 300, 8192), sigua.sigua_sl(0.4, delta=0.1, warmup=0)
    value, gradient, chosen = step(method, logits, labels)
    assert_same(chosen, step(method, logits.astype("float32"), labels)[2])
    assert chosen.good.sum() == 4915 + 1  # floor(8192 * 0.6) + 1, without a tie
    assert value.dtype == "float32"
    assert gradient.dtype == dtype


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_narrow_labels_are_labels(dtype):
    """Of 300 classes, more than such a dtype counts; traced, too."""
    logits = np.random.default_rng(0).normal(size=(20, 300)).astype("float32")
    labels = np.arange(20)
    want = reference.step(sigua.standard(), logits, labels).objective
    for call in (sigua_loss, jax.jit(sigua_loss, static_argnames="method")):
        value = call(logits, labels.astype(dtype), 0, method=sigua.standard())
        assert value == pytest.approx(want, rel=4 * EPS)


def test_one_hot_rows_are_labels(samples):
    """Value and gradient, although T'p of the label, .7 p_2 + .3 p_1, is near 0: exp(-60)."""
    logits, labels, _ = samples
    logits[0], labels[0] = [60] + [0] * (K - 1), 2
    rows = np.eye(K, dtype="float32")[labels]
    for method in METHODS[:-1]:
        index, dense = (differentiated(logits, y, 10, method) for y in (labels, rows))
        np.testing.assert_allclose(dense[0], index[0], rtol=32 * EPS)
        np.testing.assert_allclose(dense[1], index[1], rtol=0, atol=64 * EPS / N)


def generalized(logits, labels, q=0.7):
    """(1 - p_y^q) / q, for class indices."""
    log_p = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], -1)[:, 0]
    return -jnp.expm1(q * log_p) / q


@pytest.mark.parametrize("method", METHODS[:-1], ids=name)
def test_a_loss_of_ones_own_is_corrected_as_any(method, samples):
    """At the label, once per class for backward correction, on log T'p for forward correction."""
    logits, labels, _ = samples
    p = np.exp(reference.log_softmax(logits))
    if method.correction == "forward":
        p = p @ method.T.rows
    want = (1 - p**0.7) / 0.7
    if method.correction == "backward":
        want = want @ np.linalg.inv(method.T.rows).T
    want = want[np.arange(N), labels]
    losses = corrected_losses(logits, labels, method, generalized)
    np.testing.assert_allclose(losses, want, rtol=1e-4, atol=1e-5)
    if method.condition != sigua.NonNegative("classes"):
        split = reference.split(method, want, 10)
        weights = sigua.signed_weights(split, method.at(10)[0], separate=method.separate)
        value = sigua_loss(logits, labels, 10, method, loss=generalized)
        np.testing.assert_allclose(value, (want * weights).sum() / N, rtol=1e-4, atol=1e-5)


def test_an_infinite_loss_of_ones_own_leaves_no_nan_in_the_gradient():
    """-log p_y by way of p_y: at p_y = 0 it is infinite, and so is its slope."""

    def naive(logits, labels):
        return -jnp.log(jnp.take_along_axis(jax.nn.softmax(logits), labels[:, None], -1)[:, 0])

    T = TransitionMatrix([[0.9, 0.1], [0.3, 0.7]])
    logits, labels = jnp.array([[0.0, 200.0], [0.0, 0.0]]), jnp.array([0, 0])
    for method in (sigua.standard(), SL, sigua.sigua_bc(T), sigua.custom(sigua.NoiseFloor(0.1))):
        value, gradient = jax.value_and_grad(sigua_loss)(logits, labels, 0, method, loss=naive)
        assert jnp.isfinite(value)
        assert jnp.isfinite(gradient).all()
        assert (gradient[0] == 0).all()
    spoiled = logits.at[1, 1].set(jnp.nan)
    assert jnp.isnan(sigua_loss(spoiled, labels, 0, SL, loss=naive))


def test_groups_may_be_a_function_of_logits_and_labels(samples):
    """Those who take no part have no rank in their group."""
    logits, labels, _ = samples
    there = np.arange(N) % 7 > 0
    want = reference.step(SL, logits[there], labels[there], groups=logits.argmax(-1)[there])
    options = {"where": there, "groups": lambda logits, labels: logits.argmax(-1)}
    value, _, chosen = step(SL, logits, np.where(there, labels, -100), **options)
    assert_same(sigua.Split(chosen.good[there], chosen.bad[there]), want.split)
    np.testing.assert_allclose(value, want.objective, rtol=64 * EPS)


T2 = TransitionMatrix([[0.9, 0.1], [0.3, 0.7]])
OF_TWO = [SL, sigua.sigua_bc(T2, gamma=0.5), sigua.forward_correction(T2)]


@pytest.mark.parametrize("method", OF_TWO, ids=name)
def test_one_sigmoid_output_is_two_classes(method):
    """Logits z are (0, z); labels are integers, or probabilities; a loss may take z again."""
    rng = np.random.default_rng(1)
    z, labels = rng.normal(scale=2, size=60).astype("float32"), rng.integers(0, 2, 60)
    want = reference.step(method, np.stack([0 * z, z], 1), labels)
    rows = jnp.stack([1 - labels, labels], -1).astype("float32")

    def binary(logits, labels):
        return optax.sigmoid_binary_cross_entropy(logits[:, 1] - logits[:, 0], labels)

    for y, loss in ((labels, None), (rows, None), (labels, binary)):
        found = jax.jit(
            jax.value_and_grad(lambda z, y=y, f=loss: sigua_loss(two_way(z), y, 0, method, loss=f))
        )(z)
        np.testing.assert_allclose(found[0], want.objective, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[1], want.gradient[:, 1], rtol=0, atol=64 * EPS / 60)


def test_trusted_may_be_a_split(samples):
    """It says good, bad, or neither, for `Known`."""
    logits, labels, _ = samples
    mask = np.arange(N) % 3
    split = sigua.Split(mask == 0, mask == 1)
    value, _, chosen = step(METHODS[-1], logits, labels, trusted=split)
    assert_same(chosen, split)
    want = reference.cross_entropy(logits, labels) @ (split.good - 0.1 * split.bad) / N
    np.testing.assert_allclose(value, want, rtol=8 * EPS)


def test_sparse_noise_among_many_classes_makes_no_square_array():
    """Of 20,000 classes, whose k x k array would be refused: pair noise, by hand.

    Logits 0 but for 5 at the label: p_y = e^5 / (e^5 + k - 1), others 1 / (e^5 + k - 1).
    """
    k, labels = 20_000, np.array([7, 0, 19_999])
    method = sigua.forward_correction(TransitionMatrix.pair(0.3, k))
    logits = np.zeros((3, k), "float32")
    logits[np.arange(3), labels] = 5
    want = -np.log((0.7 * np.exp(5) + 0.3) / (np.exp(5) + k - 1))
    for given in (labels, np.eye(k, dtype="float32")[labels]):
        value, gradient = jax.value_and_grad(sigua_loss)(logits, given, 0, method)
        assert value == pytest.approx(want, rel=1e-5)
        assert jnp.isfinite(gradient).all()
