"""Labels corrupted on purpose: the right classes, the right rate, the same seed the same noise."""

import tracemalloc

import numpy as np
import pytest

import sigua
from sigua import TransitionMatrix, corrupt_labels

# Every draw below is seeded, so nothing is left to chance; the bounds say how far from its mean a
# sound sample may lie. Five standard deviations are passed once in 1.7 million draws.
SIGMAS = 5
ROWS = [[0.7, 0.3, 0.0, 0.0], [0.0, 0.6, 0.0, 0.4], [0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 0.0, 1.0]]


def balanced(num_classes, size):
    return np.arange(size) % num_classes


def counts(y, noisy, num_classes):
    """Return how often each true class became each observed one."""
    return np.bincount(y * num_classes + noisy, minlength=num_classes**2).reshape(num_classes, -1)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(
    ("eps", "num_classes", "size"),
    [(0.2, 10, 200_000), (0.5, 10, 200_000), (0.5, 120, 2_000_000), (0.8, 120, 2_000_000)],
)
def test_the_realised_rate_of_symmetric_noise_is_the_nominal_one(eps, num_classes, size, dense):
    """Redrawn among all classes it would lie 22 deviations (10 classes) or 11 (120) below."""
    T = TransitionMatrix.symmetric(eps, num_classes)
    y = balanced(num_classes, size)
    noisy = corrupt_labels(y, TransitionMatrix(T.rows) if dense else T, seed=1)
    deviation = np.sqrt(eps * (1 - eps) / size)
    assert abs((noisy != y).mean() - eps) < SIGMAS * deviation
    assert eps / num_classes > 2 * SIGMAS * deviation


@pytest.mark.parametrize("seed", range(3))
def test_symmetric_noise_flips_to_every_other_class_alike(seed):
    """Chi-square over the 90 ways to flip: 80 degrees of freedom, 155.08 has p = 1e-6."""
    y = balanced(10, 200_000)
    table = counts(y, corrupt_labels(y, TransitionMatrix.symmetric(0.5, 10), seed), 10)
    flips = table[~np.eye(10, dtype=bool)].reshape(10, 9)
    expected = flips.sum(axis=1, keepdims=True) / 9
    assert ((flips - expected) ** 2 / expected).sum() < 155.08


def test_pair_noise_flips_to_the_next_class_only():
    y = balanced(7, 70_000)
    noisy = corrupt_labels(y, TransitionMatrix.pair(0.45, 7), seed=2)
    assert set((noisy - y) % 7) == {0, 1}
    deviation = np.sqrt(0.45 * 0.55 / len(y))
    assert abs((noisy != y).mean() - 0.45) < SIGMAS * deviation


def test_every_entry_is_met_and_zero_entries_are_never_drawn():
    size = 400_000
    y = balanced(4, size)
    table = counts(y, corrupt_labels(y, TransitionMatrix(ROWS), seed=3), 4)
    p = np.array(ROWS)
    assert (table[p == 0] == 0).all()
    assert (table[3] == [0, 0, 0, size // 4]).all()
    deviation = np.sqrt(p * (1 - p) * size / 4)
    assert (np.abs(table - p * size / 4) <= SIGMAS * deviation).all()


def test_no_noise_changes_nothing():
    y = balanced(5, 1000)
    for T in (TransitionMatrix.symmetric(0.0, 5), TransitionMatrix.pair(0.0, 5)):
        assert np.array_equal(corrupt_labels(y, T, seed=4), y)


matrices = pytest.mark.parametrize(
    "T", [TransitionMatrix.symmetric(0.5, 4), TransitionMatrix(ROWS)], ids=["symmetric", "rows"]
)


@matrices
def test_a_seed_gives_the_same_noise_and_another_seed_other_noise(T):
    y = balanced(4, 1000)
    noisy = corrupt_labels(y, T, seed=7)
    assert np.array_equal(noisy, corrupt_labels(y, T, seed=7))
    assert np.array_equal(noisy, corrupt_labels(y, T, np.random.default_rng(7)))
    assert not np.array_equal(noisy, corrupt_labels(y, T, seed=8))
    assert np.array_equal(corrupt_labels(y, T), corrupt_labels(y, T, seed=0))


@matrices
def test_a_generator_is_advanced(T):
    y, rng = balanced(4, 1000), np.random.default_rng(7)
    assert not np.array_equal(corrupt_labels(y, T, rng), corrupt_labels(y, T, rng))


@matrices
def test_the_global_random_state_is_left_alone(T):
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    corrupt_labels(balanced(4, 100), T)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@matrices
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.int64, np.uint64])
def test_the_input_is_untouched_and_its_dtype_kept(T, dtype):
    y = balanced(4, 1000).astype(dtype)
    before = y.copy()
    y.setflags(write=False)
    noisy = corrupt_labels(y, T, seed=5)
    assert noisy.dtype == dtype
    assert noisy.shape == y.shape
    assert noisy.flags.writeable
    assert not np.shares_memory(noisy, y)
    assert np.array_equal(y, before)
    assert set(noisy.tolist()) == {0, 1, 2, 3}


@matrices
def test_lists_and_empty_arrays_of_integers_are_taken(T):
    assert corrupt_labels([0, 3, 1], T).shape == (3,)
    assert corrupt_labels(np.zeros(0, dtype=np.int32), T).dtype == np.int32


@pytest.mark.parametrize(
    "T",
    [TransitionMatrix.symmetric(0.9, 300), TransitionMatrix.pair(0.9, 300)],
    ids=["sym", "pair"],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_a_class_that_the_dtype_cannot_hold_never_wraps_around(T, dtype):
    """Labels up to the dtype's largest, of 300 classes: refused, or every flip is one of T's."""
    y = np.full(1000, np.iinfo(dtype).max, dtype)
    try:
        noisy = corrupt_labels(y, T, seed=6).astype(int)
    except ValueError:
        return
    assert (noisy >= 0).all()
    assert (T.rows[y[0], noisy] > 0).all()
    assert noisy.max() > y[0]


def test_symmetric_noise_of_many_classes_builds_no_matrix():
    y = balanced(100_000, 1000)
    tracemalloc.start()
    noisy = corrupt_labels(y, TransitionMatrix.symmetric(0.9, 100_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert noisy.max() > 1000
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([[0, 1]], r"must be integers of shape \(n,\), but shape \(1, 2\) of int.*y\.ravel\(\)"),
        (3, r"must be integers of shape \(n,\), but shape \(\) of int"),
        ([0.0, 1.0], r"but shape \(2,\) of float64 came; .*astype\(int\)"),
        ([True, False], r"but shape \(2,\) of bool came"),
        (["a", "b"], r"must be integers of shape \(n,\)"),
        ([0, 4], r"must lie in \[0, 4\), but y\[1\] is 4; number the classes from 0"),
        ([0, 1, -1], r"must lie in \[0, 4\), but y\[2\] is -1"),
    ],
)
@matrices
def test_labels_that_are_no_classes_are_refused(T, y, message):
    with pytest.raises(ValueError, match=f"^y: .*{message}"):
        sigua.corrupt_labels(y, T)
