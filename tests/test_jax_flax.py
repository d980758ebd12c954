"""With Flax NNX and Optax: the example, accumulated gradients, steps that are left out."""

from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from flax import nnx
from jax import numpy as jnp
from programs import accuracies, devices, launch, module_of

import sigua
from sigua import reference
from sigua_jax import corrected_losses, init_confidence, select, sigua_loss, update_confidence

EXAMPLES = Path(__file__).parents[1] / "examples"
EXAMPLE = EXAMPLES / "trainers" / "flax_fit.py"
N, K = 64, 10


@pytest.fixture(scope="module")
def example():
    """The example as a module."""
    return module_of(EXAMPLE)


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, K)).astype("float32"), rng.integers(0, K, N)


def test_the_example_forgets_what_plain_training_memorises():
    """On two devices, of which each has half of a mini-batch."""
    found = accuracies(launch("-W", "error", EXAMPLE, **devices(2)))
    assert list(found) == ["plain", "SIGUA"]
    assert found["SIGUA"] > max(90, found["plain"] + 20)


def test_the_example_without_flax_beats_what_memorising_gives():
    """Half of the labels are wrong."""
    found = accuracies(launch("-W", "error", EXAMPLES / "jax_fit.py"))
    assert found["SIGUA"] > 85 > 75 > found["plain"]


def test_a_mini_batch_with_nan_is_left_out_and_training_goes_on(example):
    """Among accumulated ones, too: as if it had never come. Its own loss is NaN."""
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(16, 64)).astype("float32"), np.arange(16) % 10) for _ in range(5)]
    spoiled = np.full_like(batches[0][0], np.nan), batches[0][1]
    trained = []
    for given in (batches, [batches[0], spoiled, *batches[1:3], spoiled, *batches[3:]]):
        model = example.network()
        optimizer, confidence = example.optimizer_of(model), init_confidence(10)
        for x, y in given:
            confidence = example.step(model, optimizer, confidence, x, y, sigua.sigua_ag(), 10_000)
        trained.append(jax.tree.leaves((nnx.state(model), confidence)))
    for found, want in zip(*trained, strict=True):
        assert jnp.isfinite(found).all()
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-8)
    assert jnp.isnan(sigua_loss(model(spoiled[0]), spoiled[1], 0, sigua.standard()))


def accumulated(loss_of_part, weights, parts):
    """Return what `optax.MultiSteps` makes of the gradients of so many parts, with SGD at 1."""
    optimizer = optax.MultiSteps(optax.sgd(1.0), every_k_schedule=parts)
    state, moved = optimizer.init(weights), weights
    for i in range(parts):
        updates, state = optimizer.update(jax.grad(loss_of_part)(weights, i), state, weights)
        moved = optax.apply_updates(moved, updates)
    return weights - moved


def test_accumulated_agreement_is_that_of_one_big_batch(samples):
    """Each example is judged alone; the confidence moves once, with all of them."""
    x, y = samples
    method, weights = sigua.sigua_ag(gamma=0.1), jnp.eye(K)
    state = update_confidence(init_confidence(K), x[::-1] @ weights, y)

    def part(weights, i):
        rows = slice(16 * i, 16 * i + 16)
        return sigua_loss(x[rows] @ weights, y[rows], 7, method, confidence=state)

    want = jax.grad(lambda w: sigua_loss(x @ w, y, 7, method, confidence=state))(weights)
    np.testing.assert_allclose(accumulated(part, weights, 4), want, rtol=0, atol=1e-7)


def test_a_choice_among_all_can_be_trained_in_parts(samples):
    """`select` among the whole, then its weights times the losses: the big batch's gradient."""
    x, y = samples
    method, weights = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3), jnp.eye(K)
    chosen = select(corrected_losses(x @ weights, y, method), 10, method)

    def part(weights, i):
        rows = slice(16 * i, 16 * i + 16)
        return (chosen.weights[rows] * corrected_losses(x[rows] @ weights, y[rows], method)).mean()

    want = jax.grad(lambda w: sigua_loss(x @ w, y, 10, method))(weights)
    np.testing.assert_allclose(accumulated(part, weights, 4), want, rtol=0, atol=1e-7)


def test_a_flax_step_takes_the_losses_and_their_selection(samples):
    """Flax's modules and Optax's optimisers as they are: one compilation, and SGD by the spec."""
    method = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=2)
    model = nnx.Linear(K, K, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.5), wrt=nnx.Param)
    traces = []

    @nnx.jit
    def step(model, optimizer, x, y, epoch):
        traces.append(1)

        def objective(model):
            losses = corrected_losses(model(x), y, method)
            chosen = select(losses, epoch, method)
            return (chosen.weights * losses).mean(), chosen

        (_, chosen), slopes = nnx.value_and_grad(objective, has_aux=True)(model)
        optimizer.update(model, slopes)
        return chosen

    x, y = samples
    kernel, bias = (np.asarray(part[...], "float64") for part in (model.kernel, model.bias))
    for epoch in range(4):
        chosen = step(model, optimizer, x, y, epoch)
        want = reference.step(method, x @ kernel + bias, y, epoch)
        np.testing.assert_array_equal(chosen.good, want.split.good)
        kernel, bias = kernel - 0.5 * x.T @ want.gradient, bias - 0.5 * want.gradient.sum(axis=0)
    np.testing.assert_allclose(model.kernel[...], kernel, rtol=0, atol=1e-5)
    np.testing.assert_allclose(model.bias[...], bias, rtol=0, atol=1e-5)
    assert len(traces) == 1
