"""What every backend must do. A backend inherits from `Contract`, says how it runs a step, is done.

Rules are written once, in the core, so that agreement between backends cannot see a wrong rule.
Golden vectors, made by an independent script, and masks by hand can.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import sigua
from sigua import TransitionMatrix, confidence, reference

GOLDEN = Path(__file__).parent / "golden"
INF, NAN = float("inf"), float("nan")
N, K = 60, 10
PAIR = TransitionMatrix.pair(0.4, K)
SYMMETRIC = TransitionMatrix.symmetric(0.5, K)
# A third of everything is called class 0: 1'T^-1 l can be negative.
ROWS = TransitionMatrix(2 / 3 * np.eye(K) + 1 / 3 * np.eye(K)[0])
# Even classes are called the next or class 0: columns of 1, 2 and 5 entries, kept sparse.
EVEN = np.eye(K) - 0.3 * np.eye(K) * (np.arange(K) % 2 == 0)
EVEN[::2] += 0.2 * np.eye(K)[1::2] + 0.1 * np.eye(K)[0]
ENTRIES = np.nonzero(EVEN)
SPARSE_T = TransitionMatrix.from_dict(
    {
        "data": EVEN[ENTRIES].tolist(),
        "indices": ENTRIES[1].tolist(),
        "indptr": [0, *np.cumsum((EVEN > 0).sum(1)).tolist()],
    }
)
# In its inverse 0 has the signs (+, -, -), and a column with a negative sum.
MIXED = TransitionMatrix([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.6, 0.2, 0.2]])
CORRECTED = [
    sigua.backward_correction,
    sigua.nn_backward_correction,
    lambda T: sigua.sigua_bc(T, gamma=0.5),
    lambda T: sigua.sigua_bc(T, gamma=0.5, over="batch"),
    sigua.forward_correction,
    lambda T: sigua.custom(sigua.NoiseFloor(9.0), 0.5, "forward", T),
]
METHODS = [
    sigua.standard(),
    sigua.self_teaching(0.5),
    sigua.sigua_sl(0.5, delta=0.2, gamma=0.25),
    sigua.sigua_sl(0.5, delta=0.4, gamma=0.25, variant="official"),
    sigua.sigua_sl(0.29, delta=sigua.Knots([(2, 0.1), (6, 0.3)]), gamma=lambda t: 0.1, warmup=3),
    sigua.sigua_sl(0.9, delta=0.05, gamma=0.25, warmup=4),
    sigua.sigua_sl(0.3, delta=0.8, gamma=0.25, warmup=4, variant="official"),
    sigua.sigua_ag(warmup=5, gamma=0.25),
    sigua.sigua_ag(warmup=5, gamma=0.25, by_class=False, threshold=-0.25),
    sigua.sigua_ag(warmup=5, gamma=0.25, power=0.5),
    *(make(T) for T in (PAIR, SYMMETRIC, ROWS) for make in CORRECTED),
    sigua.sigua_bc(ROWS, over="classes"),
    sigua.custom(sigua.SmallLoss(0.5, 0.25, 0), 0.25, "forward", PAIR),
    # Of the random mini-batches one floor is below the mean loss, the other above it.
    sigua.custom(sigua.NoiseFloor(sigua.noise_floor(0.5, K)), gamma=1.0),
    sigua.custom(sigua.NoiseFloor(9.0), gamma=0.5),
]
SPARSE = [make(SPARSE_T) for make in CORRECTED]


class Step(NamedTuple):
    """What one step did."""

    objective: float
    gradient: np.ndarray | None
    """With respect to the logits, (n, k); None where nothing is differentiated."""
    good: np.ndarray
    """bool, (n,)."""
    bad: np.ndarray


class Memory:
    """What agreement remembers of the mini-batches so far, in float64."""

    def __init__(self, k):
        self.sums, self.counts = np.zeros((2, k)), np.zeros((k, k))

    def given(self):
        """Return the arguments of `reference.step`."""
        return {"confidence": confidence.rates(self.sums), "counts": self.counts}

    def add(self, logits, labels):
        found = reference.prediction_counts(logits, labels, self.given()["confidence"])
        kept = (1 - 1 / confidence.COUNTED) ** found.sum(axis=1, keepdims=True)
        self.counts = kept * self.counts + found
        sums = reference.confidence_sums(logits, labels)
        self.sums = (1 - 1 / confidence.MEMORY) ** sums[1] * self.sums + sums

    def state(self, method):
        """Return it as `sigua.confidence` lays it out."""
        if not method.condition.power:
            return self.sums
        predicted, right = self.counts.sum(axis=1), np.diag(self.counts)
        return np.concatenate([self.sums, [predicted, right], self.counts.T])


def name(value):
    return repr(value)[:60]


def assert_same(found, want):
    """Assert that two selections have equal masks."""
    np.testing.assert_array_equal(found.good, want.good)
    np.testing.assert_array_equal(found.bad, want.bad)


def golden(file):
    return json.loads((GOLDEN / file).read_text())


def logits_with(losses):
    """Return two logits each, whose cross-entropy at label 0 is the loss; equal losses stay equal.

    log(1 + e^-z) = l for z = -log(e^l - 1).
    """
    losses = np.asarray(losses, dtype="float64")
    with np.errstate(divide="ignore"):
        logits = np.stack([-np.log(np.expm1(losses)), np.zeros(len(losses))], axis=1)
    logits[losses == 0] = [0, -INF]
    return logits


def samples():
    """Return logits and labels drawn from 40 examples, so that losses tie."""
    rng = np.random.default_rng(5)
    rows, labels = rng.normal(scale=2, size=(40, K)), rng.integers(0, K, 40)
    rows[::3, 0] -= 20  # a class without hope, so that class sums are of both signs
    rows[:20] += 3 * np.eye(K)[labels[:20]]  # half of the labels are what the model says
    drawn = rng.integers(0, 40, N)
    return rows[drawn].astype("float32"), labels[drawn]


# With every option of OPTIONS: one of each kind of rule, and of each form of T and correction.
COMPOSED = [
    sigua.sigua_sl(0.5, delta=0.2, gamma=0.25),
    sigua.sigua_sl(0.5, delta=0.4, gamma=0.25, variant="official"),
    sigua.sigua_ag(warmup=5, gamma=0.25),
    sigua.sigua_ag(warmup=5, gamma=0.25, power=0.5),
    sigua.sigua_bc(SYMMETRIC, gamma=0.5),
    sigua.sigua_bc(ROWS, gamma=0.5, over="batch"),
    sigua.sigua_bc(ROWS, gamma=0.5, over="classes"),
    sigua.forward_correction(SYMMETRIC),
    sigua.forward_correction(PAIR),
    sigua.forward_correction(ROWS),
]
OPTIONS = [
    ["soft"],
    ["weight"],
    ["smoothing"],
    ["soft", "weight", "smoothing"],
    ["where"],
    ["class groups"],
    ["where", "groups"],
    ["where", "weight", "class groups"],
]


def options_of(case, labels):
    """Return the labels and the keyword arguments of a case of OPTIONS."""
    rng, options = np.random.default_rng(8), {}
    if "weight" in case:
        options["weight"] = np.linspace(0.5, 2, K).astype("float32")
    if "smoothing" in case:
        options["smoothing"] = 0.25
    if "where" in case:
        options["where"] = rng.random(N) < 0.75
    if "groups" in case:
        options["groups"] = 7 * rng.integers(0, 5, N) - 9  # of any numbers, such as annotators
    if "class groups" in case:
        options["groups"] = "class"
    if "soft" in case:  # a third of the label's class goes to the next
        rows = np.eye(K)
        labels = (0.75 * rows[labels] + 0.25 * rows[(labels + 1) % K]).astype("float32")
    return labels, options


def composed(method, logits, labels, epoch, *, where=None, groups=None, weight=None, smoothing=0):
    """Return what a step with options is to do, in float64 and by rows, and its largest loss.

    Every loss is sum_j r_j l_j, for l = -log p, or -log T'p, and a row r of signed weights.
    """
    where = np.ones(N, dtype=bool) if where is None else where
    x = np.asarray(logits, dtype="float64")
    q = np.asarray(labels, float) if labels.ndim == 2 else np.eye(K)[labels]
    index = q.argmax(1)
    T = np.eye(K) if method.T is None else method.T.rows
    log_p = reference.log_softmax(x)
    p = np.exp(log_p)
    observed = p @ T if method.correction == "forward" else p
    back = np.linalg.inv(T) if method.correction == "backward" else np.eye(K)

    def rows(w):
        r = q @ back * w
        return (1 - smoothing) * r + smoothing / K * (q @ back).sum(1, keepdims=True) * w

    def losses(w):
        return -(rows(w) * np.log(observed)).sum(1)

    ones = np.ones(K)
    w = ones if weight is None else weight.astype(float)
    smoothed = (1 - smoothing) * -log_p + smoothing * -log_p.mean(1, keepdims=True)
    of = np.zeros(N, int) if groups is None else index if isinstance(groups, str) else groups
    power = getattr(method.condition, "power", 0)
    bounds = reference.bounds(np.zeros((K, K)), power) if power else None
    split = reference.split(
        method,
        losses(ones)[where],
        epoch,
        class_sums=(smoothed @ back.sum(0))[where],
        margins=reference.margins(x, index, None, bounds)[where],
        groups=of[where],
    )
    good, bad = np.zeros((2, N), dtype=bool)
    good[where], bad[where] = split
    shares = where * (w[index] if labels.ndim == 1 else 1.0)
    signs = 1.0 * good - method.at(epoch)[0] * bad
    if method.separate:
        signs = sum(
            sign * mask * shares.sum() / max((mask * shares).sum(), 1e-9)
            for sign, mask in ((1, good), (-method.at(epoch)[0], bad))
        )
    r, own = rows(w), losses(w)
    slopes = p * r.sum(1, keepdims=True) - r
    if method.correction == "forward":
        slopes = p * r.sum(1, keepdims=True) - p * ((r / observed) @ T.T)
    weights = signs / shares.sum()
    step = Step((weights * own).sum(), weights[:, None] * slopes, good, bad)
    return step, 2 * np.abs(own[where]).max()


class Contract:
    """The tests; `run` is the backend's."""

    eps = float(np.finfo(np.float32).eps)
    """Of the precision that `run` computes in."""
    every = 1
    """Which part of the golden vectors is run, where each costs a compilation."""
    sees_masks = True
    """Whether `run` knows the masks, or has to read them from the gradient's sign."""

    def run(self, method, logits, labels, epoch=0, **options) -> Step:
        """Do one training step from a fresh start, the logits being what is trained.

        Labels are class indices (n,), or class probabilities (n, k). Options are `where` and
        `trusted`, bool, (n,); `groups`, "class" or integers, (n,); `weight`, (k,); `smoothing`.
        """
        raise NotImplementedError

    def assert_step(self, step, want, method, n, largest):
        """Assert equal masks, and values within 8 roundings of the largest number in the sum.

        That is the largest loss, times the largest entry of T^-1; an example's gradient has it
        over n, or over the number of its kind where good and bad are averaged apart.
        """
        np.testing.assert_array_equal(step.good, want.good)
        if self.sees_masks:
            np.testing.assert_array_equal(step.bad, want.bad)
        scale = 8.0 if method.T is None else 8 * np.abs(method.T.inverse).max()
        if method.separate:
            kinds = [mask.sum() for mask in (want.good, want.bad) if mask.any()]
            scale *= n / min(kinds, default=n)
        atol = self.eps * scale * (1 + largest)
        np.testing.assert_allclose(step.objective, want.objective, rtol=0, atol=atol)
        if want.gradient is not None:
            self.assert_gradient(step, want.gradient, self.eps * scale / n)

    def assert_gradient(self, step, want, atol):
        if step.gradient is not None:
            np.testing.assert_allclose(step.gradient, want, rtol=0, atol=atol)

    @pytest.mark.filterwarnings("ignore:a mini-batch of", "ignore:epoch:UserWarning")
    def test_golden_vectors_of_small_loss(self):
        vectors = golden("small_loss.json")
        if not self.sees_masks:  # a loss of 0 has no gradient, nor has a bad one without gamma
            losses = [set(map(float, vector["losses"])) for vector in vectors]
            seen = zip(vectors, losses, strict=True)
            vectors = [v for v, values in seen if v["gamma"] and not values & {0.0, INF}]
        for vector in vectors[:: self.every]:
            names = ("noise_rate", "delta", "gamma", "warmup", "variant")
            method = sigua.sigua_sl(**{name: vector[name] for name in names})
            losses = np.array(vector["losses"], dtype=float)
            labels = np.zeros(len(losses), dtype=int)
            step = self.run(method, logits_with(losses), labels, vector["epoch"])
            masks = np.array(vector["good"]), np.array(vector["bad"])
            want = Step(vector["objective"], None, *masks)
            largest = np.max(losses, initial=0, where=losses < INF)
            self.assert_step(step, want, method, len(losses), largest)

    @pytest.mark.filterwarnings("ignore:over='classes':UserWarning")  # the vectors hold such a T
    def test_golden_vectors_of_backward_correction(self):
        vectors = golden("backward.json")
        fires = [v for v in vectors if v["over"] == "classes" and not all(v["good"])]
        for vector in vectors[:: self.every] + fires:
            T = TransitionMatrix(vector["transition"])
            method = sigua.sigua_bc(T, vector["gamma"], vector["over"])
            step = self.run(method, vector["logits"], vector["labels"])
            good = np.array(vector["good"])
            want = Step(vector["objective"], np.array(vector["gradient"]), good, ~good)
            largest = np.abs(vector["corrected"]).max()
            self.assert_step(step, want, method, len(good), largest)

    @pytest.mark.parametrize("epoch", [0, 4, 10])
    @pytest.mark.parametrize("method", [*METHODS, *SPARSE], ids=name)
    def test_equals_the_reference(self, method, epoch):
        """Masks, value and gradient, with ties, of every method early, in between, and late."""
        logits, labels = samples()
        spec = reference.step(method, logits, labels, epoch)
        want = Step(spec.objective, spec.gradient, spec.split.good, spec.split.bad)
        step = self.run(method, logits, labels, epoch)
        self.assert_step(step, want, method, N, np.abs(spec.losses).max())

    @pytest.mark.parametrize("case", OPTIONS, ids=lambda case: "-".join(case))
    @pytest.mark.parametrize("method", COMPOSED, ids=name)
    def test_options_compose(self, method, case):
        """Soft labels, weights, smoothing, groups and who takes part, with every form of T."""
        if "groups" in " ".join(case) and isinstance(method.condition, sigua.Agreement):
            return  # which judges each example alone, and refuses groups
        logits, labels = samples()
        labels, options = options_of(case, labels)
        want, largest = composed(method, logits, labels, 5, **options)
        step = self.run(method, logits, labels, 5, **options)
        self.assert_step(step, want, method, N / 2, largest)

    def test_marks_of_the_user(self):
        """Of losses 1, 2, 4 the second is marked as bad: (1 - 2 / 2 + 4) / 3."""
        trusted = np.array([True, False, True])
        method = sigua.custom(sigua.Known(), gamma=0.5)
        step = self.run(method, logits_with([1, 2, 4]), np.zeros(3, dtype=int), trusted=trusted)
        assert step.good.tolist() == [True, False, True]
        assert step.bad.tolist() == [False, True, False]
        assert step.objective == pytest.approx(4 / 3, rel=32 * self.eps)

    def test_masks_by_hand(self):
        """Losses 1 to 8, rate 1/2, delta 1/4: floor(4) + 1 = 5 are good, the next 2 are bad."""
        method = sigua.sigua_sl(0.5, delta=0.25, gamma=0.5, warmup=0)
        losses = np.array([8, 1, 5, 2, 7, 3, 6, 4])
        step = self.run(method, logits_with(losses), np.zeros(8, dtype=int))
        assert step.good.tolist() == [False, True, True, True, False, True, False, True]
        assert step.bad.tolist() == [False, False, False, False, True, False, True, False]
        assert step.objective == pytest.approx((15 - 0.5 * 13) / 8, rel=32 * self.eps)

    def test_agreement_by_hand(self):
        """Probabilities 3/4, 1/2, 1/5 at the label have margins 1/2, 0, -3/5: the first is good."""
        logits = np.log([[3, 1], [1, 1], [1, 4]])
        method = sigua.sigua_ag(warmup=0, gamma=0.5, by_class=False)
        step = self.run(method, logits, np.zeros(3, dtype=int))
        assert step.good.tolist() == [True, False, False]
        assert step.bad.tolist() == [False, True, True]
        want = (np.log(4 / 3) - 0.5 * (np.log(2) + np.log(5))) / 3
        assert step.objective == pytest.approx(want, rel=32 * self.eps)

    @pytest.mark.filterwarnings("ignore:over='classes'")
    @pytest.mark.parametrize(
        ("T", "over"),
        [
            (TransitionMatrix.symmetric(0.3, 3), "label"),
            (TransitionMatrix.pair(0.3, 3), "label"),
            *((MIXED, over) for over in ("label", "classes", "batch")),
        ],
        ids=["symmetric", "pair", "dense", "classes", "batch"],
    )
    def test_an_infinite_corrected_loss_says_nothing(self, T, over):
        """Neither good nor bad, no gradient; the others are as they are alone, over eight.

        For the classes 1 and 2 the sum is -inf, for 0 +inf, and for both signs it is NaN.
        """
        logits = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
        labels = np.array([0, 0, 0, 0, 0, 1, 2, 0])
        for i, infinite in enumerate(([1], [2], [1, 2], [0], [0, 2])):
            logits[i, infinite] = -INF
        method = sigua.sigua_bc(T, gamma=0.5, over=over)
        alone = reference.step(method, logits[5:], labels[5:])
        step = self.run(method, logits, labels)
        good, bad = ([False] * 5 + mask.tolist() for mask in alone.split)
        want = Step(alone.objective * 3 / 8, None, np.array(good), np.array(bad))
        self.assert_step(step, want, method, 8, np.abs(alone.losses).max())
        slopes = np.concatenate([np.zeros((5, 3)), alone.gradient * 3 / 8])
        self.assert_gradient(step, slopes, self.eps * np.abs(T.inverse).max())
        assert step.gradient is None or (step.gradient[:5] == 0).all()

    def test_a_coefficient_of_0_drops_an_infinite_loss(self):
        """T^-1 of blocks: 1.5 ln 2 - .5 ln 2 for p = (1/2, 1/2, 0, 0), among losses of ln 4."""
        T = [[0.8, 0.2, 0, 0], [0.4, 0.6, 0, 0], [0, 0, 0.7, 0.3], [0, 0, 0.3, 0.7]]
        logits = np.zeros((4, 4))
        logits[0, 2:] = -INF
        method = sigua.backward_correction(TransitionMatrix(T))
        step = self.run(method, logits, np.zeros(4, dtype=int))
        assert step.objective == pytest.approx((np.log(2) + 3 * np.log(4)) / 4, rel=8 * self.eps)
        slopes = [[-1, 1, 0, 0], *[[-1.25, 0.75, 0.25, 0.25]] * 3]
        self.assert_gradient(step, np.array(slopes) / 4, self.eps)
        assert step.good.all()

    @pytest.mark.parametrize(
        ("T", "masked"),
        [(TransitionMatrix.pair(0.3, 3), m) for m in (False, True)]
        + [(TransitionMatrix(np.eye(3)), False)],
        ids=["label", "class", "no noise"],
    )
    def test_forward_correction_is_exact_where_p_underflows(self, T, masked):
        """Logits (a, 0, 0) at label 2, to which 0 does not lead: a + log(1 + 2 e^-a), and climbs.

        Or the label's class is impossible: of (0, 0, -a) T'p is .3 p_1, that is .3 / 2.
        """
        logits, large = np.zeros((3, 3)), np.array([10.0, 100.0, 800.0])
        logits[:, 2 if masked else 0] = [-1e4, -1e9, -INF] if masked else large
        losses = -np.log([0.15] * 3) if masked else large + np.log1p(2 * np.exp(-large))
        step = self.run(sigua.forward_correction(T), logits, np.full(3, 2))
        assert step.objective == pytest.approx(losses.mean(), rel=8 * self.eps)
        slopes = [0.5, -0.5, 0] if masked else [1, *-T.rows[1:, 2]]
        self.assert_gradient(step, np.array([slopes] * 3) / 3, 1e-4)

    @pytest.mark.filterwarnings("ignore:a mini-batch of", "ignore:epoch:UserWarning")
    @pytest.mark.parametrize("method", METHODS[:10], ids=name)
    def test_a_mini_batch_of_infinite_losses_is_told(self, method):
        """Where nothing is finite the objective is +inf, as the plain mean is, and not 0."""
        logits = np.array([[-INF, 1.0, 2.0], [0.0, -INF, 0.0]], dtype="float32")
        step = self.run(method, logits, np.array([0, 1]), 10)
        assert step.objective == INF

    @pytest.mark.parametrize("logit", [100.0, 10_000.0])
    def test_large_logits_are_exact(self, logit):
        """Of (a, 0) and (0, a) at label 0 the losses are 0 and a: nothing overflows."""
        logits = np.array([[logit, 0], [0, logit]])
        step = self.run(sigua.standard(), logits, np.zeros(2, dtype=int))
        assert step.objective == pytest.approx(logit / 2, rel=8 * self.eps)
        self.assert_gradient(step, [[0, 0], [-0.5, 0.5]], self.eps)

    @pytest.mark.parametrize("method", [METHODS[2], METHODS[7], METHODS[12]], ids=name)
    def test_nan_reaches_the_user(self, method):
        logits, labels = samples()
        logits[3, 1] = NAN
        step = self.run(method, logits, labels, 10)
        assert np.isnan(step.objective)
        if self.sees_masks:
            assert not step.good[3]
            assert not step.bad[3]

    @pytest.mark.parametrize("T", [None, TransitionMatrix.pair(0.123, K)], ids=["no T", "T"])
    def test_an_unknown_correction_is_refused(self, T):
        """As if the core had got another one: it must not be mistaken for one of the others."""
        # Methods that nothing else uses, because JAX traces equal ones once.
        method = sigua.self_teaching(0.123) if T is None else sigua.forward_correction(T)
        object.__setattr__(method, "correction", "sideways")
        with pytest.raises(ValueError, match=r"^correction: must be one of 'none', .*'sideways';"):
            self.run(method, *samples())

    @pytest.mark.filterwarnings("ignore:a mini-batch of", "ignore:epoch:UserWarning")
    def test_one_example(self):
        """Alone it is good whatever its loss: ln 4 at p = 1/4."""
        method = sigua.sigua_sl(0.5, delta=0.25, gamma=0.5, warmup=0)
        step = self.run(method, np.log([[1.0, 3.0]]), np.array([0]))
        assert step.good.tolist() == [True]
        assert step.objective == pytest.approx(np.log(4), rel=8 * self.eps)
        self.assert_gradient(step, [[-0.75, 0.75]], 8 * self.eps)
