"""Label transition matrices: what they hold, what they refuse, and the closed forms."""

import json
import pickle
import tracemalloc
from copy import deepcopy
from fractions import Fraction

import numpy as np
import pytest

import sigua
from sigua import TransitionMatrix
from sigua.transition._stochastic import dense_condition

EPS = np.finfo(np.float64).eps
ROWS = [[0.75, 0.25, 0.0], [0.125, 0.75, 0.125], [0.5, 0.0, 0.5]]
SYMMETRIC = [(0.0, 2), (0.2, 2), (0.99, 2), (0.5, 3), (0.2, 10), (0.5, 10), (0.95, 10), (0.3, 101)]
MATRICES = [
    *(TransitionMatrix.symmetric(*arguments) for arguments in SYMMETRIC),
    *(TransitionMatrix.pair(*arguments) for arguments in [(0.0, 4), (0.45, 10), (0.5, 3)]),
    TransitionMatrix(ROWS),
    TransitionMatrix.from_cleanlab([[0.9, 0.4], [0.1, 0.6]]),
    TransitionMatrix(np.array([[0.1, 0.9], [1 / 3, 2 / 3]], dtype=np.float32)),
    TransitionMatrix([[0.5, 0.5], [0.4998, 0.5002]]),  # a condition number of 5,000
]
every_matrix = pytest.mark.parametrize("T", MATRICES, ids=lambda T: repr(T)[:40])


def test_rows_are_kept_as_given_and_the_families_are_what_they_say():
    T = TransitionMatrix(ROWS)
    assert T.rows.tolist() == ROWS
    assert (T.num_classes, T.flip_rate, T.csr) == (3, None, None)
    symmetric = TransitionMatrix.symmetric(0.5, 5).rows
    assert symmetric.tolist() == (np.eye(5) * 0.375 + 0.125).tolist()
    rows = TransitionMatrix.pair(0.25, 4).rows.tolist()
    assert rows == [[0.75, 0.25, 0, 0], [0, 0.75, 0.25, 0], [0, 0, 0.75, 0.25], [0.25, 0, 0, 0.75]]


def test_cleanlab_gives_the_transpose():
    """There noise_matrix[given, true] has columns that sum to 1; here T[true, given] has rows."""
    assert TransitionMatrix.from_cleanlab(np.transpose(ROWS)) == TransitionMatrix(ROWS)


@every_matrix
def test_the_inverse_is_the_inverse(T):
    """From both sides, to a few eps times the condition number."""
    tolerance = 4 * EPS * np.linalg.cond(T.rows) * T.num_classes
    identity = np.eye(T.num_classes)
    np.testing.assert_allclose(T.rows @ T.inverse, identity, rtol=0, atol=tolerance)
    np.testing.assert_allclose(T.inverse @ T.rows, identity, rtol=0, atol=tolerance)
    sums = T.inverse.sum(axis=0)  # which symmetric noise has in closed form
    np.testing.assert_allclose(T.inverse_column_sums, sums, rtol=0, atol=tolerance * T.num_classes)
    assert T.inverse is T.inverse


@pytest.mark.parametrize(("eps", "k"), [("1/2", 10), ("1/5", 10), ("9/10", 100), ("1/4", 2)])
def test_inverse_pair_equals_exact_fractions(eps, k):
    """On the diagonal 1 - eps, off it o = eps / (k - 1): a = 1 / (1 - eps - o) and b = -o a."""
    off = Fraction(eps) / (k - 1)
    a = 1 / (1 - Fraction(eps) - off)
    expected = float(a), float(-off * a)
    pair = TransitionMatrix.symmetric(float(Fraction(eps)), k).inverse_pair
    np.testing.assert_allclose(pair, expected, rtol=32 * EPS)


def test_column_sums_of_the_inverse_by_hand():
    """T = [.9 .1; .6 .4] has determinant .3 and T^-1 = [4/3 -1/3; -2 3]."""
    T = TransitionMatrix([[0.9, 0.1], [0.6, 0.4]])
    np.testing.assert_allclose(T.inverse, [[4 / 3, -1 / 3], [-2, 3]], rtol=16 * EPS)
    np.testing.assert_allclose(T.inverse_column_sums, [-2 / 3, 8 / 3], rtol=16 * EPS)


def test_symmetric_noise_never_becomes_an_array_of_k_by_k():
    """A k x k array of 100,000 classes would take 80 GB; a vector of them takes 0.8 MB."""
    tracemalloc.start()
    T = TransitionMatrix.symmetric(0.5, 100_000)
    assert T.inverse_pair[0] > 1.9
    assert repr(T) == "TransitionMatrix.symmetric(0.5, 100000)"
    assert T == pickle.loads(pickle.dumps(T)) == TransitionMatrix.from_dict(T.to_dict())
    assert hash(T) == hash(TransitionMatrix.symmetric(0.5, 100_000))
    with pytest.warns(UserWarning, match="never"):
        sigua.sigua_bc(T, over="classes")
    assert sigua.corrupt_labels(np.arange(1000), T).max() > 1000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


