"""Bad input gets one sentence where it can be read; what is traced and cannot be is NaN."""

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax_versions import in_64_bits

import sigua
from sigua_jax import (
    CrossEntropy,
    corrected_losses,
    init_confidence,
    select,
    sigua_loss,
    update_confidence,
)

PAIR = sigua.TransitionMatrix.pair(0.45, 10)
SKEWED = sigua.TransitionMatrix([[0.9, 0.1], [0.6, 0.4]])
SL, AG = sigua.sigua_sl(0.5, delta=0.2), sigua.sigua_ag(warmup=1)
KNOWN = sigua.custom(sigua.Known())
LOGITS, LABELS = np.zeros((6, 10), "float32"), np.arange(6)
SOFT, ONE_HOT = np.full((6, 10), 0.1, "float32"), np.eye(10)[LABELS]
STEPS = {"steps_per_epoch": 7}
MASKED = np.ma.array(LABELS, mask=LABELS == 2)


def refused(words, function, *arguments, **options):
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the words are the match
        function(*arguments, **options)
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        (LOGITS, LABELS + 5, ["labels", "[0, 10)", "labels[5] = 10;"]),
        (LOGITS, LABELS + 2**32, ["labels: must fit in int32", "4294967296"]),
        (LOGITS, LABELS[:5], ["(n,)", "(6, 10)", "(5,)"]),
        (LOGITS, LABELS / 2, ["integers", "float32(6,)", "labels.astype(int)"]),
        (LOGITS, LABELS.astype(">i8"), ["labels: must be", "byte order", "got >i8"]),
        (LOGITS, list("abcdef"), ["labels: must be", "numbers", "got list;"]),
        (LOGITS, MASKED, ["labels: must be"]),
        (LOGITS, 0 * SOFT, ["labels: must be class probabilities", "at 0"]),
        (LOGITS, SOFT + np.eye(10)[0] - np.eye(10)[1], ["labels: must be class probabilities"]),
        (LOGITS, ONE_HOT.astype(int), ["int32(6, 10)", "labels.argmax(-1)"]),
        (LOGITS[None], LABELS[None], ["logits: must be", "(n, k)", "(1, 6, 10)", "vmap"]),
        (LOGITS[:, :1], LABELS % 2, ["(6, 1)", "sigua_jax.two_way(z)"]),
        (LOGITS * 1j, LABELS, ["logits: must be float", "complex64"]),
        ([[1.0, 2.0], [3.0]], [0, 1], ["logits: must be", "got list;"]),
    ],
)
def test_logits_and_labels_are_refused_by_every_function(logits, labels, words):
    refused(words, sigua_loss, logits, labels, 0, SL)
    refused(words, corrected_losses, logits, labels, SL)
    refused(words, update_confidence, init_confidence(10), logits, labels)
    given = {"logits": logits, "labels": labels, "confidence": init_confidence(10)}
    refused(words, select, np.ones(6, "float32"), 0, AG, **given)


