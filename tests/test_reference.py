"""The executable spec against hand-worked arrays, golden vectors and finite differences."""

import numpy as np
import pytest
from contract import golden

import sigua
from sigua import TransitionMatrix, reference

GOLDEN = golden("backward.json")
LN, NAN = np.log, float("nan")
T = TransitionMatrix([[0.8, 0.2], [0.4, 0.6]])


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda v: f"{v['name']}-{v['over']}")
def test_golden_vectors_of_corrected_losses(vector):
    """Their masks, objectives and gradients are in the contract."""
    matrix = TransitionMatrix(vector["transition"])
    corrected = reference.backward_corrected(vector["logits"], matrix)
    np.testing.assert_allclose(corrected, vector["corrected"], rtol=1e-12, atol=1e-12)


def test_cross_entropy_by_hand():
    """Logits (ln 3, 0) are p = (3/4, 1/4), whatever is added to them."""
    logits = [[LN(3), 0.0], [LN(3) + 50, 50.0]]
    expected = [[LN(4 / 3), LN(4)]] * 2
    np.testing.assert_allclose(reference.every_class(logits), expected, rtol=1e-13)
    np.testing.assert_allclose(reference.log_softmax(logits), np.negative(expected), rtol=1e-13)
    np.testing.assert_allclose(reference.cross_entropy(logits, [1, 0]), [LN(4), LN(4 / 3)], 1e-13)
    assert reference.every_class([[1000.0, 0.0]]).tolist() == [[0.0, 1000.0]]


def test_corrected_losses_by_hand():
    """With p = (3/4, 1/4), T^-1 = [1.5 -.5; -1 2]; T'p = (.75 * .8 + .25 * .4, .3) = (.7, .3)."""
    logits, first, second = [[LN(3), 0.0]], LN(4 / 3), LN(4)
    backward = [[1.5 * first - 0.5 * second, -first + 2 * second]]
    np.testing.assert_allclose(reference.backward_corrected(logits, T), backward, rtol=1e-14)
    forward = [[-LN(0.7), -LN(0.3)]]
    np.testing.assert_allclose(reference.forward_corrected(logits, T), forward, rtol=1e-14)


def test_the_corrected_loss_is_unbiased():
    """Its mean over the observed labels of a class is the plain loss: T (T^-1 l) = l (Eq. 9)."""
    logits = np.random.default_rng(0).normal(0, 3, (50, 10))
    for matrix in (TransitionMatrix.pair(0.45, 10), TransitionMatrix.symmetric(0.5, 10)):
        mean = reference.backward_corrected(logits, matrix) @ matrix.rows.T
        np.testing.assert_allclose(mean, reference.every_class(logits), rtol=1e-12, atol=1e-12)


PAIR, FIRES = (
    TransitionMatrix.pair(0.3, 3),
    TransitionMatrix([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]]),
)
DIFFERENTIABLE = {
    "standard": sigua.standard(),
    "sigua_sl": sigua.sigua_sl(0.5, delta=0.25, gamma=0.5),
    "sigua_sl ramp": sigua.sigua_sl(0.9, sigua.Knots([(0, 0), (10, 0.5)]), lambda t: t / 20),
    "sigua_sl official": sigua.sigua_sl(0.5, delta=0.5, gamma=0.5, variant="official"),
    "backward": sigua.backward_correction(FIRES),
    "forward": sigua.forward_correction(PAIR),
    "nn_backward": sigua.nn_backward_correction(PAIR),
    "sigua_bc": sigua.sigua_bc(PAIR, gamma=0.5),
    "sigua_bc classes": sigua.sigua_bc(FIRES, gamma=0.5, over="classes"),
    "sigua_bc batch": sigua.sigua_bc(FIRES, gamma=0.5, over="batch"),
    "floor on forward": sigua.custom(sigua.NoiseFloor(2.0), 0.5, "forward", FIRES),
    "known": sigua.custom(sigua.Known(), gamma=0.25),
    "small loss on forward": sigua.custom(sigua.SmallLoss(0.5, 0.25), 0.5, "forward", FIRES),
}


def slope(value, at, h=1e-3):
    """Return the central difference of fourth order: its error is about h^4 and eps / h."""
    near = value(at + h) - value(at - h)
    far = value(at + 2 * h) - value(at - 2 * h)
    return (8 * near - far) / (12 * h)


@pytest.mark.parametrize("epoch", [0, 12.5])
@pytest.mark.parametrize("method", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE)
def test_the_closed_form_gradient_equals_finite_differences(method, epoch):
    """Of the objective, in each logit; the masks stay what they are in so small a neighbourhood."""
    rng = np.random.default_rng(3)
    logits, labels = rng.normal(0, 2, (8, 3)), rng.integers(0, 3, 8)
    trusted = rng.random(8) < 0.5
    step = reference.step(method, logits, labels, epoch, trusted=trusted)

    def value(changed, i, j):
        moved = logits.copy()
        moved[i, j] = changed
        there = reference.step(method, moved, labels, epoch, trusted=trusted)
        assert np.array_equal(there.split, step.split)
        return there.objective

    numeric = [
        [slope(lambda x, i=i, j=j: value(x, i, j), logits[i, j]) for j in range(3)]
        for i in range(8)
    ]
    np.testing.assert_allclose(step.gradient, numeric, rtol=0, atol=1e-11)


