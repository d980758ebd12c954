"""Bad input gets one sentence where it can be read; what is traced and cannot be is NaN."""

from typing import get_args

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax_versions import in_64_bits

import sigua
from sigua._method import Correction
from sigua_jax import sigua_loss, sigua_split, update_confidence
from sigua_jax._correct import CORRECTIONS

PAIR = sigua.TransitionMatrix.pair(0.45, 10)
SL = sigua.sigua_sl(0.5, delta=0.2)
KNOWN = sigua.custom(sigua.Known())
LOGITS, LABELS = np.zeros((6, 10), "float32"), np.arange(6)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((LOGITS, LABELS, 0, "sigua_sl"), {}, ["method", "must be a method", "got a str"]),
        ((LOGITS, LABELS + 5, 0, SL), {}, ["labels", "[0, 10)", "labels[5] = 10;"]),
        ((LOGITS, LABELS - 1, 0, SL), {}, ["labels", "labels[0] = -1;"]),
        ((LOGITS, LABELS[:5], 0, SL), {}, ["labels", "(n,)", "(6, 10)", "(5,)"]),
        ((LOGITS, LABELS[:, None], 0, SL), {}, ["labels", "(n,)", "(6, 1)"]),
        ((LOGITS, LABELS / 2, 0, SL), {}, ["labels", "integers", "float32"]),
        ((LOGITS, LABELS > 2, 0, SL), {}, ["labels", "integers", "bool"]),
        ((LOGITS[None], LABELS[None], 0, SL), {}, ["logits", "(n, k)", "(1, 6, 10)", "vmap"]),
        ((LOGITS[0], LABELS[0], 0, SL), {}, ["logits", "(n, k)", "(10,)"]),
        ((LOGITS[:, :7], LABELS, 0, sigua.sigua_bc(PAIR)), {}, ["T: ", "10 rows", "logits of 7"]),
        ((LOGITS, LABELS, -1, SL), {}, ["epoch", "[0, inf)", "got -1;"]),
        ((LOGITS, LABELS, None, SL), {}, ["epoch", "got None;"]),
        ((LOGITS, LABELS, (0.1, 1.0), SL), {}, ["epoch", "length 3", "got length 2;"]),
        ((LOGITS, LABELS, jnp.float32(jnp.nan), SL), {}, ["epoch", "got nan;"]),
        ((LOGITS, LABELS, 0, SL), {"where": LABELS}, ["where", "bool(6,)", "got int32(6,);"]),
        ((LOGITS, LABELS, 0, SL), {"where": LABELS[:5] > 2}, ["where", "got bool(5,);"]),
        ((LOGITS, LABELS, 0, SL), {"trusted": LABELS > 2}, ["trusted", "Known", "leaving it out"]),
        ((LOGITS, LABELS, 0, KNOWN), {}, ["trusted", "a boolean per example"]),
        ((LOGITS, LABELS, 0, KNOWN), {"trusted": LABELS}, ["trusted", "bool(6,)", "int32"]),
        (
            (LOGITS, LABELS, 0, KNOWN),
            {"trusted": (LABELS > 2, LABELS < 1)},
            ["trusted", "got tuple;", "sigua.Split"],
        ),
        (
            (LOGITS, LABELS, 0, KNOWN),
            {"trusted": sigua.Split(LABELS > 2, LABELS[:5] > 2)},
            ["trusted", "bool(6,)", "got bool(5,);"],
        ),
    ],
)
def test_what_is_refused(arguments, options, words):
    for function in (sigua_loss, sigua_split):
        with pytest.raises(ValueError) as error:  # noqa: PT011  # the words are the match
            function(*arguments, **options)
        assert all(word in str(error.value) for word in words), error.value
        assert "\n" not in str(error.value)


def test_an_unknown_reduction_is_refused():
    with pytest.raises(ValueError, match=r"^reduction: must be one of 'mean', 'sum', 'none'"):
        sigua_loss(LOGITS, LABELS, 0, SL, reduction="average")


@pytest.mark.parametrize(
    ("epoch", "method"),
    [(1.0, SL), (3, sigua.sigua_sl(0.5, delta=lambda t: 0.1)), (0.5, sigua.standard())],
)
def test_a_traced_epoch_without_exact_numbers_is_refused(epoch, method):
    """A fraction, or a schedule that never settles; `method.at(t)` is what the sentence names."""
    step = jax.jit(sigua_loss, static_argnames="method")
    with pytest.raises(ValueError, match=r"^epoch: .* an integer.* settle.*method\.at\(t\)"):
        step(LOGITS, LABELS, epoch, method=method)
    assert jnp.isfinite(step(LOGITS, LABELS, method.at(epoch), method=method))


