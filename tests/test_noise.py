"""Labels corrupted on purpose: the right classes, the right rate, the same seed the same noise."""

import numpy as np
import pytest

import sigua
from sigua import (
    TransitionMatrix,
    corrupt_labels,
    corrupt_labels_by_instance,
    mapped_transition,
    random_transition,
    replace_inputs,
)

# Every draw below is seeded, so nothing is left to chance; the bounds say how far from its mean a
# sound sample may lie. Five standard deviations are passed once in 1.7 million draws.
SIGMAS = 5
ROWS = [[0.7, 0.3, 0.0, 0.0], [0.0, 0.6, 0.0, 0.4], [0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.0, 1.0]]
ENTRIES = {"data": [0.7, 0.3, 0.6, 0.4, 0.1, 0.2, 0.3, 0.4, 1.0], "indptr": [0, 2, 4, 8, 9]}
SPARSE = TransitionMatrix.from_dict(ENTRIES | {"indices": [0, 1, 1, 3, 0, 1, 2, 3, 3]})


def balanced(num_classes, size):
    return np.arange(size) % num_classes


def counts(y, noisy, num_classes):
    """Return how often each true class became each observed one."""
    return np.bincount(y * num_classes + noisy, minlength=num_classes**2).reshape(num_classes, -1)


@pytest.mark.parametrize(
    "T",
    [
        TransitionMatrix.symmetric(0.5, 10),
        TransitionMatrix(TransitionMatrix.symmetric(0.8, 20).rows),
        TransitionMatrix.pair(0.45, 7),
        TransitionMatrix(ROWS),
        SPARSE,
    ],
    ids=["symmetric", "dense", "pair", "rows", "sparse"],
)
def test_labels_are_drawn_from_the_rows(T):
    """Every entry is met, none of 0 ever; so a wrong label is never redrawn as the right one."""
    k, p = T.num_classes, T.rows
    y = balanced(k, 100_000 * k)
    table = counts(y, corrupt_labels(y, T, seed=1), k)
    assert (np.abs(table / 1e5 - p) <= SIGMAS * np.sqrt(p * (1 - p) / 1e5)).all()


@pytest.mark.parametrize(("eps", "k"), [(0.5, 10), (0.8, 120)])
def test_the_realised_rate_of_symmetric_noise_is_the_nominal_one(eps, k):
    """Redrawn among all classes it would lie 22 deviations (10 classes) or 11 (120) below."""
    y = balanced(k, 2_000_000)
    noisy = corrupt_labels(y, TransitionMatrix.symmetric(eps, k), seed=1)
    assert abs((noisy != y).mean() - eps) < SIGMAS * np.sqrt(eps * (1 - eps) / len(y))


matrices = pytest.mark.parametrize(
    "T",
    [TransitionMatrix.symmetric(0.5, 4), TransitionMatrix(ROWS), SPARSE],
    ids=["symmetric", "rows", "sparse"],
)


@matrices
def test_a_seed_gives_the_same_noise_and_a_generator_is_advanced(T):
    """And the global random state is left alone."""
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    y, rng = balanced(4, 1000), np.random.default_rng(7)
    noisy = corrupt_labels(y, T, seed=7)
    assert np.array_equal(noisy, corrupt_labels(y, T, seed=7))
    assert np.array_equal(noisy, corrupt_labels(y, T, rng))
    assert not np.array_equal(noisy, corrupt_labels(y, T, rng))
    assert not np.array_equal(noisy, corrupt_labels(y, T, seed=8))
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@matrices
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_the_input_is_untouched_and_its_dtype_kept(T, dtype):
    y = balanced(4, 1000).astype(dtype)
    before = y.copy()
    y.setflags(write=False)
    noisy = corrupt_labels(y, T, seed=5)
    assert noisy.dtype == dtype
    assert noisy.flags.writeable
    assert np.array_equal(y, before)
    assert set(noisy.tolist()) == {0, 1, 2, 3}
    assert corrupt_labels(y[:0], T).dtype == dtype


