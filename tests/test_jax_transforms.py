"""Under jit, vmap, grad, scan, shard_map, and on arrays that several devices share."""

import jax
import numpy as np
import pytest
from contract import assert_same
from jax import numpy as jnp
from programs import devices, launch

import sigua
from sigua import reference
from sigua_jax import corrected_losses, select, sigua_loss

EPS = float(np.finfo(np.float32).eps)
N, K = 100, 10
# floor(100 * .29) is 28 in floating point; both schedules end within a ramp.
SL = sigua.sigua_sl(0.71, delta=sigua.Knots([(2, 0.0), (6.5, 0.29)]), gamma=0.1, warmup=5)
OFFICIAL = sigua.sigua_sl(0.5, 0.3, sigua.Knots([(0, 0.0), (9, 0.5)]), variant="official")
EPOCHS = range(14)


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    return rng.normal(scale=2, size=(N, K)).astype("float32"), rng.integers(0, K, N)


def counted(function):
    """Return the function, jitted, and a list with an entry per trace."""
    traces = []

    def traced(*args):
        traces.append(1)
        return function(*args)

    return jax.jit(traced), traces


def assert_step(found, method, logits, labels, epoch):
    """A selection and a gradient are the reference's."""
    chosen, gradient = found
    want = reference.step(method, logits, labels, epoch)
    assert_same(chosen, want.split)
    scale = N / max(min(mask.sum() for mask in want.split), 1) if method.separate else 1
    np.testing.assert_allclose(gradient, want.gradient, rtol=0, atol=8 * EPS / N * scale)


def step_of(method, **options):
    def step(logits, labels, epoch):
        losses = corrected_losses(logits, labels, method)
        gradient = jax.grad(sigua_loss)(logits, labels, epoch, method, **options)
        return select(losses, epoch, method, logits=logits, labels=labels, **options), gradient

    return step


@pytest.mark.parametrize("method", [SL, OFFICIAL], ids=["paper", "official"])
@pytest.mark.parametrize("kind", [int, np.uint32])
@pytest.mark.parametrize("steps", [None, 7])
def test_one_compilation_serves_all_epochs(method, kind, steps, samples):
    """The epoch, or the step, is traced, and every count is the exact one of that epoch."""
    step, traces = counted(step_of(method, steps_per_epoch=steps))
    for epoch in EPOCHS if steps is None else range(0, 14 * 7, 5):
        assert_step(step(*samples, kind(epoch)), method, *samples, epoch / (steps or 1))
    assert len(traces) == 1


@pytest.mark.parametrize("epoch", [np.int8(100), np.uint8(200), np.int16(299)])
def test_a_traced_epoch_of_a_narrow_type_is_the_epoch(epoch, samples):
    """Whose warm-up has more epochs than the type holds."""
    method = sigua.self_teaching(0.5, warmup=300)
    step, _ = counted(step_of(method))
    assert_step(step(*samples, epoch), method, *samples, int(epoch))


def test_numbers_as_an_argument_serve_fractions_and_any_schedule(samples):
    """`method.at(t)`, made outside, needs no horizon, and one compilation."""
    method = sigua.sigua_sl(0.71, delta=lambda t: min(t / 20, 0.2), gamma=0.1, warmup=5)
    step, traces = counted(step_of(method))
    for epoch in np.arange(0, 14, 0.75):
        assert_step(step(*samples, method.at(epoch)), method, *samples, epoch)
    assert len(traces) == 1


def test_a_loop_on_the_device_carries_its_numbers_or_counts_its_steps(samples):
    """`lax.scan` over a table of numbers, with an entry per step, or over steps."""
    table = tuple(map(jnp.array, zip(*map(SL.at, np.arange(0, 7, 0.25)), strict=True)))

    def body(step, now):
        given = sigua_loss(*samples, now, SL), sigua_loss(*samples, step, SL, steps_per_epoch=4)
        return step + 1, given

    _, values = jax.lax.scan(body, 0, table)
    want = [reference.step(SL, *samples, t).objective for t in np.arange(0, 7, 0.25)]
    for found in values:
        np.testing.assert_allclose(found, want, rtol=8 * EPS)
    assert len(set(want)) > 5


def test_a_compiled_step_sorts_once(samples):
    """Both order statistics, of the loss and of the selection, come from one sort."""
    step = jax.jit(step_of(SL))
    assert step.lower(*samples, 3).compile().as_text().count(" sort(") == 1