@pytest.mark.parametrize(
    ("method", "epoch", "options", "words"),
    [
        ("sigua_sl", 0, {}, ["method", "must be a method", "got a str"]),
        (sigua.sigua_bc(sigua.TransitionMatrix.pair(0.45, 7)), 0, {}, ["T: ", "7 rows", "of 10"]),
        (SL, -1, {}, ["epoch", "[0, inf)", "got -1;"]),
        (SL, jnp.float32(jnp.nan), {}, ["epoch", "got nan;"]),
        (SL, (0.1, 1.0), {}, ["epoch: must be method.at(t)", "3 numbers"]),
        (SL, (0.0, None, 2), {}, ["epoch: must be method.at(t)", "None"]),
        (SL, 1.5, STEPS, ["epoch: must be a whole number", "1.5"]),
        (SL, -1, STEPS, ["epoch: must be a whole number of at least 0"]),
        (SL, 3, {"steps_per_epoch": 0}, ["steps_per_epoch: must be a whole number of at least 1"]),
        (SL, 3, {"steps_per_epoch": 2.0}, ["steps_per_epoch: must be a whole number", "2.0"]),
        (SL, SL.at(3), STEPS, ["steps_per_epoch: must be left out", "method.at(step / steps_per_"]),
        (SL, np.arange(3), {}, ["epoch: must be one number", "(3,)", "vmap"]),
        (SL, tuple(map(float, SL.at(3))), {}, ["epoch: must be method.at(t)"]),
        (SL, tuple(np.ones((3, 2), int)), {}, ["epoch: must be method.at(t)"]),
        (SL, 0, {"where": LABELS}, ["where: must be bool(6,)", "got int32(6,);"]),
        (SL, 0, {"trusted": LABELS > 2}, ["trusted", "Known", "leaving it out"]),
        (KNOWN, 0, {}, ["trusted", "a boolean per example"]),
        (KNOWN, 0, {"trusted": LABELS}, ["trusted", "bool(6,)", "int32"]),
        (
            KNOWN,
            0,
            {"trusted": sigua.Split(LABELS > 2, LABELS[:5] > 2)},
            ["trusted", "bool(6,)", "got bool(5,);"],
        ),
        (SL, 0, {"groups": "image"}, ["groups: must be one of 'class', got 'image'"]),
        (SL, 0, {"groups": LABELS / 2}, ["groups: must be integer(6,)", "float32(6,)"]),
        (SL, 0, {"groups": lambda x, y: x}, ["groups: must be integer(6,)", "float32(6, 10)"]),
        (SL, 0, {"loss": "focal"}, ["loss: must be None, CrossEntropy(...)", "'focal'"]),
        (SL, 0, {"loss": CrossEntropy}, ["loss: must be None, CrossEntropy(...)"]),
        (SL, 0, {"loss": CrossEntropy(np.ones(9))}, ["weight", "10 classes", "(9,)"]),
        (SL, 0, {"loss": CrossEntropy(-np.ones(10))}, ["weight", "from 0 up", "-1.0"]),
        (SL, 0, {"loss": CrossEntropy(smoothing=1.5)}, ["smoothing", "[0, 1]"]),
        (SL, 0, {"loss": lambda x, y: x[:3, 0]}, ["loss: must be floating(6,)", "(3,)"]),
        (SL, 0, {"loss": lambda x, y: y}, ["loss: must be floating(6,)", "int32(6,)"]),
    ],
)
def test_what_is_refused(method, epoch, options, words):
    refused(words, sigua_loss, LOGITS, LABELS, epoch, method, **options)
    given = {"logits": LOGITS, "labels": LABELS}
    if not callable(options.get("loss")) or isinstance(options["loss"], type):
        refused(words, select, LOGITS[:, 0], epoch, method, **given, **options)


@pytest.mark.parametrize(
    ("losses", "method", "options", "words"),
    [
        (LABELS, SL, {}, ["losses: must be floating(6,)", "int32(6,)"]),
        (LOGITS, SL, {}, ["losses: must be floating(6,)", "(6, 10)"]),
        (0.0, SL, {}, ["losses: must be floating(1,)", "float32()"]),
        (LOGITS[:5, 0], SL, {"logits": LOGITS, "labels": LABELS}, ["losses", "(6,)", "(5,)"]),
        (LOGITS[:, 0], AG, {}, ["logits: must be given, with labels"]),
        (LOGITS[:, 0], SL, {"groups": "class"}, ["logits: must be given, with labels"]),
        (LOGITS[:, 0], SL, {"loss": CrossEntropy(np.ones(10))}, ["logits: must be given"]),
        (LOGITS[:, 0], sigua.sigua_bc(SKEWED, over="classes"), {}, ["logits: must be given"]),
    ],
)
def test_what_selecting_refuses(losses, method, options, words):
    refused(words, select, losses, 0, method, **options)


@pytest.mark.parametrize(
    ("option", "new"),
    [
        ({"weight": np.ones(10)}, "loss=CrossEntropy(weight=...)"),
        ({"label_smoothing": 0.1}, "loss=CrossEntropy(smoothing=...)"),
        ({"reduction": "sum"}, "select(corrected_losses(...), ...)"),
        ({"grups": "class"}, "help(sigua_loss)"),
    ],
)
def test_an_option_of_another_name_is_told_the_new_one(option, new):
    with pytest.raises(TypeError) as error:
        sigua_loss(LOGITS, LABELS, 0, SL, **option)
    assert str(error.value).startswith(f"{next(iter(option))}: must be an option of sigua_loss")
    assert f"try {new}" in str(error.value)


