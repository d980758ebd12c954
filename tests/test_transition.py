"""Label transition matrices: what they hold, what they refuse, and the closed forms."""

import json
import pickle
import sys
import tracemalloc
from copy import deepcopy
from fractions import Fraction

import numpy as np
import pytest

import sigua
from sigua import TransitionMatrix
from sigua.requirements import find_form

EPS = np.finfo(np.float64).eps
ROWS = [[0.75, 0.25, 0.0], [0.125, 0.75, 0.125], [0.5, 0.0, 0.5]]
SYMMETRIC = [(0.0, 2), (0.2, 2), (0.99, 2), (0.5, 3), (0.2, 10), (0.5, 10), (0.95, 10), (0.3, 101)]
MATRICES = [
    *(TransitionMatrix.symmetric(*arguments) for arguments in SYMMETRIC),
    *(TransitionMatrix.pair(*arguments) for arguments in [(0.0, 4), (0.45, 10), (0.5, 3)]),
    TransitionMatrix(ROWS),
    TransitionMatrix.from_cleanlab([[0.9, 0.4], [0.1, 0.6]]),
    TransitionMatrix(np.array([[0.1, 0.9], [1 / 3, 2 / 3]], dtype=np.float32)),
]
every_matrix = pytest.mark.parametrize("T", MATRICES, ids=lambda T: repr(T)[:40])


def test_symmetric_shares_the_noise_among_the_other_classes():
    rows = TransitionMatrix.symmetric(0.5, 5).rows
    assert rows.tolist() == (np.eye(5) * 0.375 + 0.125).tolist()


def test_pair_flips_to_the_next_class_and_the_last_to_the_first():
    rows = TransitionMatrix.pair(0.25, 4).rows.tolist()
    assert rows == [[0.75, 0.25, 0, 0], [0, 0.75, 0.25, 0], [0, 0, 0.75, 0.25], [0.25, 0, 0, 0.75]]


def test_rows_are_kept_as_given():
    T = TransitionMatrix(ROWS)
    assert T.rows.tolist() == ROWS
    assert T.num_classes == 3
    assert T.flip_rate is None


def test_cleanlab_gives_the_transpose():
    """There noise_matrix[given, true] has columns that sum to 1; here T[true, given] has rows."""
    assert TransitionMatrix.from_cleanlab(np.transpose(ROWS)) == TransitionMatrix(ROWS)


@every_matrix
def test_what_a_matrix_says_of_itself_is_true(T):
    assert T.rows.shape == T.inverse.shape == (T.num_classes, T.num_classes)
    assert T.rows.dtype == T.inverse.dtype == T.inverse_column_sums.dtype == np.float64
    assert (T.rows >= 0).all()
    np.testing.assert_allclose(T.rows.sum(axis=1), 1, rtol=0, atol=2 * T.num_classes * EPS)


@every_matrix
def test_the_inverse_is_the_inverse(T):
    """From both sides, to a few eps times the condition number."""
    tolerance = 4 * EPS * np.linalg.cond(T.rows) * T.num_classes
    identity = np.eye(T.num_classes)
    np.testing.assert_allclose(T.rows @ T.inverse, identity, rtol=0, atol=tolerance)
    np.testing.assert_allclose(T.inverse @ T.rows, identity, rtol=0, atol=tolerance)
    assert T.inverse is T.inverse


@pytest.mark.parametrize(("eps", "k"), SYMMETRIC)
def test_closed_forms_of_symmetric_noise_equal_the_dense_ones(eps, k):
    """(T^-1 = a I + b 11', 1'T^-1 = 1'), from the same matrix given as rows."""
    closed = TransitionMatrix.symmetric(eps, k)
    dense = TransitionMatrix(closed.rows)
    assert dense.flip_rate is None
    a, b = closed.inverse_pair
    tolerance = 8 * EPS * np.linalg.cond(dense.rows) * k
    np.testing.assert_allclose(a * np.eye(k) + b, dense.inverse, rtol=0, atol=tolerance)
    sums = closed.inverse_column_sums
    np.testing.assert_allclose(sums, dense.inverse_column_sums, rtol=0, atol=tolerance * k)
    np.testing.assert_allclose(sums, dense.inverse.sum(axis=0), rtol=0, atol=tolerance * k)


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
    assert sigua.sigua_bc(T, over="batch").at(0) == (1.0,)
    with pytest.warns(UserWarning, match="never"):
        sigua.sigua_bc(T, over="classes")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