METHODS = [
    SL,
    sigua.backward_correction(PAIR),
    sigua.backward_correction(sigua.TransitionMatrix.symmetric(0.5, 10)),
    sigua.forward_correction(PAIR),
    sigua.forward_correction(sigua.TransitionMatrix.symmetric(0.5, 10)),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: repr(m)[:40])
@pytest.mark.parametrize("label", [-1, -100, 10, 2**20])
def test_a_traced_label_out_of_range_makes_the_loss_nan(method, label):
    """Rather than count from the end, or be clipped into a class; `where` leaves it out."""
    step = jax.jit(sigua_loss, static_argnames="method")
    labels = np.where(LABELS == 3, label, LABELS)
    assert jnp.isnan(step(LOGITS, labels, 0, method=method))
    there = LABELS != 3
    value = step(LOGITS, labels, 0, method=method, where=there)
    want = sigua.reference.step(method, LOGITS[there], LABELS[there]).objective
    np.testing.assert_allclose(value, want, rtol=1e-6)


def test_labels_are_checked_under_grad_where_they_can_be_read():
    """Not only the plain call: `jax.grad` alone traces the logits, not the labels."""
    with pytest.raises(ValueError, match=r"labels\[5\] = 10;"):
        jax.grad(sigua_loss)(LOGITS, LABELS + 5, 0, SL)


def test_a_rule_that_returns_no_pair_is_refused():
    class Rule:
        def at(self, epoch):
            return ()

        def split(self, batch):
            return batch.losses > 0

    with pytest.raises(ValueError, match="split must return good and bad"):
        sigua_loss(LOGITS, LABELS, 0, sigua.custom(Rule()))


def test_a_rule_that_returns_a_column_is_refused():
    """Against losses of shape (n,) it would make n x n masks."""

    class Rule:
        def at(self, epoch):
            return ()

        def split(self, batch):
            return sigua.Split((batch.losses > 0)[:, None], batch.losses < 0)

    with pytest.raises(ValueError, match=r"condition: must return masks of shape \(6,\)"):
        sigua_loss(LOGITS, LABELS, 0, sigua.custom(Rule()))


SOFT = np.full((6, 10), 0.1, "float32")
MASKED = np.ma.array(LABELS, mask=LABELS == 2)
ONE_HOT = np.eye(10)[LABELS]
AG = sigua.sigua_ag(warmup=1)


def halved(logits, labels):
    return jnp.zeros(3)