REFUSED_NUMBERS = {
    "negative": ([[1.1, -0.1], [0.2, 0.8]], r"got -0\.1 at \[0, 1\].*p\(observed j \| true i\)"),
    "below rounding": ([[1.0, 0.0], [-1e-7, 1 + 1e-7]], r"got -1e-07 at \[1, 0\]"),
    "nan": ([[0.5, 0.5], [float("nan"), 1.0]], r"got nan at \[1, 0\]"),
    "inf": ([[0.5, 0.5], [0.0, float("inf")]], "got inf in row 1"),
    "counts": ([[9, 1], [2, 8]], r"must each sum to 1, got 10 in row 0; try rows / rows\.sum"),
    "just off": ([[0.9, 0.1], [0.2, 0.80001]], "got 1.00001 in row 1"),
    "transposed": ([[0.9, 0.2], [0.1, 0.8]], "got 1.1 in row 0; try rows.T, .*from_cleanlab"),
    "wide": ([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]], r"square matrix, got shape \(2, 3\)"),
    "nearly": ([[0.5, 0.5], [0.49995, 0.50005]], r"condition number of 2e\+04; try less noise"),
}
REFUSED_ROWS = REFUSED_NUMBERS | {
    "flat": ([0.5, 0.5], r"square matrix, got shape \(2,\)"),
    "stack": (np.ones((2, 2, 2)) / 2, r"square matrix, got shape \(2, 2, 2\)"),
    "ragged": ([[1, 0], [1]], "must be an array.* different lengths"),
    "words": ([["a", 0], [1, 0]], "must be a square matrix"),
    "complex": (np.eye(2) * (1 + 0j), "must be real.* complex128"),
    "masked": (np.ma.masked_less(np.eye(2), 0.5), "2 of them"),
    "no class": (np.zeros((0, 0)), r"square matrix, got shape \(0, 0\)"),
    "singular": ([[0.5, 0.5], [0.5, 0.5]], "invertible, .* at most 10000, got .* number of .*; "),
}


@pytest.mark.parametrize(("rows", "message"), REFUSED_ROWS.values(), ids=REFUSED_ROWS)
def test_rows_that_are_no_transition_matrix_are_refused(rows, message):
    with pytest.raises(ValueError, match=f"^rows: .*{message}"):
        TransitionMatrix(rows)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("k", [2, 7, 30])
def test_the_condition_is_bounded_and_exact_where_the_bound_is_too_large(rate, k):
    """Symmetric noise and any other, half each; whatever the bound, it is never too small."""
    rng = np.random.default_rng(k)
    for other in (np.eye(k), rng.dirichlet(np.full(k, 0.2), k)):
        rows = (1 - rate) * (other + np.eye(k)) / 2 + rate / k
        found, exact = dense_condition(rows), np.linalg.cond(rows)
        assert found >= exact * (1 - 1e-9)
        assert found == pytest.approx(exact) or found <= 1e4


def test_noise_of_many_classes_that_is_nearly_symmetric_takes_no_singular_values(monkeypatch):
    def refuse(rows):
        raise AssertionError("O(k^3)")

    monkeypatch.setattr(np.linalg, "cond", refuse)
    rng, k = np.random.default_rng(0), 500
    for rate in (0.1, 0.5):
        rows = (1 - rate) * np.eye(k) + rate * rng.dirichlet(np.full(k, 50.0), k)
        assert TransitionMatrix(rows).num_classes == k


def test_what_is_not_cleanlab_s_is_told_where_to_go():
    for value in (0.5, [0.5, 0.5]):
        with pytest.raises(ValueError, match=r"^rows: must be a square matrix, got shape"):
            TransitionMatrix.from_cleanlab(value)
    with pytest.raises(ValueError, match=r"^noise_matrix: .* columns .* try TransitionMatrix\("):
        TransitionMatrix.from_cleanlab([[0.9, 0.1], [0.2, 0.8]])


@pytest.mark.parametrize("make", [TransitionMatrix.symmetric, TransitionMatrix.pair])
def test_a_rate_or_a_number_of_classes_that_is_none_is_refused(make):
    for rate in (1, 1.5, -0.1, float("nan"), "0.5", True, None):
        with pytest.raises(ValueError, match=rf"^noise_rate: .*\[0, 1\), got {rate!r};"):
            make(rate, 10)
    for k in (1, -3, 3.5, float("inf"), float("nan"), "10", True):
        with pytest.raises(ValueError, match=f"^num_classes: .*got {k!r};"):
            make(0.2, k)