METHODS = [
    SL,
    sigua.backward_correction(PAIR),
    sigua.backward_correction(sigua.TransitionMatrix.symmetric(0.5, 10)),
    sigua.forward_correction(PAIR),
    sigua.forward_correction(sigua.TransitionMatrix.symmetric(0.5, 10)),
]
ROWS = 0 * SOFT[0], 1.3 * SOFT[0], np.array([1.1, -0.1] + [0] * 8)
WRONG = [np.where(LABELS == 3, label, LABELS) for label in (-1, -100, 10, 2**20)]
WRONG += [np.where((LABELS == 3)[:, None], row, SOFT).astype("float32") for row in ROWS]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: repr(m)[:40])
def test_traced_labels_that_are_none_make_value_and_gradient_nan(method):
    """Rather than count from the end, or be clipped into a class; `where` leaves them out.

    Whoever looks at gradients alone sees it, and so does `optax.apply_if_finite`. An all-zero row
    would have a loss of 0, hence the smallest.
    """

    @jax.jit
    def step(labels, where=None):
        both = jax.value_and_grad(sigua_loss)(LOGITS, labels, 0, method, where=where)
        losses = corrected_losses(LOGITS, jnp.where(labels == 3, labels, labels), method)
        given = {"logits": LOGITS, "labels": labels, "where": where}
        return *both, losses, select(LOGITS[:, 0], 0, method, **given)

    there = LABELS != 3
    for labels in WRONG:
        value, gradient, losses, chosen = step(labels)
        assert jnp.isnan(value)
        for found in (gradient[3], losses[3], chosen.weights[3]):
            assert jnp.isnan(found).all()
        for found in (gradient[there], losses[there], chosen.weights[there]):
            assert jnp.isfinite(found).all()
        assert not (chosen.good | chosen.bad)[3]
        value, gradient, _, chosen = step(labels, there)
        want = sigua.reference.step(method, LOGITS[there], LABELS[there]).objective
        np.testing.assert_allclose(value, want, rtol=1e-6)
        assert jnp.isfinite(gradient).all()
        assert jnp.isfinite(chosen.weights).all()


def test_labels_are_checked_under_grad_where_they_can_be_read():
    """Not only the plain call: `jax.grad` alone traces the logits, not the labels."""
    refused(["labels[5] = 10;"], jax.grad(sigua_loss), LOGITS, LABELS + 5, 0, SL)


def test_a_label_that_would_wrap_around_is_no_class():
    """Of int64: 2^32 + 3 is not class 3, in 64 bits either."""
    labels = np.where(LABELS == 3, 2**32 + 3, LABELS)
    with in_64_bits():
        refused(["labels[3] = 4294967299;"], sigua_loss, LOGITS, labels, 0, SL)
        step = jax.jit(sigua_loss, static_argnames="method")
        assert jnp.isnan(step(LOGITS, labels, 0, method=SL))


def test_traced_class_weights_are_checked_by_their_shape():
    step = jax.jit(lambda w: sigua_loss(LOGITS, LABELS, 0, SL, loss=CrossEntropy(w)))
    refused(["weight: must be", "float32(3,)"], step, np.ones(3, "float32"))
    assert jnp.isfinite(step(np.ones(10, "float32")))


UNSETTLED = sigua.sigua_sl(0.5, delta=lambda t: 0.1)


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
        (1.0, SL, None, ["an integer", "settle", "method.at(t)"]),
        (3, UNSETTLED, None, ["an integer", "settle", "method.at(t)"]),
        (0.5, sigua.standard(), None, ["an integer", "settle", "method.at(t)"]),
        (1.5, SL, 7, ["epoch", "traced", "integer", "steps_per_epoch="]),
        (1, sigua.sigua_sl(0.5, 0.2, warmup=1000), 1001, ["steps_per_epoch", "1000000 steps"]),
        (1, UNSETTLED, 7, ["epoch", "settle", "method.at(t)"]),
        (jnp.arange(3), SL, 7, ["epoch: must be one number", "(3,)"]),
        (1, sigua.custom(Changing()), 3, ["condition: must have an at", "(1.0,)"]),
    ],
)
def test_a_traced_epoch_or_step_without_exact_numbers_is_refused(epoch, method, steps, words):
    """A fraction, or a schedule that never settles; `method.at(t)` is what the sentence names."""
    step = jax.jit(lambda epoch: sigua_loss(LOGITS, LABELS, epoch, method, steps_per_epoch=steps))
    refused(words, step, epoch)


@pytest.mark.parametrize("method", [SL, sigua.standard()], ids=["sl", "standard"])
@pytest.mark.parametrize("steps", [None, 7])
def test_a_traced_negative_epoch_makes_value_and_gradient_nan(method, steps):
    """Rather than count as epoch 0; one that is known is refused."""

    @jax.jit
    def step(epoch):
        both = jax.value_and_grad(sigua_loss)(LOGITS, LABELS, epoch, method, steps_per_epoch=steps)
        return *both, select(LOGITS[:, 0], epoch, method, steps_per_epoch=steps)

    value, gradient, chosen = step(-3)
    assert jnp.isnan(value)
    assert jnp.isnan(gradient).all()
    assert not (chosen.good | chosen.bad).any()
    value, gradient, chosen = step(0)
    assert value == pytest.approx(np.log(10))
    assert jnp.isfinite(gradient).all()
    assert chosen.good.all()