REFUSED_ROWS = {
    "negative": ([[1.1, -0.1], [0.2, 0.8]], r"got -0\.1 at \[0, 1\].*p\(observed j \| true i\)"),
    "below rounding": ([[1.0, 0.0], [-1e-7, 1 + 1e-7]], r"got -1e-07 at \[1, 0\]"),
    "nan": ([[0.5, 0.5], [float("nan"), 1.0]], r"got nan at \[1, 0\]"),
    "inf": ([[0.5, 0.5], [0.0, float("inf")]], "got inf in row 1"),
    "counts": ([[9, 1], [2, 8]], r"must each sum to 1, got 10 in row 0; try rows / rows\.sum"),
    "row 1": ([[0.9, 0.1], [0.1, 0.8]], "got 0.9 in row 1; try rows / rows"),
    "just off": ([[0.9, 0.1], [0.2, 0.80001]], "got 1.00001 in row 1"),
    "transposed": ([[0.9, 0.2], [0.1, 0.8]], "got 1.1 in row 0; try rows.T, .*from_cleanlab"),
    "wide": ([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]], r"square matrix, got shape \(2, 3\)"),
    "flat": ([0.5, 0.5], r"square matrix, got shape \(2,\)"),
    "stack": (np.ones((2, 2, 2)) / 2, r"square matrix, got shape \(2, 2, 2\)"),
    "one class": ([[1.0]], r"square matrix, got shape \(1, 1\)"),
    "no class": (np.zeros((0, 0)), r"square matrix, got shape \(0, 0\)"),
    "singular": ([[0.5, 0.5], [0.5, 0.5]], "invertible, .* at most 10000, got .* number of .*; "),
    "nearly": ([[0.5, 0.5], [0.49995, 0.50005]], r"condition number of 2e\+04; try less noise"),
}


@pytest.mark.parametrize(("rows", "message"), REFUSED_ROWS.values(), ids=REFUSED_ROWS)
def test_rows_that_are_no_transition_matrix_are_refused(rows, message):
    with pytest.raises(ValueError, match=f"^rows: .*{message}"):
        TransitionMatrix(rows)


def test_a_condition_number_just_below_the_bound_is_taken():
    """[.5 .5; .5-d .5+d] has a condition number of 1/d: 5,000 passes where 20,000 did not."""
    T = TransitionMatrix([[0.5, 0.5], [0.4998, 0.5002]])
    assert np.linalg.cond(T.rows) == pytest.approx(5000, rel=1e-3)


def test_what_is_no_matrix_is_refused_by_from_cleanlab_too():
    for value in (0.5, [0.5, 0.5]):
        with pytest.raises(ValueError, match=r"^rows: must be a square matrix, got shape"):
            TransitionMatrix.from_cleanlab(value)


def test_rows_given_to_from_cleanlab_are_told_to_go_elsewhere():
    with pytest.raises(ValueError, match=r"^noise_matrix: .* columns .* try TransitionMatrix\("):
        TransitionMatrix.from_cleanlab([[0.9, 0.1], [0.2, 0.8]])
    with pytest.raises(ValueError, match=r"^noise_matrix: .* columns .* in column 0;"):
        TransitionMatrix.from_cleanlab([[0.900005, 0.2], [0.1, 0.8]])