def column(logits, labels):
    return jnp.zeros((6, 1))


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((LOGITS, LABELS.astype(">i8"), 0, SL), {}, ["labels: must be", "byte order", "got >i8"]),
        ((LOGITS.astype(">f4"), LABELS, 0, SL), {}, ["logits: must be", "byte order", "got >f4"]),
        ((LOGITS, list("abcdef"), 0, SL), {}, ["labels: must be", "numbers", "got list;"]),
        ((LOGITS, np.array(list("abcdef")), 0, SL), {}, ["labels: must be", "got <U1"]),
        ((LOGITS, None, 0, SL), {}, ["labels: must be", "got NoneType;"]),
        (([[1.0, 2.0], [3.0]], [0, 1], 0, SL), {}, ["logits: must be", "got list;"]),
        ((LOGITS, LABELS, 0, SL), {"where": list("abcdef")}, ["where: must be", "got list;"]),
        ((LOGITS, LABELS + 2**32, 0, SL), {}, ["labels: must fit in int32", "4294967296"]),
        ((LOGITS * 1j, LABELS, 0, SL), {}, ["logits: must have shape", "complex64"]),
        ((LOGITS[:, :1], LABELS, 0, SL), {}, ["logits: must have shape", "try logits[:, 0]"]),
        ((LOGITS, 0 * SOFT, 0, SL), {}, ["labels: must be class probabilities", "at 0"]),
        ((LOGITS, SOFT * 1.3, 0, SL), {}, ["labels: must be class probabilities", "sum 1"]),
        ((LOGITS, SOFT + np.eye(10)[0] - np.eye(10)[1], 0, SL), {}, ["labels: must be class prob"]),
        ((LOGITS, SOFT[:5], 0, SL), {}, ["logits: must have shape", "(5, 10)"]),
        ((LOGITS[:, 0], LABELS, 0, SL), {}, ["labels", "[0, 2)", "labels[2] = 2;"]),
        ((LOGITS[:, 0], LABELS / 5, 0, sigua.forward_correction(PAIR)), {}, ["got 10 rows"]),
        ((LOGITS[:, 0], LABELS / 4, 0, SL), {}, ["labels: must be in [0, 1], got 1.25 at 5"]),
        ((LOGITS, LABELS * 1.0, 0, SL), {}, ["labels: must be integers", "try labels.astype(int)"]),
        ((LOGITS, LABELS > 2, 0, SL), {}, ["labels: must be", "bool(6,)", "labels.astype(int)"]),
        ((LOGITS[:, 0], LABELS > 2, 0, SL), {}, ["labels: must be", "try labels.astype(int)"]),
        ((LOGITS, LABELS.astype(object), 0, SL), {}, ["labels: must", "try labels.astype(int)"]),
        ((LOGITS.astype(object), LABELS, 0, SL), {}, ["logits: must", "try logits.astype(float)"]),
        ((LOGITS, ONE_HOT.astype(int), 0, SL), {}, ["labels: must", "try labels.argmax(-1)"]),
        ((LOGITS, ONE_HOT > 0, 0, SL), {}, ["labels: must", "try labels.argmax(-1)"]),
        ((LOGITS, LABELS[:, None], 0, SL), {}, ["labels: must", "(6, 1)", "try labels[:, 0]"]),
        ((LOGITS, MASKED, 0, SL), {}, ["labels: must have no masked", "1 of them", "filled"]),
        ((LOGITS.astype(int), LABELS, 0, SL), {}, ["logits: must be floating, got int32(6, 10)"]),
        ((LOGITS > 0, LABELS, 0, SL), {}, ["logits: must be floating, got bool(6, 10)"]),
        ((LOGITS, LABELS, ("a", 1, 2), SL), {}, ["epoch: must be method.at(t)", "got 'a' for 0.0"]),
        ((LOGITS, LABELS, (0.0, None, 2), SL), {}, ["epoch: must be method.at(t)", "got None for"]),
        ((LOGITS, LABELS, 0, SL), {"weight": np.ones(9)}, ["weight", "10 classes", "(9,)"]),
        ((LOGITS, LABELS, 0, SL), {"weight": -np.ones(10)}, ["weight", "from 0 up", "-1.0"]),
        ((LOGITS, LABELS, 0, SL), {"weight": np.ones(10) > 0}, ["weight", "bool(10,)"]),
        ((LOGITS, LABELS, 0, SL), {"label_smoothing": 1.5}, ["label_smoothing", "[0, 1]"]),
        ((LOGITS, LABELS, 0, SL), {"per_class": 1}, ["per_class"]),
        ((LOGITS, SOFT, 0, SL), {"per_class": True}, ["per_class: must be False without integer"]),
        ((LOGITS, LABELS, 0, SL), {"base": "focal"}, ["base: must be a function", "'focal'"]),
        ((LOGITS, LABELS, 0, SL), {"rank_by": dict}, ["rank_by: must be a function"]),
        ((LOGITS, LABELS, 0, SL), {"base": halved}, ["base: must return", "(6,)", "(3,)"]),
        ((LOGITS, LABELS, 0, SL), {"base": column}, ["base: must return", "(6,)", "(6, 1)"]),
        ((LOGITS, LABELS, 0, SL), {"rank_by": column}, ["rank_by: must return", "(6, 1)"]),
        ((LOGITS, LABELS, 0, SL), {"base": lambda x, y: 0.0}, ["base: must return", "float32()"]),
        ((LOGITS, LABELS, 0, SL), {"base": lambda x, y: y}, ["base: must return", "int32(6,)"]),
        ((LOGITS, LABELS, 0, SL), {"base": lambda x, y: "l"}, ["base: must be", "got str;"]),
        ((LOGITS, LABELS + 5, 0, SL), {"base": halved}, ["labels", "labels[5] = 10;"]),
        (
            (LOGITS, LABELS, 0, SL),
            {"base": halved, "label_smoothing": 0.1},
            ["label_smoothing: must be left out with base"],
        ),
        (
            (LOGITS, LABELS, 0, SL),
            {"base": halved, "weight": np.ones(10)},
            ["weight: must be left out with base"],
        ),
        (
            (LOGITS, LABELS, 0, sigua.sigua_bc(PAIR)),
            {"rank_by": halved},
            ["NonNegative judges the corrected loss itself"],
        ),
        (
            (LOGITS, LABELS, 0, sigua.sigua_nf(0.5, 10)),
            {"label_smoothing": 0.1},
            ["label_smoothing: must be plain", "sigua_nf", "try rank_by=sigua_jax.cross_entropy"],
        ),
    ],
)
def test_what_is_refused_in_one_readable_sentence(arguments, options, words):
    for function in (sigua_loss, sigua_split):
        with pytest.raises(ValueError) as error:  # noqa: PT011  # the words are the match
            function(*arguments, **options)
        assert all(word in str(error.value) for word in words), error.value
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: repr(m)[:40])
@pytest.mark.parametrize("row", [0, 1.3, -0.1], ids=["zeros", "too much", "negative"])
def test_traced_probabilities_that_are_none_make_value_and_gradient_nan(method, row):
    """An all-zero row has a loss of 0, hence the smallest; `where` leaves it out."""
    labels = SOFT.copy()
    labels[3] = row * SOFT[3] if row >= 0 else [1.1, -0.1, *[0] * 8]
    step = jax.jit(jax.value_and_grad(sigua_loss), static_argnames="method")
    value, gradient = step(LOGITS, labels, 0, method=method)
    assert jnp.isnan(value)
    assert jnp.isnan(gradient[3]).all()
    there = LABELS != 3
    value, gradient = step(LOGITS, labels, 0, method=method, where=there)
    assert jnp.isfinite(value)
    assert jnp.isfinite(gradient).all()
    split = jax.jit(sigua_split, static_argnames="method")(LOGITS, labels, 0, method=method)
    assert not (split.good | split.bad)[3]