def test_noise_that_leaves_nothing_to_learn_is_refused():
    """At eps = (k - 1) / k all rows are equal, where `inv` would not raise."""
    symmetric, pair = TransitionMatrix.symmetric, TransitionMatrix.pair
    refused = [(symmetric, *given) for given in [(0.9, 10), (0.5, 2), (0.75, 4), (0.90005, 10)]]
    refused += [(pair, 0.5, k) for k in (2, 4, 10, 1002, 100_001)] + [(pair, 0.49999, 100_000)]
    for make, eps, k in refused:
        with pytest.raises(ValueError, match=r"^noise_rate: .*condition number of .*; try less no"):
            make(eps, k)


def test_tiny_negatives_are_clipped_and_their_rows_renormalised():
    """In float64, whatever they came in; and the caller's array is left alone."""
    rows = np.array([[0.9, 0.1, -1e-9], [0.25, 0.5, 0.25], [0.1, 0.2, 0.7]], dtype=np.float32)
    before = rows.copy()
    T = TransitionMatrix(rows)
    assert T.rows[0, 2] == 0
    np.testing.assert_allclose(T.rows.sum(axis=1), 1, rtol=0, atol=2 * EPS)
    assert T.rows[1].tolist() == [0.25, 0.5, 0.25]
    assert np.array_equal(rows, before)
    rows[0] = 0
    assert T.rows[0, 0] > 0.8


@pytest.mark.parametrize("copied", [lambda T: T, deepcopy, lambda T: pickle.loads(pickle.dumps(T))])
@every_matrix
def test_its_arrays_are_read_only_and_stay_so_in_a_copy(T, copied):
    T.inverse  # noqa: B018  # a cached inverse travels with the copy
    for array in (copied(T).rows, copied(T).inverse):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 0.5
    with pytest.raises(AttributeError, match="immutable"):
        T.num_classes = 4


def test_a_large_dense_matrix_prints_its_size():
    """As NumPy's arrays do above 1,000 entries; a smaller one is printed whole."""
    large, small = (sigua.random_transition(k, noise_rate=0.3, seed=0) for k in (32, 31))
    assert repr(large) == "<TransitionMatrix of 32 classes, dense>"
    assert repr(small).count(",") == 31 * 31 - 1


@every_matrix
def test_a_matrix_survives_repr_pickle_and_json(T):
    evaluated = eval(repr(T), vars(sigua))
    unpickled = pickle.loads(pickle.dumps(T))
    loaded = TransitionMatrix.from_dict(json.loads(json.dumps(T.to_dict())))
    assert [other for other in MATRICES if other == T] == [T]
    for copy in (evaluated, unpickled, loaded, deepcopy(T)):
        assert copy == T
        assert hash(copy) == hash(T)
        assert np.array_equal(copy.rows, T.rows)
        assert copy.flip_rate == T.flip_rate
    assert repr(evaluated) == repr(unpickled) == repr(T)


@pytest.mark.parametrize(
    ("T", "form"),
    [
        (TransitionMatrix.symmetric(0.2, 3), "symmetric"),
        (TransitionMatrix([[0.9, 0.1], [0.2, 0.8]]), "dense"),
        (TransitionMatrix.pair(0.2, 1000), "dense"),
        (TransitionMatrix.pair(0.2, 1001), "sparse"),
        (TransitionMatrix(TransitionMatrix.pair(0.2, 1001).csr), "sparse"),
    ],
)
def test_a_matrix_says_in_which_form_it_is_kept(T, form):
    assert T.form == form