BAD_ARGUMENTS = {
    "rate 1": ((1, 10), r"^noise_rate: must be a number in \[0, 1\), got 1;"),
    "rate above": ((1.5, 10), r"^noise_rate: .*\[0, 1\), got 1\.5;"),
    "rate below": ((-0.1, 10), r"^noise_rate: .*\[0, 1\), got -0\.1;"),
    "rate nan": ((float("nan"), 10), "^noise_rate: .*got nan;"),
    "rate text": (("0.5", 10), "^noise_rate: .*got '0.5';"),
    "rate bool": ((True, 10), "^noise_rate: .*got True;"),
    "rate None": ((None, 10), "^noise_rate: .*got None;"),
    "one class": ((0.2, 1), "^num_classes: .*got 1;"),
    "no class": ((0.2, -3), "^num_classes: .*got -3;"),
    "fraction of a class": ((0.2, 3.5), "^num_classes: .*got 3.5;"),
    "inf classes": ((0.2, float("inf")), "^num_classes: .*got inf;"),
    "nan classes": ((0.2, float("nan")), "^num_classes: .*got nan;"),
    "text classes": ((0.2, "10"), "^num_classes: .*got '10';"),
    "bool classes": ((0.2, True), "^num_classes: .*got True;"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
@pytest.mark.parametrize("make", [TransitionMatrix.symmetric, TransitionMatrix.pair])
def test_a_rate_or_a_number_of_classes_that_is_none_is_refused(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(*arguments)


@pytest.mark.parametrize(("eps", "k"), [(0.9, 10), (0.5, 2), (0.75, 4), (0.90005, 10)])
def test_symmetric_noise_that_leaves_nothing_to_learn_is_refused(eps, k):
    """At eps = (k - 1) / k all rows are equal; `inv` would not raise there."""
    with pytest.raises(ValueError, match=r"^noise_rate: .*condition number of .*; try less noise"):
        TransitionMatrix.symmetric(eps, k)


@pytest.mark.parametrize("k", [2, 4, 10])
def test_pair_noise_of_one_half_is_refused_for_an_even_number_of_classes(k):
    with pytest.raises(
        ValueError, match=r"must make T invertible, .*condition number .*less noise"
    ):
        TransitionMatrix.pair(0.5, k)


def test_numbers_from_numpy_are_taken():
    T = TransitionMatrix.symmetric(np.float32(0.5), np.int64(10))
    assert TransitionMatrix.symmetric(0.5, 10) == T
    assert repr(T) == "TransitionMatrix.symmetric(0.5, 10)"


def test_tiny_negatives_are_clipped_and_their_rows_renormalised():
    T = TransitionMatrix([[0.9, 0.1, -1e-9], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]])
    assert T.rows[0, 2] == 0
    assert abs(T.rows[0].sum() - 1) <= EPS
    assert T.rows[1:].tolist() == [[0.25, 0.5, 0.25], [0.0, 0.25, 0.75]]


def test_float32_rows_are_renormalised_in_float64():
    rows = np.array([[0.1, 0.2, 0.7], [0.3, 0.6, 0.1], [0.05, 0.15, 0.8]], dtype=np.float32)
    T = TransitionMatrix(rows)
    assert T.rows.dtype == np.float64
    np.testing.assert_allclose(T.rows.sum(axis=1), 1, rtol=0, atol=2 * EPS)
    np.testing.assert_allclose(T.rows, rows, rtol=1e-6)


def test_the_callers_array_is_left_alone():
    rows = np.array([[0.9, 0.1 + 1e-9, -1e-9], [0.2, 0.8, 0], [0, 0.3, 0.7]])
    before = rows.copy()
    T = TransitionMatrix(rows)
    assert np.array_equal(rows, before)
    assert rows.flags.writeable
    rows[0] = 0
    assert T.rows[0, 0] > 0.8


@pytest.mark.parametrize("copied", [lambda T: T, deepcopy, lambda T: pickle.loads(pickle.dumps(T))])
@every_matrix
def test_its_arrays_are_read_only_and_stay_so_in_a_copy(T, copied):
    T.inverse  # noqa: B018  # a cached inverse travels with the copy
    for array in (copied(T).rows, copied(T).inverse):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 0.5


@every_matrix
def test_a_matrix_survives_repr_pickle_and_json(T):
    evaluated = eval(repr(T), vars(sigua))
    unpickled = pickle.loads(pickle.dumps(T))
    loaded = TransitionMatrix.from_dict(json.loads(json.dumps(T.to_dict())))
    for copy in (evaluated, unpickled, loaded, deepcopy(T)):
        assert copy == T
        assert hash(copy) == hash(T)
        assert np.array_equal(copy.rows, T.rows)
        assert copy.flip_rate == T.flip_rate
    assert repr(evaluated) == repr(unpickled) == repr(T)


def test_every_two_different_matrices_are_unequal():
    for i, T in enumerate(MATRICES):
        assert [other == T for other in MATRICES] == [i == j for j in range(len(MATRICES))]
    assert T.rows.tolist() != T
    assert TransitionMatrix.pair(0.25, 3) == TransitionMatrix(TransitionMatrix.pair(0.25, 3).rows)


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
def test_a_matrix_says_in_which_form_it_is_kept_and_a_backend_without_it_refuses(T, form):
    assert T.form == form
    assert find_form(T, {form: 1, "other": 2}) == 1
    with pytest.raises(ValueError, match=rf"^T: must be one of 'other', .*'{form}'"):
        find_form(T, {"other": 2})


def test_nothing_can_be_set():
    T = TransitionMatrix.pair(0.3, 3)
    with pytest.raises(AttributeError, match="immutable"):
        T.num_classes = 4
    assert T.num_classes == 3


class Table:
    """What the core knows of a data frame, such as a cross table of true and observed labels."""

    def __init__(self, index, columns):
        self.index, self.columns = index, columns

    def __array__(self, dtype=None, copy=None):
        return np.array([[0.9, 0.1], [0.2, 0.8]])


def test_a_table_of_the_same_classes_in_one_order_is_its_numbers():
    expected = TransitionMatrix([[0.9, 0.1], [0.2, 0.8]])
    assert TransitionMatrix(Table(["a", "b"], ["a", "b"])) == expected
    assert TransitionMatrix(Table(range(2), ["a", "b"])) == expected


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TransitionMatrix.pair(0.5, 4), ["noise_rate", "condition number"]),
        (lambda: TransitionMatrix.pair(0.2, 4).inverse_pair, ["T: must be symmetric noise"]),
        (
            lambda: TransitionMatrix([[1, 0], [1]]),
            ["rows: must be an array", "lists of different lengths"],
        ),
        (lambda: TransitionMatrix([["a", 0], [1, 0]]), ["rows: must be a square matrix"]),
        (lambda: TransitionMatrix(np.eye(2) * (1 + 0j)), ["rows: must be real", "complex128"]),
        (lambda: TransitionMatrix(np.ma.masked_less(np.eye(2), 0.5)), ["rows", "2 of them"]),
        (
            lambda: TransitionMatrix(Table(["a", "b"], ["b", "a"])),
            ["rows", "['b', 'a']", "reindex"],
        ),
        (
            lambda: TransitionMatrix(Table(["a", "b"], ["b", "c"])),
            ["rows: must be the same classes"],
        ),
    ],
)
def test_refusals_name_what_was_given(make, words):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        make()
    assert all(word in str(error.value) for word in words), error.value