def test_a_traced_label_that_is_no_class_makes_the_gradient_nan_too():
    """Whoever looks at gradients alone sees it, and so does `optax.apply_if_finite`."""
    step = jax.jit(jax.grad(sigua_loss), static_argnames="method")
    for label in (-1, 10):
        gradient = step(LOGITS, np.where(LABELS == 3, label, LABELS), 0, method=SL)
        assert jnp.isnan(gradient[3]).all()
        assert jnp.isfinite(gradient[:3]).all()


def test_a_label_that_would_wrap_around_is_no_class():
    """Of int64: 2^32 + 3 is not class 3, in 64 bits either."""
    labels = np.where(LABELS == 3, 2**32 + 3, LABELS)
    with in_64_bits():
        with pytest.raises(ValueError, match=r"labels\[3\] = 4294967299;"):
            sigua_loss(LOGITS, labels, 0, SL)
        assert jnp.isnan(
            jax.jit(sigua_loss, static_argnames="method")(LOGITS, labels, 0, method=SL)
        )


def test_a_traced_state_or_weight_is_checked_by_its_shape():
    step = jax.jit(lambda weight: sigua_loss(LOGITS, LABELS, 0, SL, weight=weight))
    with pytest.raises(ValueError, match=r"weight: must be .* got float32\(3,\)"):
        step(np.ones(3, "float32"))


def test_every_correction_of_the_core_has_a_class_here():
    assert tuple(CORRECTIONS) == get_args(Correction)


@pytest.mark.parametrize("entry", [np.nan, np.inf, -1.0])
@pytest.mark.parametrize("row", [0, 1], ids=["sum", "number"])
def test_a_class_confidence_that_is_none_is_refused_or_makes_the_loss_nan(entry, row):
    """Rather than that every example is dropped, and the loss is 0."""
    state = np.ones((2, 10), "float32")
    state[row, 3] = entry
    for function in (sigua_loss, sigua_split):
        with pytest.raises(ValueError, match=rf"^confidence: .* got confidence\[{row}, 3\] = "):
            function(LOGITS, LABELS, 5, AG, confidence=state)
    with pytest.raises(ValueError, match=r"^confidence: .* try init_confidence\(10\)"):
        update_confidence(state, LOGITS, LABELS)
    given = {"method": AG, "confidence": state}
    step = jax.jit(jax.value_and_grad(sigua_loss), static_argnames="method")
    for epoch in (0, 5):
        value, gradient = step(LOGITS, LABELS, epoch, **given)
        assert jnp.isnan(value)
        assert jnp.isnan(gradient).all()
    split = jax.jit(sigua_split, static_argnames="method")(LOGITS, LABELS, 0, **given)
    assert not (split.good | split.bad).any()


@pytest.mark.parametrize("method", [SL, sigua.standard()], ids=["sl", "standard"])
@pytest.mark.parametrize("steps", [None, 7])
def test_a_traced_negative_epoch_makes_value_and_gradient_nan(method, steps):
    """Rather than count as epoch 0; one that is known is refused."""
    given = {"method": method, "steps_per_epoch": steps}
    names = ("method", "steps_per_epoch")
    step = jax.jit(jax.value_and_grad(sigua_loss), static_argnames=names)
    value, gradient = step(LOGITS, LABELS, -3, **given)
    assert jnp.isnan(value)
    assert jnp.isnan(gradient).all()
    split = jax.jit(sigua_split, static_argnames=names)(LOGITS, LABELS, -3, **given)
    assert not (split.good | split.bad).any()
    value, gradient = step(LOGITS, LABELS, 0, **given)
    assert value == pytest.approx(np.log(10))
    assert jnp.isfinite(gradient).all()
