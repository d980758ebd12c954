"""Who is good and who is bad: the paper's equations, written out again and by hand."""

import re
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sigua

NAN, INF = float("nan"), float("inf")
T = sigua.TransitionMatrix([[0.8, 0.2], [0.4, 0.6]])
FIRES = sigua.TransitionMatrix([[0.9, 0.1], [0.6, 0.4]])


def measure(method, losses, epoch=10, **batch):
    """Return the masks as lists, and the objective (Eq. 3)."""
    chosen = sigua.reference.split(method, losses, epoch, **batch)
    weights = sigua.signed_weights(chosen, method.at(epoch)[0], separate=method.separate)
    assert chosen.good.dtype == chosen.bad.dtype == bool
    return chosen.good.tolist(), chosen.bad.tolist(), sigua.objective(losses, weights)


def literal_paper(losses, rho, delta):
    """Eqs. 5 and 6 as they are printed: two loops, and a count for each example."""
    n, good, bad = len(losses), [], []
    for mine in losses:
        smaller = sum(mine > other for other in losses)
        good.append(smaller <= n * rho)
        bad.append(not good[-1] and smaller <= n * rho + n * delta)
    return good, bad


def literal_official(losses, rho, delta):
    """The authors' counts: floor(n rho) kept, then floor(delta dropped); ties stand together."""
    n, good, bad = len(losses), [], []
    kept = n * rho // 1
    reached = kept + delta * (n - kept) // 1
    for mine in losses:
        smaller = sum(mine > other for other in losses)
        good.append(smaller < kept)
        bad.append(not good[-1] and smaller < reached)
    return good, bad


LITERAL = {"paper": literal_paper, "official": literal_official}
# every weak order of up to five losses: 0 is the smallest, and no value is left out
PATTERNS = [p for n in range(1, 6) for p in product(range(n), repeat=n) if len({*p}) == max(p) + 1]
FIFTHS = [Fraction(i, 5) for i in range(4)] + [Fraction(i, 12) for i in (3, 4, 6)]
NOISE_RATES = sorted([*FIFTHS, *map(Fraction, ("3/10", "2/3", "3/4", "9/10"))])
DELTAS = sorted([*FIFTHS, Fraction(1, 10), Fraction(1)])


@pytest.mark.parametrize("variant", LITERAL)
def test_every_pattern_of_up_to_five_losses_agrees_with_the_literal_equations(variant):
    """Every order with every tie, for 20 pairs of rates: 12,660 mini-batches."""
    for eps, delta in list(product(NOISE_RATES, DELTAS))[::5]:
        method = sigua.sigua_sl(float(eps), float(delta), warmup=0, variant=variant)
        for pattern in PATTERNS:
            good, bad = sigua.reference.split(method, pattern)
            expected = LITERAL[variant](pattern, 1 - eps, delta)
            assert (good.tolist(), bad.tolist()) == expected, (pattern, eps, delta)


# Losses in eighths and gamma in 64ths, so that every sum is exact in floating point.
losses_ = st.lists(st.integers(-8, 80), min_size=1, max_size=24).map(lambda x: np.array(x) / 8)
hundredths = st.integers(0, 99).map(lambda x: x / 100)
variants = st.sampled_from(["paper", "official"])
keywords = {
    "noise_rate": hundredths,
    "delta": hundredths,
    "gamma": st.integers(0, 64).map(lambda x: x / 64),
    "warmup": st.sampled_from([0, 4, 10]),
}
methods = st.builds(sigua.sigua_sl, **keywords, variant=variants)
epochs = st.sampled_from([0, 0.5, 1, 3, 10, 12])
quick = settings(deadline=None, database=None, max_examples=200)