@pytest.mark.parametrize("make", [TransitionMatrix.symmetric, TransitionMatrix.pair])
def test_a_dtype_needs_to_hold_the_last_class_and_no_more(make):
    """The largest uint8 is 255, and int8 127: no label of a larger class may wrap around."""
    for dtype, enough in ((np.uint8, 256), (np.int8, 128)):
        y = np.full(100, enough - 1, dtype)
        noisy = corrupt_labels(y, make(0.9, enough))
        assert noisy.dtype == dtype
        assert (noisy >= 0).all()
        with pytest.raises(ValueError, match=r"^y: must have a dtype .* classes; try y\.as"):
            corrupt_labels(y, make(0.2, enough + 1))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([[0, 1]], r"must be .* shape \(1, 2\) of int.*y\.ravel\(\) .*, y\.argmax\(1\) on one-"),
        ([0.0, 1.0], r"got shape \(2,\) of float64; .*astype\(int\)"),
        ([True, False], r"got shape \(2,\) of bool; try y\.astype\(int\)$"),
        (["a", "b"], r"must be integers of shape \(n,\)"),
        ([0, 4], r"must lie in \[0, 4\), got y\[1\] = 4; try numbering the classes from 0"),
        ([0, 1, -1], r"must lie in \[0, 4\), got y\[2\] = -1;"),
    ],
)
@matrices
def test_labels_that_are_no_classes_are_refused(T, y, message):
    with pytest.raises(ValueError, match=f"^y: .*{message}"):
        sigua.corrupt_labels(y, T)


# Noise that depends on the instance.


def instances(num_classes, size, width=5):
    y = balanced(num_classes, size)
    return np.random.default_rng(0).standard_normal((size, width)) + y[:, None] % 3, y


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.95])
@pytest.mark.parametrize(("num_classes", "size"), [(10, 100_000), (120, 120_000)])
def test_the_realised_rate_of_noise_by_instance_is_the_nominal_one(rate, num_classes, size):
    """Truncated to [0, 1], the mean rate would be .101 for a nominal .05: 74 deviations off."""
    noisy = corrupt_labels_by_instance(*instances(num_classes, size), rate, num_classes, seed=1)
    deviation = np.sqrt(rate * (1 - rate) / size)
    assert abs((noisy != balanced(num_classes, size)).mean() - rate) < SIGMAS * deviation


def test_noise_by_instance_at_the_ends_of_its_range():
    x, y = instances(4, 1000)
    assert np.array_equal(corrupt_labels_by_instance(x, y, 0.0, 4), y)
    everyone = corrupt_labels_by_instance(x, y, 1.0, 4)
    assert (everyone != y).all()
    assert set(everyone) == {0, 1, 2, 3}


def test_alike_inputs_of_a_class_are_mistaken_for_the_same_class():
    """Long inputs make the softmax a maximum, so the direction alone decides."""
    x = 1e4 * np.repeat(np.random.default_rng(1).standard_normal((2, 8)), 500, axis=0)
    noisy = corrupt_labels_by_instance(x, np.zeros(1000, dtype=int), 1.0, 50, seed=0)
    first, second = set(noisy[:500]), set(noisy[500:])
    assert len(first) == len(second) == 1
    assert first != second


def test_to_which_class_one_flips_has_the_softmax_s_odds():
    """Of one input and three classes: log odds of the two others are x @ (w1 - w2), normal.

    Over the draws of W their variance is 2 |x|^2 = 0.5, and that of their estimates is larger by
    1 / n1 + 1 / n2, which is 0.001 for even odds and below 0.004 for nearly all.
    """
    log_odds = []
    for seed in range(1000):
        x, y = np.full((4000, 1), 0.5), np.zeros(4000, dtype=int)
        noisy = corrupt_labels_by_instance(x, y, 1.0, 3, seed=seed)
        log_odds.append(np.log((noisy == 1).sum() / (noisy == 2).sum()))
    assert abs(np.mean(log_odds)) < SIGMAS * np.sqrt(0.5 / 1000)
    assert abs(np.var(log_odds) - 0.5) < SIGMAS * 0.5 * np.sqrt(2 / 1000) + 0.004


