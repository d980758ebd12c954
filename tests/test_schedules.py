"""Schedules, and rates that become counts: checked against exact fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sigua

BILLION = 10**9


def exact_rho(eps: Fraction, t: Fraction, T_k: int) -> Fraction:
    """Eq. 4 in fractions; T_k = 0 means no warm-up."""
    return 1 - eps * (min(t / T_k, Fraction(1)) if T_k else 1)


def epochs(T_k: int) -> set[Fraction]:
    """Whole epochs, and fractional ones as step / steps_per_epoch, up to and past the warm-up."""
    whole = {Fraction(t) for t in range(T_k + 2)}
    steps = [(i, n) for n in (7, 48, 391) for i in range(1, T_k * n, max(1, T_k * n // 6))]
    return whole | {Fraction(i, n) for i, n in steps}


# (the rate as the library computes it, the rate as it should be), some 19,000 of them
RATES = [
    (sigua.keep_rate(float(t), eps / 100, T_k), exact_rho(Fraction(eps, 100), t, T_k))
    for T_k in (0, 1, 2, 3, 5, 7, 10, 15)
    for t in sorted(epochs(T_k))
    for eps in range(100)
]
SIZES = np.array([*range(513), 600, 625, 640, 768, 800, 1000, 1024, 1250, 1500, 2000, 2048, 4096])


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_counts_from_arrays_equal_exact_fractions(dtype):
    """Ten million cases of (n, eps, t, T_k), in the integers of the array that came."""
    sizes = SIZES.astype(dtype)
    for rate, rho in RATES:
        counts = sigua.rate_to_count(sizes, sigua.rate_to_parts(rate))
        assert counts.dtype == dtype
        assert np.array_equal(counts, SIZES * rho.numerator // rho.denominator), (rate, rho)


def test_hundredths_are_whole_parts_and_other_rates_are_rounded_up():
    """1 - 0.71 is 0.29000000000000004: a hair above, and no part more for it."""
    for percent in range(101):
        assert sigua.rate_to_parts(percent / 100) == percent * 10**7
        assert sigua.rate_to_parts(1 - percent / 100) == (100 - percent) * 10**7
    assert sigua.rate_to_parts(1 / 3) == 333_333_334


@given(n=st.integers(0, 10**12), parts=st.integers(0, BILLION))
@settings(deadline=None, database=None)
def test_long_division_is_the_floor_of_the_product(n, parts):
    assert sigua.rate_to_count(n, parts) == n * parts // BILLION


@pytest.mark.parametrize("n", [2_145_001, 8 * 1024**2, 2**31 - 1])
def test_32_bit_integers_are_exact_whatever_they_hold(n):
    parts = [0, 1, 999, 1000, 999_999, 1_000_000, 500_000_001, 999_000_999, BILLION - 1, BILLION]
    counts = sigua.rate_to_count(np.int32(n), np.array(parts, dtype=np.int32))
    assert counts.dtype == np.int32
    assert counts.tolist() == [n * part // BILLION for part in parts]


def test_keep_rate_falls_from_one_to_one_minus_eps_in_the_warm_up():
    """Eq. 4 by hand: eps = 0.5, T_k = 4; a quarter of an epoch drops 0.5 / 16."""
    at = {0: 1.0, 0.25: 0.96875, 1: 0.875, 2: 0.75, 4: 0.5, 4.25: 0.5, 200: 0.5}
    assert {t: sigua.keep_rate(t, 0.5, 4) for t in at} == at


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sigua.keep_rate(-1, 0.5, 10), r"^epoch: must be a number in \[0, inf\), got -1;"),
        (lambda: sigua.keep_rate(0, 1.0), r"^noise_rate: must be a number in \[0, 1\), got 1.0;"),
        (lambda: sigua.keep_rate(0, 0.5, INF), "^warmup: must be a number"),
        (lambda: sigua.rate_to_parts(NAN), r"^rate: must be a number in \[0, 1\], got nan;"),
        (lambda: sigua.rate_to_count(10, 0.5), "^parts: must be an integer .*; try rate_to_parts"),
        (lambda: sigua.rate_to_count(-1, 5), "^size: must be an integer of at least 0"),
        (lambda: sigua.rate_to_count(np.ones(2), 5), "^size: must be an integer of at least 0"),
        (lambda: sigua.Knots("ab"), "^points: must be an array of numbers"),
        (lambda: sigua.Knots([(0, NAN)]), "^points: must be pairs of finite numbers"),
        (lambda: sigua.Knots([(0, 1, 2)]), "^points: must be pairs"),
        (lambda: sigua.Knots([(0, 0.1)])("1"), "^epoch: must be a number"),
        *(
            (lambda points=points: sigua.Knots(points), r"^points: must have epochs that increase,")
            for points in ([], [(1, 0.0), (0, 1.0)], [(1, 0.0), (1, 1.0)])
        ),
        *(
            (lambda epoch=epoch: sigua.self_teaching(0.5).at(epoch), "^epoch: .*epochs from 0")
            for epoch in (-0.001, NAN, "1", None)
        ),
    ],
)
def test_what_is_out_of_range_is_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "; try " in str(error.value)


def test_knots_are_linear_between_and_constant_outside():
    ramp = sigua.Knots([(2, 1.0), (4, 0.5), (8, 0.75)])
    at = {0: 1.0, 2: 1.0, 3: 0.75, 4: 0.5, 5: 0.5625, 8: 0.75, 9: 0.75}
    assert {t: ramp(t) for t in at} == at
    assert [sigua.Knots([(3, 0.25)])(t) for t in (0, 3, 9)] == [0.25] * 3


def test_delta_and_gamma_may_be_functions_of_the_epoch():
    """rho(5) = 0.75 and delta(5) = 0.1; from epoch 10 on 0.5 and 0.2; the sum stops at 1."""
    ramp = sigua.Knots([(0, 0.0), (10, 0.2)])
    method = sigua.sigua_sl(0.5, delta=ramp, gamma=lambda t: 1 / (1 + t))
    assert method.at(0) == (1.0, BILLION, BILLION)
    assert method.at(5) == (1 / 6, 750_000_000, 850_000_000)
    assert method.at(12) == (1 / 13, 500_000_000, 700_000_000)
    assert sigua.sigua_sl(0.25, delta=0.75, warmup=0).at(0)[2] == BILLION
    assert sigua.sigua_sl(0.25, delta=0.9, warmup=0).at(0)[2] == BILLION


@pytest.mark.parametrize("value", [1.5, float("nan"), "0.1"])
@pytest.mark.parametrize("name", ["delta", "gamma"])
def test_a_schedule_that_leaves_its_range_is_refused_when_it_does(name, value):
    """Epoch 2 is in range, epoch 3 is not: the sentence names the argument and the epoch."""
    schedules = {"delta": 0.1, "gamma": 0.1, name: lambda t: 0.5 if t < 3 else value}
    method = sigua.sigua_sl(0.5, **schedules)
    method.at(2)
    for ask in (lambda: method.at(3), lambda: method.at_each(np.arange(5.0))):
        with pytest.raises(ValueError, match=rf"^{name}: must be a number in \[0, 1\].*epoch 3"):
            ask()


RAMP = sigua.Knots([(1, 0.1), (2.5, 0.3), (7, 0.05)])
MANY = [
    sigua.standard(),
    sigua.sigua_sl(0.29, delta=0.15, gamma=0.01),
    sigua.sigua_sl(1 / 3, delta=RAMP, gamma=sigua.Knots([(0, 0.0), (9, 1.0)]), warmup=7),
    sigua.sigua_sl(0.92, delta=0.3, warmup=0.5, variant="official"),
    sigua.self_teaching(0.5, warmup=0),
    sigua.custom(sigua.NoiseFloor(RAMP), gamma=sigua.Knots([(3, 0.2)])),
    sigua.sigua_sl(0.5, delta=lambda t: 0.1 / (1 + t), gamma=lambda t: 0.01),
    sigua.sigua_ag(warmup=3),
    sigua.sigua_ag(warmup=0, threshold=-0.15),
    sigua.custom(sigua.Known(), gamma=0.5),
]


@pytest.mark.parametrize("method", MANY, ids=lambda method: type(method).__name__)
def test_the_numbers_of_many_epochs_are_those_of_each(method):
    """As integers or floats, before, between, at and after the knots."""
    epochs = np.concatenate([np.arange(4000) / 391, [0.0, 1.0, 2.5, 7.0, 1e9]])
    columns = method.at_each(epochs)
    rows = [method.at(epoch) for epoch in epochs.tolist()]
    for column, values in zip(columns, zip(*rows, strict=True), strict=True):
        assert column.dtype.kind == ("i" if isinstance(values[0], int) else "f")
        assert column.tolist() == list(values)