@given(
    methods,
    losses_,
    epochs,
    st.lists(st.integers(1, 99), min_size=100, max_size=100),
    st.randoms(use_true_random=False),
)
@quick
def test_masks_are_disjoint_and_depend_on_the_order_of_the_losses_alone(
    method, losses, epoch, gaps, random
):
    """Not on their values, which an arbitrary increasing map renames, nor on their places."""
    good, bad = sigua.reference.split(method, losses, epoch)
    assert not (good & bad).any()
    order = random.sample(range(len(losses)), len(losses))
    renamed = np.cumsum(gaps)[np.unique(losses, return_inverse=True)[1]]
    after = sigua.reference.split(method, renamed[order], epoch)
    assert np.array_equal(after.good, good[order])
    assert np.array_equal(after.bad, bad[order])


@given(methods, losses_)
@quick
def test_at_rho_one_it_is_the_plain_mean(method, losses):
    """Before any warm-up, and for a noise rate of 0, whatever delta and gamma are."""
    mean = float(sum(map(Fraction, losses)) / len(losses))
    if method.warmup:
        assert measure(method, losses, epoch=0)[2] == mean
    clean = sigua.sigua_sl(0.0, method.delta, method.gamma, variant=method.variant)
    assert measure(clean, losses)[2] == mean


@pytest.mark.parametrize("variant", LITERAL)
@pytest.mark.parametrize(("eps", "delta"), [(0.1, 0.0), (0.5, 0.05), (0.5, 0.5), (0.8, 0.3)])
def test_a_batch_is_too_small_if_nobody_can_be_kept_dropped_or_bad(variant, eps, delta):
    """Once warm and without ties, which is what `too_small` tells in advance."""
    condition = sigua.SmallLoss(eps, delta, variant=variant)
    for size in range(1, 60):
        good, bad = sigua.reference.split(sigua.custom(condition), np.arange(size), epoch=10)
        useless = good.all() or not good.any() or (delta > 0 and not bad.any())
        assert condition.too_small(size) == useless, size


def test_a_batch_is_judged_too_small_by_the_settled_rates():
    """Delta rises from 0 at epoch 10 to .2 at 20, long after the warm-up; without noise, never."""
    late = sigua.SmallLoss(0.5, sigua.Knots([(10, 0.0), (20, 0.2)]), warmup=5)
    assert not late.too_small(1000)
    assert late.too_small(4)  # of 4, floor(2) + 1 are good and floor(2.8) + 1 within reach
    assert not sigua.SmallLoss(0.0).too_small(1)


class Rule:
    """A rule of one's own, from two functions."""

    def __init__(self, split=lambda batch, *numbers: (batch.losses < 1, batch.losses >= 1), at=()):
        self._split, self._at = split, at

    def at(self, epoch):
        return self._at(epoch) if callable(self._at) else self._at

    def split(self, batch, *numbers):
        return self._split(batch, *numbers)


@pytest.mark.parametrize("epoch", [0, 10])
@pytest.mark.parametrize(
    "method",
    [
        sigua.standard(),
        sigua.sigua_sl(0.75, 0.25, gamma=0.5),
        sigua.sigua_sl(0.75, 0.25, gamma=0.5, variant="official"),
        *(sigua.sigua_bc(FIRES, over=over) for over in ("label", "classes", "batch")),
        sigua.custom(sigua.Known(), gamma=0.5),
        sigua.custom(Rule(lambda batch: (True, True)), gamma=0.5),
    ],
    ids=lambda method: repr(method)[:40],
)
def test_nan_and_inf_are_neither_and_only_nan_reaches_the_objective(method, epoch):
    losses, trusted = np.array([1.0, 2.0, INF, 3.0, NAN]), np.array([1, 1, 0, 0, 1], bool)
    for n, finite in ((5, False), (4, True)):
        given_with = {"trusted": trusted[:n], "class_sums": losses[:n]}
        good, bad, objective = measure(method, losses[:n], epoch, **given_with)
        assert not any(good[4:] + bad[4:])
        assert np.isfinite(objective) == finite
    assert not good[2]
    assert not bad[2]


