"""An epoch told in steps, on the host and traced: exactly the spec's numbers."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import sigua
from sigua import reference
from sigua_jax import sigua_loss, sigua_split

N, K = 100, 10
# floor(100 * .29) is 28 in floating point; both schedules end within a ramp.
SL = sigua.sigua_sl(0.71, delta=sigua.Knots([(2, 0.0), (6.5, 0.29)]), gamma=0.1, warmup=5)
LOGITS = np.random.default_rng(0).normal(scale=2, size=(N, K)).astype("float32")
LABELS = np.random.default_rng(1).integers(0, K, N)


def test_steps_are_exact_fractions_of_an_epoch():
    """At each of 13 epochs of 7 steps the masks are the spec's at step / 7; compiled once."""
    traces = []

    @jax.jit
    def split(step):
        traces.append(1)
        return sigua_split(LOGITS, LABELS, step, SL, steps_per_epoch=7)

    for step in range(13 * 7):
        want = reference.step(SL, LOGITS, LABELS, step / 7).split
        for found in (split(step), split(np.uint32(step))):
            np.testing.assert_array_equal(found.good, want.good)
            np.testing.assert_array_equal(found.bad, want.bad)
    assert len(traces) == 2  # int32 and uint32
    eager = sigua_split(LOGITS, LABELS, 20, SL, steps_per_epoch=7)
    np.testing.assert_array_equal(eager.bad, reference.step(SL, LOGITS, LABELS, 20 / 7).split.bad)


def test_a_count_of_everyday_numbers_is_that_of_exact_fractions():
    """Noise rate 1/2 over 10 epochs of 50 steps, n = 1000: floor(1000 - step) + 1 stay.

    A fraction of the epoch in float32 is one short at some of the steps.
    """
    rng = np.random.default_rng(2)
    logits, labels = rng.normal(size=(1000, 2)).astype("float32"), np.zeros(1000, int)
    method = sigua.self_teaching(0.5, warmup=10)
    count = jax.jit(
        lambda step: sigua_split(logits, labels, step, method, steps_per_epoch=50).good.sum()
    )
    assert [int(count(step)) for step in range(600)] == [
        min(1000 - min(step, 500) + 1, 1000) for step in range(600)
    ]


def test_a_scan_counts_its_own_steps():
    """A run of one epoch alone, on the device: `lax.scan` over steps."""
    method = sigua.sigua_sl(0.5, delta=0.2, gamma=0.3, warmup=0.5)

    def body(step, _):
        return step + 1, sigua_loss(LOGITS, LABELS, step, method, steps_per_epoch=20)

    _, values = jax.lax.scan(body, 0, None, length=20)
    want = [reference.step(method, LOGITS, LABELS, step / 20).objective for step in range(20)]
    np.testing.assert_allclose(values, want, rtol=1e-6)
    assert len(set(want)) > 5


def test_numbers_of_fractional_epochs_are_made_outside():
    """For schedules that never settle, too: `method.at(step / steps_per_epoch)`, compiled once."""
    method = sigua.sigua_sl(0.5, delta=lambda t: min(t / 20, 0.2), gamma=0.1, warmup=5)
    traces = []

    @jax.jit
    def split(numbers):
        traces.append(1)
        return sigua_split(LOGITS, LABELS, numbers, method)

    for step in range(0, 90, 7):
        want = reference.step(method, LOGITS, LABELS, step / 10).split
        np.testing.assert_array_equal(split(method.at(step / 10)).bad, want.bad)
    assert len(traces) == 1


class Changing:
    """A rule that returns another number of numbers later."""

    horizon = 2

    def at(self, epoch):
        return () if epoch < 1 else (1.0,)

    def split(self, batch, *numbers):
        return sigua.Split(batch.losses > 0, batch.losses < 0)


@pytest.mark.parametrize(
    ("epoch", "method", "steps", "words"),
    [
        (1.5, SL, 7, ["epoch: must be a whole number", "1.5"]),
        (-1, SL, 7, ["epoch: must be a whole number of at least 0"]),
        (3, SL, 0, ["steps_per_epoch: must be a whole number of at least 1"]),
        (3, SL, 2.0, ["steps_per_epoch: must be a whole number", "2.0"]),
        (SL.at(3), SL, 7, ["steps_per_epoch: must be left out", "method.at(step / steps_per_"]),
        (np.arange(3), SL, None, ["epoch: must be one number", "(3,)", "vmap"]),
        (SL.at(3)[:2], SL, None, ["epoch", "length 3", "got length 2;"]),
        (tuple(map(float, SL.at(3))), SL, None, ["epoch: must be method.at(t)", "float32[] for"]),
        (tuple(np.ones((3, 2), int)), SL, None, ["epoch: must be method.at(t)", "[2] for"]),
    ],
)
def test_what_is_refused(epoch, method, steps, words):
    for function in (sigua_loss, sigua_split):
        with pytest.raises(ValueError) as error:  # noqa: PT011  # the words are the match
            function(LOGITS, LABELS, epoch, method, steps_per_epoch=steps)
        assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize(
    ("epoch", "method", "steps", "words"),
    [
        (1.5, SL, 7, ["epoch", "traced", "integer", "steps_per_epoch="]),
        (1, sigua.sigua_sl(0.5, 0.2, warmup=1000), 1001, ["steps_per_epoch", "1000000 steps"]),
        (1, sigua.sigua_sl(0.5, delta=lambda t: 0.1), 7, ["epoch", "settle", "method.at(t)"]),
        (jnp.arange(3), SL, 7, ["epoch: must be one number", "(3,)"]),
        (
            1,
            sigua.custom(Changing()),
            3,
            ["condition: must have an at", "(1.0,)"],
        ),
    ],
)
def test_what_is_refused_of_a_traced_step(epoch, method, steps, words):
    step = jax.jit(lambda epoch: sigua_loss(LOGITS, LABELS, epoch, method, steps_per_epoch=steps))
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the words are the match
        step(epoch)
    assert all(word in str(error.value) for word in words), error.value