def test_flip_rates_spread_as_asked():
    """Each flips with a rate of its own: no spread, or the rate's standard deviation of 0.1.

    Seen through a generator whose uniform numbers are known: flipped are those below the rate.
    """

    class Fixed(np.random.Generator):
        def random(self, size):
            return np.full(size, 0.4)

    def share(spread):
        x, y = np.zeros((50_000, 1)), np.zeros(50_000, dtype=int)
        generator = Fixed(np.random.PCG64(0))
        return corrupt_labels_by_instance(x, y, 0.3, 2, generator, spread=spread).mean()

    assert share(0.0) == 0.0
    # Of a normal, 15.87 % lie more than one deviation above the mean and .135 % more than three,
    # where it is cut off: (.15866 - .00135) / (1 - 2 * .00135) = .15773.
    assert abs(share(0.1) - 0.15773) < SIGMAS * np.sqrt(0.15773 * 0.84227 / 50_000)
    assert abs(share(1e6) - 1 / 3) < SIGMAS * np.sqrt(2 / 9 / 50_000)  # uniform on [0, .6]


def test_noise_by_instance_keeps_its_input_and_its_seed():
    x, y = instances(4, 1000)
    y = y.astype(np.uint8)
    for array in (x, y):
        array.setflags(write=False)
    noisy = corrupt_labels_by_instance(x, y, 0.5, 4, seed=3)
    assert noisy.dtype == y.dtype
    assert np.array_equal(noisy, corrupt_labels_by_instance(x, y, 0.5, 4, np.random.default_rng(3)))
    assert not np.array_equal(noisy, corrupt_labels_by_instance(x, y, 0.5, 4, seed=4))
    images = x.reshape(1000, 1, 5)
    assert np.array_equal(noisy, corrupt_labels_by_instance(images, y, 0.5, 4, seed=3))
    assert corrupt_labels_by_instance(np.zeros((0, 3)), np.zeros(0, int), 0.5, 4).shape == (0,)


# Open-set noise: inputs are replaced.


@pytest.mark.parametrize(("size", "rate", "count"), [(100, 0.29, 29), (10, 0.4, 4), (7, 0.5, 3)])
def test_the_share_of_replaced_inputs_is_exact(size, rate, count):
    """In floating point, 100 * 0.29 is 28.999999999999996."""
    x = np.arange(size)[:, None] * np.ones((1, 3))
    noisy, replaced = replace_inputs(x, -np.ones((500, 3)), rate, seed=1)
    assert replaced.sum() == count
    assert np.array_equal(noisy[~replaced], x[~replaced])
    assert (noisy[replaced] == -1).all()


def test_foreign_inputs_are_used_once_as_long_as_there_are_enough():
    x, foreign = np.zeros((100, 2)), np.arange(1.0, 51)[:, None] * np.ones((1, 2))
    noisy, _ = replace_inputs(x, foreign, 0.5)
    assert sorted(set(noisy[:, 0])) == list(range(51))
    noisy, replaced = replace_inputs(x, foreign[:3], 0.5)
    assert replaced.sum() == 50
    assert set(noisy[:, 0]) == {0.0, 1.0, 2.0, 3.0}


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, object, "U5"])
def test_any_array_of_inputs_is_copied_and_keeps_its_dtype(dtype):
    x = np.array([["1", "2"], ["3", "4"], ["5", "6"]]).astype(dtype)
    foreign = np.array([["7", "8"], ["9", "9"]]).astype(dtype)
    for array in (x, foreign):
        array.setflags(write=False)
    noisy, replaced = replace_inputs(x, foreign, 0.67, seed=2)
    assert noisy.dtype == x.dtype
    assert {tuple(row) for row in noisy[replaced]} == {tuple(row) for row in foreign}
    unchanged, nobody = replace_inputs(x, foreign[:0], 0.0)
    assert np.array_equal(unchanged, x)
    assert not nobody.any()
    again = replace_inputs(x[:, 0], foreign[:, 0], 0.67, np.random.default_rng(2))[1]
    assert np.array_equal(again, replaced)  # of one dimension, from the same seed


# Matrices to corrupt by.


def test_a_mapping_says_what_is_mistaken_for_what():
    T = mapped_transition({0: 2, 2: 1}, 0.25, 4)
    expected = [[0.75, 0, 0.25, 0], [0, 1, 0, 0], [0, 0.25, 0.75, 0], [0, 0, 0, 1]]
    assert T.rows.tolist() == expected
    every_one_to_the_next = mapped_transition({i: (i + 1) % 5 for i in range(5)}, 0.3, 5)
    assert np.array_equal(every_one_to_the_next.rows, TransitionMatrix.pair(0.3, 5).rows)
    assert np.array_equal(mapped_transition({}, 0.3, 3).rows, np.eye(3))