def test_inf_and_nan_take_a_rank_and_count_in_n():
    """Of 6 with rho = delta = 1/4: good with at most 1 smaller loss, bad with at most 3."""
    method = sigua.sigua_sl(0.75, 0.25, gamma=0.5)
    good, bad, _ = measure(method, [4.0, NAN, 1.0, INF, 3.0, 2.0])
    assert good == [False, False, True, False, False, True]
    assert bad == [True, False, False, False, True, False]
    assert measure(method, [4.0, INF, 1.0, INF, 3.0, 2.0])[2] == (1 + 2 - 0.5 * (3 + 4)) / 6


@pytest.mark.parametrize(
    ("over", "losses", "good", "bad"),
    [
        ("label", [-1.0, 0.0, -0.0, 3.0], [0, 1, 1, 1], [1, 0, 0, 0]),
        ("batch", [-3.0, 1.0], [0, 0], [1, 1]),  # mean -1
        ("batch", [-1.0, 3.0], [1, 1], [0, 0]),  # mean 1
        ("batch", [-2.0, 2.0], [1, 1], [0, 0]),  # mean 0 is not negative
        ("batch", [-1.0, INF], [0, 0], [1, 0]),  # +inf says nothing: mean -1
        ("batch", [INF, 1.0], [0, 1], [0, 0]),
        ("batch", [NAN, -1.0], [0, 0], [0, 0]),  # no mean, no decision
    ],
)
def test_non_negative_tests_each_loss_or_the_mean_and_zero_is_good(over, losses, good, bad):
    assert measure(sigua.sigua_bc(T, over=over), losses)[:2] == (good, bad)


def test_non_negative_classes_by_hand():
    """T = [.9 .1; .6 .4] has T^-1 = [4/3 -1/3; -2 3], column sums (-2/3, 8/3).

    p = (1/4, 3/4): l = (ln 4, ln 4/3): sum -2/3 * 1.3863 + 8/3 * .2877 = -.1570, bad, though the
    corrected loss at label 0 is 4/3 * 1.3863 - 1/3 * .2877 = 1.7525 > 0: "label" says good.
    p = (3/4, 1/4): sum -2/3 * .2877 + 8/3 * 1.3863 = 3.5050, good.
    """
    logits, labels = [[0.0, np.log(3)], [np.log(3), 0.0]], [0, 0]
    classes = sigua.reference.step(sigua.sigua_bc(FIRES, over="classes"), logits, labels)
    assert classes.split.good.tolist() == [False, True]
    assert classes.split.bad.tolist() == [True, False]
    assert classes.losses[0] == pytest.approx(4 / 3 * np.log(4) - np.log(4 / 3) / 3, rel=1e-14)
    label = sigua.reference.step(sigua.sigua_bc(FIRES), logits, labels)
    assert label.split.good.tolist()[0]


def test_known_takes_a_split_of_two_masks_where_good_wins_or_asks_for_marks():
    """Who is neither is left out; groups, which Known has no use for, change nothing."""
    good, bad = np.array([True, False, False, False]), np.array([True, True, True, False])
    both, method = sigua.Split(good, bad), sigua.custom(sigua.Known(), gamma=0.5)
    for groups in (None, [0, 1, 0, 1]):
        found = measure(method, [1.0, 2.0, INF, 3.0], trusted=both, groups=groups)
        assert found == (good.tolist(), [False, True, False, False], (1 - 0.5 * 2) / 4)
    step = sigua.reference.step(method, np.zeros((4, 2)), [0] * 4, trusted=both)
    assert step.objective == pytest.approx((np.log(2) - 0.5 * 2 * np.log(2)) / 4, abs=1e-15)
    with pytest.raises(ValueError, match=r"trusted: .*boolean per example.*got None.*mask"):
        sigua.reference.split(method, [1.0])