@pytest.mark.parametrize("groups", [None, "class"])
def test_vmap_ranks_each_part_among_itself(groups, samples):
    """Over a leading axis, with an epoch for each, as in loops over single parts."""
    logits, labels = (part.reshape(4, 25, *part.shape[1:]) for part in samples)
    epochs = jnp.array([0, 3, 5, 9])
    chosen, gradient = jax.jit(jax.vmap(step_of(SL, groups=groups)))(logits, labels, epochs)
    for i, epoch in enumerate(epochs.tolist()):
        of = None if groups is None else labels[i]
        want = reference.step(SL, logits[i], labels[i], epoch, groups=of)
        np.testing.assert_array_equal(chosen.good[i], want.split.good)
        np.testing.assert_array_equal(chosen.bad[i], want.split.bad)
        np.testing.assert_allclose(gradient[i], want.gradient, rtol=0, atol=8 * EPS / 25)
    together = reference.step(SL, *samples, 5).split
    assert (chosen.good[2] != together.good[50:75]).any()


SHARDED = """
import jax, numpy as np, scipy.sparse, sigua, sys
from functools import partial
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from sigua_jax import CrossEntropy, corrected_losses, select, sigua_loss, update_confidence

assert len(jax.devices()) == 4
rng = np.random.default_rng(0)
logits, labels = rng.normal(scale=2, size=(32, 5)).astype("float32"), rng.integers(0, 5, 32)
mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType[sys.argv[1]],))
rows = NamedSharding(mesh, P("data"))
shared = jax.device_put((logits, labels), rows)
T = sigua.TransitionMatrix.pair(0.4, 5)
methods = [
    sigua.sigua_sl(0.5, delta=0.25, gamma=0.25, warmup=2),
    sigua.sigua_sl(0.5, delta=0.25, gamma=0.25, warmup=2, variant="official"),
    sigua.sigua_bc(T, over="batch"),
    sigua.sigua_bc(sigua.TransitionMatrix.symmetric(0.4, 5), gamma=0.5),
    sigua.forward_correction(T),
    sigua.sigua_ag(warmup=4, gamma=0.25),
]
before = sigua.reference.confidence_sums(logits[::-1], labels)
c = sigua.confidence.rates(before)
state = jnp.asarray(before, jnp.float32)

def step(x, y, epoch, method, loss=None, **options):
    def both(x, y, epoch):
        losses = corrected_losses(x, y, method)
        given = {"logits": x, "labels": y} | options
        found = jax.value_and_grad(sigua_loss)(x, y, epoch, method, loss=loss, **options)
        return select(losses, epoch, method, **given), *found
    return jax.jit(both)(x, y, epoch)

def parts(method, epoch):
    cut = zip(np.split(logits, 4), np.split(labels, 4))
    return [sigua.reference.step(method, *part, epoch) for part in cut]

for method in methods:
    split, value, gradient = step(*shared, 2, method, confidence=state)
    want = sigua.reference.step(method, logits, labels, 2, confidence=c)
    np.testing.assert_array_equal(split.good, want.split.good)
    np.testing.assert_array_equal(split.bad, want.split.bad)
    np.testing.assert_allclose(value, want.objective, rtol=1e-6)
    np.testing.assert_allclose(gradient, want.gradient, rtol=0, atol=2e-7)
    assert gradient.sharding.is_equivalent_to(rows, 2), gradient.sharding

after = jax.jit(update_confidence)(state, *shared)
sums = sigua.reference.confidence_sums(logits, labels)
np.testing.assert_allclose(after, sigua.confidence.moved(before, sums), rtol=1e-5)

csr = sigua.TransitionMatrix(scipy.sparse.csr_array(T.rows))
soft = (0.5 * np.eye(5)[labels] + 0.1).astype("float32")
weight = np.arange(5.0).astype("float32")
for y, method, options in [
    (labels, methods[0], {"groups": "class"}),
    (labels, methods[1], {"groups": "class", "loss": CrossEntropy(weight)}),
    (labels, sigua.sigua_bc(csr), {"loss": CrossEntropy(weight)}),
    (soft, sigua.sigua_bc(csr), {"loss": CrossEntropy(smoothing=0.1)}),
    (labels, sigua.forward_correction(csr), {}),
    (soft, sigua.forward_correction(csr), {}),
    (soft, sigua.forward_correction(T), {"loss": CrossEntropy(weight)}),
]:
    found = step(shared[0], jax.device_put(y, rows), 2, method, **options)
    want = step(logits, y, 2, method, **options)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=2e-7), found, want)

method = methods[0]
local = np.concatenate([part.split.good for part in parts(method, 2)])
assert (local != sigua.reference.step(method, logits, labels, 2).split.good).any()
each = jax.shard_map(
    lambda x, y: step(x, y, 2, method)[0], mesh=mesh, in_specs=P("data"), out_specs=P("data")
)
np.testing.assert_array_equal(jax.jit(each)(*shared).good, local)
print("done")
"""


@pytest.mark.parametrize("axis", ["Explicit", "Auto"])
def test_sharded_arrays_are_one_mini_batch(axis):
    """Of four devices: under jit all examples are ranked together, under shard_map each part."""
    assert launch("-c", SHARDED, axis, **devices(4)) == "done\n"