@pytest.mark.parametrize("method", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE)
def test_an_empty_batch_is_a_step_of_nothing(method):
    step = reference.step(method, np.zeros((0, 3)), np.zeros(0, int), trusted=np.zeros(0, bool))
    assert step.objective == 0.0
    assert step.gradient.shape == (0, 3)
    assert [mask.shape for mask in step.split] == [(0,), (0,)]


def test_what_a_rule_may_ask_about_a_batch():
    batch = reference.Batch(np.array([2.0, -1.0, np.inf, 2.0]))
    assert [batch.smallest(count) for count in range(7)] == [-np.inf, -1, 2, 2, *[np.inf] * 3]
    assert batch.mean() == 1.0  # of three
    assert batch.size == 4
    assert batch.trusted is None


def test_signed_weights_by_hand():
    """Good 1, bad -gamma, neither 0; apart: n / 2 good, -gamma n / 1 bad; good wins over bad."""
    split = sigua.Split(np.array([1, 0, 1, 0], bool), np.array([1, 1, 0, 0], bool))
    assert sigua.signed_weights(split, 0.25).tolist() == [1, -0.25, 1, 0]
    assert sigua.signed_weights(split, 0.25, separate=True).tolist() == [2, -1, 2, 0]
    nobody = sigua.Split(np.zeros(2, bool), np.zeros(2, bool))
    assert sigua.signed_weights(nobody, 0.25, separate=True).tolist() == [0, 0]


def test_objective_by_hand():
    weights = np.array([1.0, -0.5, 0.0])
    assert sigua.objective([3.0, 2.0, 9.0], weights) == 2 / 3
    assert sigua.objective([3.0, 2.0, 9.0], weights, denominator=4) == 0.5
    assert sigua.objective([3.0, np.inf, np.inf], weights) == 1.0
    assert np.isnan(sigua.objective([3.0, 2.0, np.nan], weights))
    assert sigua.objective([], []) == 0.0


SPLIT = sigua.Split(np.array([True, False]), np.array([False, True]))
KNOWN, INTEGERS = sigua.custom(sigua.Known()), sigua.Split([1, 0], [0, 1])
ALL, BACKWARD = sigua.standard(), sigua.backward_correction(PAIR)
LOGITS = np.zeros((2, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reference.step(ALL, [0.0, 1.0], [0]), r"logits: must have .* try logits\[None\]"),
        (lambda: reference.step(ALL, LOGITS, [0, 2]), r"labels: .*\[0, 2\), got labels\[1\] = 2;"),
        (lambda: reference.step(ALL, LOGITS, [1]), r"labels: .*\(2,\), .*got shape \(1,\);"),
        (lambda: reference.step(ALL, LOGITS, [0, 1], groups=[0]), r"groups: .*\(2,\), .*\(1,\);"),
        (lambda: reference.step(BACKWARD, LOGITS, [0, 1]), "T: .*3 rows and logits of 2"),
        (
            lambda: reference.step(sigua.sigua_ag(), LOGITS, [0, 1], confidence=np.ones((2, 2))),
            r"confidence: .*\(2,\), got shape \(2, 2\); try",  # the state, which would broadcast
        ),
        (lambda: reference.split(ALL, [[0.5]]), r"losses: must have shape \(n,\)"),
        (lambda: reference.split(ALL, [1.0], class_sums=[1, 2]), r"class_sums: .*1,.* shape .2,.;"),
        (lambda: reference.split(KNOWN, [1.0], trusted=[True, False]), r"trusted: .*\(2,\);"),
        (lambda: reference.split(KNOWN, [1.0], trusted=[1]), "trusted: must be bool, .*int64"),
        (lambda: sigua.objective([1.0, 2.0], [1.0]), r"weights: .* \(2,\), got shape \(1,\);"),
        (lambda: sigua.objective(["a"], [1.0]), "losses: must be an array of numbers"),
        (lambda: sigua.objective([1.0], [1.0], 0), "denominator: must be above 0, got 0; try n"),
        (lambda: sigua.signed_weights(SPLIT, NAN), "gamma: must be a number in"),
        (lambda: sigua.signed_weights(INTEGERS, 0.1), "split: must be .* got int64 and int64;"),
    ],
)
def test_shapes_that_do_not_belong_together_get_one_sentence(call, message):
    with pytest.raises(ValueError, match=f"^{message}") as error:
        call()
    assert "\n" not in str(error.value)