def test_a_condition_of_ones_own_needs_two_methods_and_no_registration():
    """Here the smallest are good, one more in each epoch; and one answer may do for all."""

    def split(batch, count):
        good = batch.losses <= batch.smallest(count)
        return sigua.Split(good, ~good)

    method = sigua.custom(Rule(split, lambda epoch: (1 + int(epoch),)), gamma=1.0)
    assert method.at(2) == (1.0, 3)
    losses = [5.0, 1.0, 3.0, 2.0]
    for epoch, good in {0: [0, 1, 0, 0], 1.5: [0, 1, 0, 1], 2: [0, 1, 1, 1], 9: [1] * 4}.items():
        assert measure(method, losses, epoch)[:2] == (good, [not one for one in good])
    for everyone in (True, np.True_, np.array(True), np.ones(1, bool)):
        rule = sigua.custom(Rule(lambda batch, all_=everyone: (all_, ~batch.losses.any())))
        assert sigua.reference.split(rule, [1, 2]).good.all()


GOOD = r"condition: must return (boolean masks, like .*|masks of shape \(3,\)), got good "
WRONG_SPLITS = {
    GOOD + "as a ndarray of float64": lambda b: (1.0 * (b.losses < 1), b.losses >= 1),
    GOOD + "as a ndarray of int64": lambda b: (b.losses.argsort(), b.losses >= 1),
    GOOD + "as a list": lambda b: ([True, False, True], b.losses >= 1),
    GOOD + r"of shape \(2,\)": lambda b: (b.losses[:2] < 1, b.losses >= 1),
    GOOD + r"of shape \(3, 1\)": lambda b: (b.losses[:, None] < 1, b.losses >= 1),
    "condition: split must return good and bad, got ndarray": lambda b: b.losses < 1,
    "class_sums: must come from backward correction, got ": lambda b: (b.class_sums() > 0,) * 2,
}


@pytest.mark.parametrize(("message", "split"), WRONG_SPLITS.items(), ids=WRONG_SPLITS)
def test_what_a_rule_of_ones_own_returns_must_be_masks_of_the_batch(message, split):
    """Good and bad, and of what this method has: class sums need backward correction."""
    with pytest.raises(ValueError, match=f"^{message}.*; try "):
        sigua.reference.split(sigua.custom(Rule(split)), [0.5, 1.0, 2.0])


WRONG_AT = {
    "no NaN, got (nan,) at epoch 0": (float("nan"),),
    "no NaN, got (nan,) at epoch 2": lambda epoch: (1.0 if epoch < 2 else float("nan"),),
    "as many numbers in each epoch, got () at epoch 2, and 1": lambda t: (1.0,) if t < 2 else (),
    "a tuple of numbers, got [1] at epoch 2": lambda t: (1.0,) if t < 2 else [1],
}


@pytest.mark.parametrize(("got", "at"), WRONG_AT.items(), ids=WRONG_AT)
def test_a_rule_of_ones_own_must_return_the_same_numbers_in_each_epoch(got, at):
    """In `at`, and in `at_each`, which makes the tables where steps are counted."""
    match = "^condition: must have an at that returns " + re.escape(got)
    for ask in (lambda method: method.at(2), lambda method: method.at_each(np.array([0.0, 2.0]))):
        with pytest.raises(ValueError, match=match):
            ask(sigua.custom(Rule(at=at)))


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"at": lambda: ()}, "must have an at that takes the epoch"),
        ({"horizon": "never"}, "must have an epoch as its horizon"),
        ({"at": 5}, "must be an object with the methods at and split"),
        ({"split": lambda batch: None}, "must have a split that takes the batch and .*, 2 of them"),
    ],
)
def test_the_methods_of_a_rule_of_ones_own_must_take_what_they_are_given(methods, message):
    rule = Rule(at=(1, 2))
    vars(rule).update(methods)
    with pytest.raises(ValueError, match=f"^condition: {message}, got .*; try "):
        sigua.custom(rule)