@pytest.mark.parametrize("num_classes", [2, 3, 120])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.6, 0.9])
def test_a_random_matrix_has_the_trace_asked_for(num_classes, rate):
    """For each rate the diagonal keeps within half of what is left to 0 or to 1."""
    T = random_transition(num_classes, noise_rate=rate, seed=1).rows
    assert T.trace() == pytest.approx(num_classes * (1 - rate), abs=1e-10)
    assert (T >= 0).all()
    again = random_transition(num_classes, trace=num_classes * (1 - rate), seed=1).rows
    np.testing.assert_allclose(again, T, rtol=0, atol=1e-14)
    if rate:
        assert len(np.unique(T.diagonal().round(12))) == num_classes


# What is refused.

USUAL = {
    corrupt_labels_by_instance: {"x": [[1.0], [2.0]], "y": [0, 1], "noise_rate": 0.2}
    | {"num_classes": 3},
    replace_inputs: {"x": np.zeros((4, 3), np.float32), "foreign": np.zeros((5, 3), np.float32)}
    | {"noise_rate": 0.5},
    mapped_transition: {"mapping": {0: 1}, "noise_rate": 0.2, "num_classes": 3},
    random_transition: {"num_classes": 2},
}
REFUSED = {
    corrupt_labels_by_instance: [
        ({"x": [[1.0], [np.nan]]}, r"x: must be finite, got .* x\[1\];"),
        ({"x": [[1.0]]}, r"x: must have an entry for each of y, got 1 for 2;"),
        ({"noise_rate": 20}, r"noise_rate: must be a number in \[0, 1\], got 20;"),
        ({"num_classes": 1}, r"num_classes: must be a whole number of at least 2"),
        ({"spread": -0.1}, r"spread: must be a number in \[0, inf\)"),
    ],
    replace_inputs: [
        ({"foreign": np.zeros((5, 2))}, r"foreign: .*shape of an entry of x, got \(5, 2\) for"),
        ({"foreign": np.zeros((5, 3))}, r"foreign: must have a dtype .*, got float64 for"),
        ({"foreign": np.zeros((0, 3), np.float32)}, r"foreign: must have an example"),
        ({"noise_rate": 40}, r"noise_rate: must be a number in \[0, 1\], got 40;"),
    ],
    mapped_transition: [
        ({"mapping": {0: 3}}, r"mapping: must lie in \[0, 3\), got 3;"),
        ({"mapping": [(0, 1)]}, r"mapping: must be a dict .* got a list; try \{9: 1"),
        ({"mapping": {"cat": 1}}, r"mapping: must be a whole number of at least 0, got 'cat';"),
        ({"mapping": {1: 1}}, r"mapping: must map a class to another one, got 1 for 1;"),
        ({"noise_rate": 20}, r"noise_rate: must be a number in \[0, 1\), got 20;"),
        ({"mapping": {0: 1, 1: 0}, "noise_rate": 0.5}, r"rows: must make T invertible"),
    ],
    random_transition: [
        ({}, r"noise_rate: must be given, or else trace, got noise_rate=None and trace=None;"),
        ({"noise_rate": 45}, r"noise_rate: must be a number in \[0, 1\), got 45;"),
        ({"trace": 5.0}, r"trace: must be a number in \[0, 2\], got 5.0;"),
        ({"trace": 0.0}, r"noise_rate: must be a number in \[0, 1\)"),
        ({"trace": 1.0}, r"rows: must make T invertible"),  # two equal rows
        *(
            ({"noise_rate": 0.2, "seed": seed}, f"seed: must be an integer .*, got {seed!r}; try 0")
            for seed in ("a", 1.5, -1)
        ),
    ],
}


@pytest.mark.parametrize(
    ("make", "changed", "message"),
    [(make, *case) for make, cases in REFUSED.items() for case in cases],
)
def test_what_cannot_be_used_is_refused(make, changed, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        make(**USUAL[make] | changed)