def test_pair_noise_of_many_classes_never_becomes_an_array_of_k_by_k():
    """Without SciPy; 100,000 classes have 200,000 entries, and T^-1's table 100 a row."""
    tracemalloc.start()
    T = TransitionMatrix.pair(0.45, 100_000)
    assert len(T.csr.data) == 200_000
    assert repr(T) == "TransitionMatrix.pair(0.45, 100000)"
    assert T == pickle.loads(pickle.dumps(T)) == TransitionMatrix.from_dict(T.to_dict())
    assert T == TransitionMatrix(T.csr) != TransitionMatrix.pair(0.4, 100_000)
    noisy = sigua.corrupt_labels(np.arange(100_000), T)
    assert T.column_table.columns.shape == (100_000, 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60_000_000
    assert set((noisy - np.arange(100_000)) % 100_000) == {0, 1}
    assert abs((noisy != np.arange(100_000)).mean() - 0.45) < 5 * (0.45 * 0.55 / 100_000) ** 0.5


@pytest.mark.parametrize("k", [1001, 1200])
@pytest.mark.parametrize("eps", [0.0, 0.2, 0.45, 0.6, 0.9])
def test_the_inverse_of_sparse_pair_noise_is_the_inverse(eps, k):
    """Row 0 of T^-1 times T is a unit vector but for what the table leaves out, 1e-8 in all.

    The other rows are row 0 shifted.
    """
    columns, values = TransitionMatrix.pair(eps, k).inverse_table
    row = np.zeros(k)
    row[columns[0]] = values[0]
    product = (1 - eps) * row + eps * np.roll(row, 1)
    assert np.abs(product - np.eye(k)[0]).sum() <= 1e-8 + 16 * EPS * np.abs(row).sum()
    assert np.array_equal(columns[7], (columns[0] + 7) % k)
    assert np.array_equal(values[7], values[0])


@pytest.mark.parametrize(
    ("eps", "k"), [(0.5, 1002), (0.5, 100_001), (0.49999, 100_000), (0.5, 10**6)]
)
def test_sparse_pair_noise_that_leaves_too_little_to_learn_is_refused(eps, k):
    """|1 - eps + eps w| at the root of unity w that is nearest to -1: 1 - 2 eps for even k."""
    with pytest.raises(ValueError, match=r"^noise_rate: must make T invertible, .*number of"):
        TransitionMatrix.pair(eps, k)


def test_a_table_that_does_not_fit_is_refused_in_a_sentence():
    T = TransitionMatrix.pair(0.499, 100_000)
    with pytest.raises(ValueError, match=r"^T: .*backward correction.*fills in; try forward_c"):
        T.inverse_table  # noqa: B018
    with pytest.raises(ValueError, match=r"^T: must be kept sparse, got .*pair\(0.2, 4\);"):
        TransitionMatrix.pair(0.2, 4).column_table  # noqa: B018


@pytest.mark.parametrize("make", [TransitionMatrix.symmetric, TransitionMatrix.pair])
@pytest.mark.parametrize("name", ["rows", "inverse"])
def test_dense_arrays_are_refused_above_ten_thousand_classes(make, name):
    T = make(0.2, 10_001)
    with pytest.raises(
        ValueError, match=r"^T: must have at most 10000 classes for rows.* got 10001"
    ):
        getattr(T, name)
    logits = np.zeros((2, 10_001))
    with pytest.raises(ValueError, match=r"^T: must have at most 10000 classes"):
        sigua.reference.step(sigua.forward_correction(T), logits, [0, 1])


def test_a_sparse_matrix_that_needs_scipy_says_so(monkeypatch):
    """Only inverses do: a T with little noise is made, corrupts and has its columns without it."""
    for name in ("scipy", "scipy.sparse", "scipy.sparse.csgraph"):
        monkeypatch.setitem(sys.modules, name, None)
    T = sigua.mapped_transition({7: 3, 3: 2, 900: 0}, 0.75, 1500)
    assert T.column_table.columns.shape == (1500, 2)
    with pytest.raises(ImportError, match=r"^T: .*SciPy.* not installed; try pip .*'sigua\[spars"):
        T.inverse_table  # noqa: B018
    with pytest.raises(ImportError, match=r"^T: needs SciPy"):
        sigua.mapped_transition({0: 1, 1: 0}, 0.75, 1500)


def test_a_mapping_of_many_classes_is_the_sparse_form_of_a_few():
    mapping = {2: 0, 0: 1, 4: 3}
    T = sigua.mapped_transition(mapping, 0.25, 1001)
    assert np.array_equal(T.rows[:6, :6], sigua.mapped_transition(mapping, 0.25, 6).rows)
    assert np.array_equal(T.rows[6:, 6:], np.eye(995))


@pytest.mark.parametrize("data", [{"indices": [0, 2]}, {"indices": [-1, 1]}, {"data": [1, 2]}])
def test_a_damaged_dict_of_a_sparse_matrix_is_refused(data):
    good = {"data": [1.0, 1.0], "indices": [0, 1], "indptr": [0, 1, 2]}
    assert TransitionMatrix.from_dict(good).rows.tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ValueError, match=r"^rows: (must be a square matrix|must each sum to 1)"):
        TransitionMatrix.from_dict(good | data)


@pytest.mark.parametrize(
    ("data", "got"),
    [
        (None, "a NoneType"),
        ([[0.8, 0.2], [0.3, 0.7]], "a list"),
        ({}, r"an empty dict \(.*\)"),
        ({"noise_rate": 0.2}, r"noise_rate \(.*'num_classes'\)"),
        ({"noise_rate": 0.2, "num_classes": 3, "x": 1}, r"noise_rate, num_classes, x \(.*'x'\)"),
        ({"indptr": [0, 1]}, r"indptr \('data'\)"),
        *(({"data": [1.0], "indices": [0], "indptr": bad}, r"data, .*") for bad in (None, "x", -1)),
        ({"data": [1.0], "indices": [0], "indptr": {}}, "data, .*"),
    ],
)
def test_what_to_dict_never_returned_is_refused(data, got):
    with pytest.raises(ValueError, match=rf"^data: must be what to_dict returned, got {got}; try"):
        TransitionMatrix.from_dict(data)


def test_pairs_are_no_mapping():
    with pytest.raises(ValueError, match=r"^mapping: must be a dict .* got a list; try \{9: 1"):
        sigua.mapped_transition([(0, 1)], 0.4, 10)
