"""Agreement and its class confidence, a state that goes in and out: each example judged alone."""

import jax
import numpy as np
import pytest
from contract import Memory, assert_same
from jax import numpy as jnp

import sigua
from sigua import confidence, reference
from sigua_jax import corrected_losses, init_confidence, select, sigua_loss, update_confidence

EPS = float(np.finfo(np.float32).eps)
K = 10
METHOD = sigua.sigua_ag(warmup=4, gamma=0.3)


def batch(n, rng, k=K):
    """Return logits that know some 40 % of the labels."""
    logits, labels = 2 * rng.normal(size=(n, k)), rng.integers(0, k, n)
    logits[: n // 2] += 5 * np.eye(k)[labels[: n // 2]]
    return logits.astype("float32"), labels


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def state(rng):
    """A confidence that has seen 200 examples."""
    return update_confidence(init_confidence(K), *batch(200, rng))


def chosen(logits, labels, epoch, method=METHOD, **options):
    losses = corrected_losses(logits, labels, sigua.standard())
    return select(losses, epoch, method, logits=logits, labels=labels, **options)


@pytest.mark.parametrize("how", [{}, {"by_class": False}, {"power": 0.5}], ids=str)
def test_equals_the_spec_epoch_by_epoch(how, rng):
    """One compilation for all epochs of a size; mini-batches of one among them."""
    method = sigua.sigua_ag(4, 0.3, **how)
    traces = []

    @jax.jit
    def step(logits, labels, epoch, state):
        traces.append(1)
        found = jax.value_and_grad(sigua_loss)(logits, labels, epoch, method, confidence=state)
        split = chosen(logits, labels, epoch, method, confidence=state)
        return found, split, update_confidence(state, logits, labels)

    memory, state = Memory(K), init_confidence(K, method)
    for epoch in range(7):
        for n in (64, 1, 37):
            logits, labels = batch(n, rng)
            (value, gradient), split, state = step(logits, labels, epoch, state)
            want = reference.step(method, logits, labels, epoch, **memory.given())
            memory.add(logits, labels)
            assert_same(split, want.split)
            np.testing.assert_allclose(value, want.objective, rtol=32 * EPS, atol=8 * EPS)
            np.testing.assert_allclose(gradient, want.gradient, rtol=0, atol=8 * EPS / n)
    assert 0.05 < want.split.good.mean() < 0.9
    if method.condition.by_class:
        np.testing.assert_allclose(state, memory.state(method), rtol=1e-5)
    assert len(traces) == 3


def test_each_example_is_judged_alone_under_vmap_too(state, rng):
    """With one state for all, or one for each part."""
    logits, labels = batch(40, rng)
    whole = chosen(logits, labels, 3, confidence=state)

    def alone(x, y, state):
        return chosen(x[None], y[None], 3, confidence=state)

    for axis, given in ((None, state), (0, jnp.stack([state] * 40))):
        found = jax.vmap(alone, in_axes=(0, 0, axis))(logits, labels, given)
        np.testing.assert_array_equal(found.good[:, 0], whole.good)
        np.testing.assert_array_equal(found.bad[:, 0], whole.bad)
    halves = jnp.stack([state] * 2), logits.reshape(2, 20, K), labels.reshape(2, 20)
    want = update_confidence(state, logits[20:], labels[20:])
    np.testing.assert_allclose(jax.vmap(update_confidence)(*halves)[1], want, rtol=1e-6)


def test_who_takes_no_part_is_not_counted(state, rng):
    """Garbage and NaN among them; the others are as if they were alone."""
    logits, labels = batch(40, rng)
    there = np.arange(40) % 4 > 0
    spoiled, missing = logits.copy(), np.where(there, labels, -100)
    spoiled[~there] = np.nan
    both = jax.value_and_grad(sigua_loss)
    found = both(spoiled, missing, 3, METHOD, confidence=state, where=there)
    want = both(logits[there], labels[there], 3, METHOD, confidence=state)
    np.testing.assert_allclose(found[0], want[0], rtol=8 * EPS)
    np.testing.assert_allclose(found[1][there], want[1], rtol=0, atol=8 * EPS / 30)
    assert (found[1][~there] == 0).all()
    after = update_confidence(state, spoiled, missing, there)
    want = update_confidence(state, logits[there], labels[there])
    np.testing.assert_allclose(after, want, rtol=1e-6)
    nobody = update_confidence(state, spoiled, missing, np.zeros(40, bool))
    np.testing.assert_array_equal(nobody, state)


def test_nan_is_neither_and_reaches_the_user_but_not_the_confidence(state, rng):
    logits, labels = batch(8, rng)
    logits[3] = np.nan
    split = chosen(logits, labels, 10, confidence=state)
    assert not (split.good | split.bad)[3]
    assert jnp.isnan(sigua_loss(logits, labels, 10, METHOD, confidence=state))
    others = np.arange(8) != 3
    want = update_confidence(state, logits[others], labels[others])
    np.testing.assert_allclose(update_confidence(state, logits, labels), want)
    outside = np.where(others, labels, K)  # traced it cannot be refused, and is no class
    found = jax.jit(update_confidence)(state, logits, outside)
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_a_masked_class_is_no_rival_and_a_masked_label_is_neither():
    """Of p = 1/4, 0, 3/4 and c = 1 margins are -1/2 and 1/2; at p = 0 the loss is infinite.

    The gradient is finite, and 0 for the infinite one.
    """
    given = np.array([[0.0, -np.inf, np.log(3)]] * 3, "float32"), np.array([2, 0, 1])
    state = init_confidence(3)
    method = sigua.custom(sigua.Agreement(warmup=0), gamma=0.5)
    split = chosen(*given, 0, method, confidence=state)
    assert split.good.tolist() == [True, False, False]
    assert split.bad.tolist() == [False, True, False]
    value, gradient = jax.value_and_grad(sigua_loss)(*given, 0, method, confidence=state)
    assert value == pytest.approx((-np.log(0.75) + 0.5 * np.log(0.25)) / 3, rel=1e-5)
    assert jnp.isfinite(gradient).all()
    assert (gradient[2] == 0).all()
    after = update_confidence(state, *given)
    np.testing.assert_allclose(after, [[0.25, 0, 0.75], [1, 1, 1]], rtol=1e-6)


def test_another_loss_and_forward_correction_are_judged_by_the_logits(state, rng):
    """By what the model says of the true class, and not by T'p nor by what is optimised."""
    logits, labels = batch(40, rng)
    want = chosen(logits, labels, 3, confidence=state)
    T = sigua.TransitionMatrix.pair(0.3, K)
    forward = sigua.custom(sigua.Agreement(4), correction="forward", T=T)
    given = {"logits": logits, "labels": labels, "confidence": state}
    for method, losses in ((METHOD, np.ones(40)), (forward, np.arange(40.0))):
        found = select(losses.astype("float32"), 3, method, **given)
        np.testing.assert_array_equal(found.good, want.good)


def test_half_precision_is_judged_in_float32(rng):
    logits, labels = batch(64, rng)
    half, start = jnp.asarray(logits, jnp.bfloat16), init_confidence(K)
    state = update_confidence(start, half, labels)
    assert state.dtype == "float32"
    np.testing.assert_array_equal(state, update_confidence(start, half.astype("float32"), labels))


def test_no_gradient_flows_through_the_confidence(rng):
    logits, labels = batch(8, rng)
    given = init_confidence(K)
    slopes = jax.grad(lambda x: update_confidence(given, x, labels).sum())(logits)
    assert (slopes == 0).all()


def test_a_state_that_is_not_read_changes_nothing(state, rng):
    """So that one step serves all methods."""
    logits, labels = batch(8, rng)
    for method in (sigua.standard(), sigua.sigua_ag(by_class=False)):
        with_it = sigua_loss(logits, labels, 3, method, confidence=state)
        assert with_it == sigua_loss(logits, labels, 3, method)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["confidence: must be given", "got None", "init_confidence(10)"]),
        ({"confidence": np.zeros((2, 7), "float32")}, ["float(2, 10)", "(2, 7)"]),
        ({"confidence": np.zeros((2, 10), int)}, ["float(2, 10)", "int"]),
        ({"confidence": "c"}, ["confidence: must be a NumPy or JAX array"]),
        ({"groups": "class", "confidence": np.ones((2, 10))}, ["groups: must be left out"]),
    ],
)
def test_what_is_refused(given, words, rng):
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the words are the match
        sigua_loss(*batch(8, rng), 3, METHOD, **given)
    assert all(word in str(error.value) for word in words), error.value


