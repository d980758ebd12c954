"""A sparse T: what it holds, what it refuses, and its tables, against SciPy and fractions."""

import json
import pickle
from copy import deepcopy

import numpy as np
import pytest
import scipy.sparse as sp
from test_transition import REFUSED_NUMBERS

import sigua
from sigua import TransitionMatrix


def confusions(k, noise=0.4, seed=0):
    """In groups of 5 each class is confused with two others, or with one twice."""
    rng = np.random.default_rng(seed)
    each = np.repeat(np.arange(k), 2)
    others = np.minimum(each // 5 * 5 + (each + rng.integers(1, 5, 2 * k)) % 5, k - 1)
    rates = rng.uniform(0, noise, k)
    shares = (rng.dirichlet([1, 1], k) * rates[:, None]).ravel()
    return sp.coo_array((shares, (each, others)), shape=(k, k)) + sp.diags_array(1 - rates)


@pytest.mark.parametrize("make", [sp.coo_array, sp.coo_matrix])
@pytest.mark.parametrize("form", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
def test_every_format_is_the_same_matrix(form, make):
    rows = confusions(10).toarray()
    T = TransitionMatrix(make(rows).asformat(form))
    assert TransitionMatrix(sp.csr_array(rows)) == T
    assert np.array_equal(T.rows, TransitionMatrix(rows).rows)
    assert TransitionMatrix.from_cleanlab(make(rows.T).asformat(form)) == T
    assert np.array_equal(sp.csr_array(T.csr, shape=(10, 10)).toarray(), T.rows)
    assert (T.num_classes, T.flip_rate, T.form) == (10, None, "sparse")


def test_duplicates_add_up_and_zeros_are_no_entries():
    i, j, values = [0, 0, 0, 1, 1], [0, 1, 0, 1, 0], [0.5, 0.25, 0.25, 1, 0]
    T = TransitionMatrix(sp.coo_array((values, (i, j))))
    assert T.rows.tolist() == [[0.75, 0.25], [0, 1]]
    assert len(T.csr.data) == 3


def test_the_callers_matrix_is_left_alone_and_ours_cannot_be_changed():
    rows = sp.csr_array([[0.9, 0.1 + 1e-9, -1e-9], [0.2, 0.8, 0], [0, 0.3, 0.7]])
    before = rows.copy()
    T = TransitionMatrix(rows)
    assert (rows != before).nnz == 0
    rows.data[:] = 0
    assert T.rows[0, 0] > 0.8
    for copy in (T, deepcopy(T), pickle.loads(pickle.dumps(T))):
        for array in (*copy.csr, copy.rows, copy.inverse):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


def test_a_sparse_matrix_survives_pickle_and_json_and_prints_shortly():
    T = TransitionMatrix(confusions(5000))
    loaded = TransitionMatrix.from_dict(json.loads(json.dumps(T.to_dict())))
    for copy in (loaded, pickle.loads(pickle.dumps(T)), deepcopy(T), TransitionMatrix(T.csr)):
        assert copy == T
        assert hash(copy) == hash(T)
    assert repr(T) == f"<TransitionMatrix of 5000 classes, sparse with {len(T.csr.data)} entries>"
    method = sigua.sigua_bc(T, gamma=0.5)
    assert sigua.Method.from_dict(json.loads(json.dumps(method.to_dict()))) == method
    assert TransitionMatrix(confusions(5000, seed=1)) != T


def test_matrices_that_are_kept_in_different_ways_are_different():
    rows = TransitionMatrix.symmetric(0.5, 3).rows
    sparse = TransitionMatrix(sp.csr_array(rows))
    assert sparse != TransitionMatrix(rows)
    assert sparse != TransitionMatrix.symmetric(0.5, 3)
    pair = TransitionMatrix.pair(0.2, 2000)
    assert TransitionMatrix(sp.csr_array(pair.rows)) == pair


REFUSED = [rows for rows, _ in REFUSED_NUMBERS.values()]
REFUSED += [[[1.0]], [[0.9, 0.1], [0.0, 0.0]], [[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]]


@pytest.mark.parametrize("rows", REFUSED)
def test_what_is_refused_dense_is_refused_sparse_in_the_same_words(rows):
    with pytest.raises(ValueError, match=r"^rows: ") as as_dense:
        TransitionMatrix(rows)
    with pytest.raises(ValueError, match=r"^rows: ") as as_sparse:
        TransitionMatrix(sp.csr_array(np.array(rows)))
    ours, theirs = (
        str(error.value).partition("got a condition number of") for error in (as_sparse, as_dense)
    )
    assert (ours[0], ours[1]) == (theirs[0], theirs[1])


def test_a_sparse_matrix_has_the_noise_floor_of_its_rows():
    """Uniform, with a prior, and with observed frequencies: as the dense one, to rounding."""
    rng = np.random.default_rng(0)
    rows = 0.7 * np.eye(40) + 0.2 * np.roll(np.eye(40), 1, 1) + 0.1 * np.roll(np.eye(40), 5, 1)
    dense, sparse = TransitionMatrix(rows), TransitionMatrix(sp.csr_array(rows))
    for given in ({}, {"prior": rng.random(40)}, {"observed": 1 + rng.random(40)}):
        expected = pytest.approx(sigua.noise_floor(dense, **given), rel=1e-7)
        assert sigua.noise_floor(sparse, **given) == expected


def test_sparse_inputs_are_refused_where_arrays_are_needed():
    for noise in (
        lambda x: sigua.corrupt_labels_by_instance(x, [0, 1, 0], 0.3, 2),
        lambda x: sigua.replace_inputs(x, np.eye(3), 0.3),
    ):
        with pytest.raises(
            ValueError, match=r"^x: must be an array, got a sparse .*; try x\.toarr"
        ):
            noise(sp.csr_array(np.eye(3)))