def test_pair_noise_of_many_classes_never_becomes_an_array_of_k_by_k():
    """100,000 classes have 200,000 entries."""
    tracemalloc.start()
    T = TransitionMatrix.pair(0.45, 100_000)
    assert len(T.csr.data) == 200_000
    assert repr(T) == "TransitionMatrix.pair(0.45, 100000)"
    assert T == pickle.loads(pickle.dumps(T)) == TransitionMatrix.from_dict(T.to_dict())
    assert T == TransitionMatrix(T.csr) != TransitionMatrix.pair(0.4, 100_000)
    noisy = sigua.corrupt_labels(np.arange(100_000), T)
    assert T.column_table[0].shape == (100_000, 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000_000
    assert set((noisy - np.arange(100_000)) % 100_000) == {0, 1}
    assert abs((noisy != np.arange(100_000)).mean() - 0.45) < 5 * (0.45 * 0.55 / 100_000) ** 0.5


@pytest.mark.parametrize("make", [TransitionMatrix.symmetric, TransitionMatrix.pair])
@pytest.mark.parametrize("name", ["rows", "inverse"])
def test_dense_arrays_are_refused_above_ten_thousand_classes(make, name):
    T = make(0.2, 10_001)
    with pytest.raises(ValueError, match=r"^T: must have at most 10000 classes for rows.* 10001"):
        getattr(T, name)
    with pytest.raises(ValueError, match=r"^T: must have at most 10000 classes"):
        sigua.reference.step(sigua.forward_correction(T), np.zeros((2, 10_001)), [0, 1])


def test_backward_correction_by_a_sparse_matrix_is_by_its_dense_inverse_and_not_for_any_size():
    """Symmetric noise is two numbers, however many classes there are; so is its inverse."""
    T = TransitionMatrix.pair(0.2, 1200)
    row = 0.25 ** np.arange(1200) * (-1.0) ** np.arange(1200) / 0.8  # a geometric series
    np.testing.assert_allclose(T.inverse[0], row, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(T.inverse_column_sums, 1, rtol=1e-12)
    uneven = {"data": [0.75, 0.25, 1.0], "indices": [0, 1, 1], "indptr": [0, 2, 3]}
    sums = TransitionMatrix.from_dict(uneven).inverse_column_sums
    np.testing.assert_allclose(sums, [4 / 3, 2 / 3], rtol=1e-12)  # the inverse is 4/3, -1/3; 0, 1
    assert sigua.backward_correction(T).T is T
    large = TransitionMatrix.pair(0.2, 10_001)
    for make in (sigua.backward_correction, sigua.sigua_bc, sigua.nn_backward_correction):
        with pytest.raises(ValueError, match=r"^T: .* 10000 .*backward.*try forward_correction"):
            make(large)
    sigua.forward_correction(large)
    sigua.backward_correction(TransitionMatrix.symmetric(0.2, 10_001))
    with pytest.raises(ValueError, match=r"^T: must be kept sparse, got .*pair\(0.2, 4\);"):
        TransitionMatrix.pair(0.2, 4).column_table  # noqa: B018
    with pytest.raises(ValueError, match=r"^T: must be symmetric noise"):
        TransitionMatrix.pair(0.2, 4).inverse_pair  # noqa: B018


SWAPPED = {i: i ^ 1 for i in range(1100)}


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_the_condition_of_a_sparse_matrix_is_bounded_by_its_diagonal_or_exact(rate):
    """Two classes swapped have T^-1 = [1-r -r; -r 1-r] / (1 - 2r): 1 / |1 - 2r| in all."""
    assert sigua.mapped_transition(SWAPPED, rate, 1100).form == "sparse"
    with pytest.raises(ValueError, match=r"^rows: must make T invertible, .*number of 5e\+04"):
        sigua.mapped_transition(SWAPPED, 0.5 + np.sign(rate - 0.5) * 1e-5, 1100)
    with pytest.raises(ValueError, match=r"^rows: must make T invertible"):
        sigua.mapped_transition(SWAPPED, 0.5, 1100)


def test_without_a_diagonal_above_one_half_a_sparse_matrix_may_have_ten_thousand_classes():
    assert sigua.mapped_transition({3: 7}, 0.45, 20_000).csr.size == 20_000
    with pytest.raises(ValueError, match=r"^rows: .* above one half .*10000 .*got 0\.45 among 20"):
        sigua.mapped_transition({3: 7}, 0.55, 20_000)


@pytest.mark.parametrize(
    "data",
    [
        *({"indices": bad} for bad in ([0, 2], [-1, 1], [0], [0.0, np.nan], [0.0, 1.0], [[0, 1]])),
        *(
            {"indptr": bad}
            for bad in (None, "x", -1, {}, [0, 2, 1], [1, 1, 2], [0, 1], [np.nan] * 3)
        ),
        *({"data": bad} for bad in ([1, 2], [1.0], [np.nan, 1.0], None, ["a", "b"], [[1.0, 1.0]])),
    ],
    ids=str,
)
def test_a_damaged_dict_of_a_sparse_matrix_is_refused(data):
    good = {"data": [1.0, 1.0], "indices": [0, 1], "indptr": [0, 1, 2]}
    assert TransitionMatrix.from_dict(good).rows.tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ValueError, match=r"^rows: must (be|each|have) .*; try ") as error:
        TransitionMatrix.from_dict(good | data)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("data", "got"),
    [
        (None, "a NoneType"),
        ([[0.8, 0.2], [0.3, 0.7]], "a list"),
        ({}, r"an empty dict \(.*\)"),
        ({"noise_rate": 0.2}, r"noise_rate \(.*'num_classes'\)"),
        ({"noise_rate": 0.2, "num_classes": 3, "x": 1}, r"noise_rate, num_classes, x \(.*'x'\)"),
        ({"indptr": [0, 1]}, r"indptr \(.*'data'.*\)"),
    ],
)
def test_what_to_dict_never_returned_is_refused(data, got):
    with pytest.raises(ValueError, match=rf"^data: must be what to_dict returned, got {got}; try"):
        TransitionMatrix.from_dict(data)