def test_what_updating_refuses(state, rng):
    logits, labels = batch(8, rng)
    with pytest.raises(ValueError, match=r"labels\[0\] = \d+;"):
        update_confidence(state, logits, labels + K)
    with pytest.raises(ValueError, match=r"confidence: must be float\(2, 7\)"):
        update_confidence(state, logits[:, :7], labels % 7)
    with pytest.raises(ValueError, match=r"where: must be bool\(8,\)"):
        update_confidence(state, logits, labels, labels)
    with pytest.raises(ValueError, match="k: must be a whole number of at least 2"):
        init_confidence(1)
    counted = init_confidence(200, sigua.sigua_ag(power=1))
    words = r"confidence: must be float\(9, 5\), of 5 classes, got float32\(204, 200\)"
    with pytest.raises(ValueError, match=words):
        update_confidence(counted, logits[:, :5], labels % 5)
    many = confidence.MOST_CLASSES + 1  # which the sums alone may have
    assert update_confidence(init_confidence(many), jnp.zeros((1, many)), jnp.array([3]))[1, 3] == 1
    with pytest.raises(ValueError, match=r"^power: must be 0 with more than 4096 classes"):
        init_confidence(many, sigua.sigua_ag(power=1))


@pytest.mark.parametrize("entry", [np.nan, np.inf, -1.0])
@pytest.mark.parametrize("row", [0, 1], ids=["sum", "number"])
def test_one_that_is_none_is_refused_or_makes_the_loss_nan(entry, row, rng):
    """Rather than that every example is dropped, and the loss is 0."""
    state = np.ones((2, K), "float32")
    state[row, 3] = entry
    given = batch(8, rng)
    for call in (sigua_loss, chosen):
        with pytest.raises(ValueError, match=r"^confidence: .* try init_confidence\(10\)"):
            call(*given, 5, method=METHOD, confidence=state)
    with pytest.raises(ValueError, match=r"^confidence: .* try init_confidence\(10\)"):
        update_confidence(state, *given)

    @jax.jit
    def step(epoch, state):
        known = *given, epoch, METHOD
        both = jax.value_and_grad(sigua_loss)(*known, confidence=state)
        return *both, chosen(*known, confidence=state)

    for epoch in (0, 5):
        value, gradient, split = step(epoch, state)
        assert jnp.isnan(value)
        assert jnp.isnan(gradient).all()
        assert jnp.isnan(split.weights).all()
        assert not (split.good | split.bad).any()


@pytest.mark.parametrize("power", [0, 1])
def test_ranks_are_never_promoted(power):
    """Where JAX is asked to raise on it, as by teams that read a forgotten axis out of that."""
    method, labels = sigua.sigua_ag(power=power), jnp.arange(6) % 3
    state, logits = init_confidence(3, method), jnp.ones((6, 3))
    with jax.numpy_rank_promotion("raise"):
        assert sigua_loss(logits, labels, 5, method, confidence=state) > 0
        assert update_confidence(state, logits, labels).shape == state.shape
