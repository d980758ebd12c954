"""The condition number and the inverse of a sparse T, without a dense k x k array.

Write T = D - N with D its diagonal. If the series M = sum_t (D^-1 |N|)^t D^-1 converges, for which
noise below one half in every row is enough, then |T^-1| <= M entry by entry, a few products with N
bound its rows, and T^-1 is the same series without the bars. Classes that fall into small groups,
each confused with its own only, need none of this: each group is inverted by itself, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from sigua.transition import _sparse
from sigua.transition._sparse import INVERSE_ERROR, Csr, Integers, Matrix, Padded
from sigua.transition._stochastic import MAX_CONDITION

MAX_GROUP = 2000
"""The most classes of a group that is inverted as a dense matrix, 32 MB."""

MAX_TERMS = 1000  # of the series; where that is not enough, T^-1 fills in, too


def condition(csr: Csr) -> float:
    """Return the condition number in the infinity norm, or a bound of it that is small enough.

    As ||T|| = 1, it is ||T^-1||: the most by which T^-1 multiplies the largest loss.

    Raises:
        ValueError: it cannot be told for so many classes with so much noise.
    """
    bounds = row_bounds(csr)
    if bounds is not None:
        return float(bounds.max())
    groups = _groups(csr)
    if max(map(len, groups)) <= MAX_GROUP:
        return max(float(np.abs(inverse).sum(axis=-1).max()) for _, inverse in _blocks(csr, groups))
    raise ValueError(
        f"rows: must have groups of at most {MAX_GROUP} classes if sparse, with noise above one "
        f"half, got a group of {max(map(len, groups))}; try less noise, dropping the rarest "
        "confusions, or a dense array"
    )


def inverse_table(csr: Csr) -> Padded:
    """Return T^-1 padded, each row off by INVERSE_ERROR in all at most.

    Raises:
        ValueError: T^-1 is not sparse.
        ImportError: SciPy is not installed.
    """
    groups = _groups(csr)
    if max(map(len, groups)) <= MAX_GROUP:
        return _grouped_inverse(csr, groups)
    table = _series(csr)
    if table is None:
        raise _sparse.fills_in(csr.size)
    return _sparse.largest(*table, INVERSE_ERROR / 2)


def row_bounds(csr: Csr) -> Matrix | None:
    """Return an upper bound of the sum of absolute values of each row of T^-1; None without one.

    If x > 0 and (D - N) x >= c > 0, then |T^-1| 1 <= x / c. First x = 1 is tried, then what
    x = D^-1 (1 + N x) converges to, which is M 1.
    """
    diagonal, others = _parted(csr)
    if not diagonal.all():
        return None
    x = np.ones(csr.size)
    for _ in range(MAX_TERMS):
        mistaken = others.times(x)
        least = (diagonal * x - mistaken).min()
        if least * MAX_CONDITION >= x.max():
            return np.asarray(x / least)
        x = (1 + mistaken) / diagonal
        if x.max() > MAX_CONDITION:  # it only grows
            return None
    return None


def _parted(csr: Csr) -> tuple[Matrix, Csr]:
    """Return the diagonal, and the matrix without it."""
    owners = csr.owners()
    on = csr.indices == owners
    return np.asarray(np.bincount(owners[on], csr.data[on], csr.size)), csr.keep(~on)


def _series(csr: Csr) -> Padded | None:
    """Return T^-1 by its series, off by INVERSE_ERROR / 2; None if that is long or fills in."""
    bounds = row_bounds(csr)
    diagonal, others = _parted(csr)
    terms = None if bounds is None else _terms(diagonal, others, bounds)
    if bounds is None or terms is None:
        return None
    sparse = _scipy("sparse")
    first = sparse.diags_array(1 / diagonal).tocsr()
    step = others._replace(data=-others.data / diagonal[others.owners()])
    step = sparse.csr_array(step, shape=first.shape)
    budget = INVERSE_ERROR / 4 / bounds.max()  # of a row; later terms multiply it by bounds at most
    total = first
    for _ in range(terms):
        total = first + step @ total
        longest = np.diff(total.indptr).max()
        if longest * csr.size > _sparse.MAX_ENTRIES:
            return None
        total.data[np.abs(total.data) < budget / longest] = 0
        total.eliminate_zeros()
    return _sparse.padded(Csr(total.data, total.indices, total.indptr))


def _terms(diagonal: Matrix, others: Csr, bounds: Matrix) -> int | None:
    """Return how many terms after the first leave out at most INVERSE_ERROR / 4 of a row."""
    for terms in range(MAX_TERMS):
        bounds = others.times(bounds) / diagonal  # of all terms from the next one on
        if bounds.max() <= INVERSE_ERROR / 4:
            return terms
    return None


def _groups(csr: Csr) -> list[Integers]:
    """Return the classes of each group: classes of different groups are never confused."""
    graph = _scipy("sparse").csr_array(csr, shape=(csr.size, csr.size))
    labels = _scipy("sparse.csgraph").connected_components(graph, directed=False)[1]
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def _grouped_inverse(csr: Csr, groups: list[Integers]) -> Padded:
    """Return T^-1 of classes in groups."""
    parts, m = [], 0
    for classes, inverse in _blocks(csr, groups):
        size = classes.shape[1]
        columns = np.broadcast_to(classes[:, None, :], inverse.shape).reshape(-1, size)
        part = _sparse.largest(columns, inverse.reshape(-1, size), INVERSE_ERROR)
        parts.append((classes.ravel(), part))
        m = max(m, part.columns.shape[1])
        if m * csr.size > _sparse.MAX_ENTRIES:
            raise _sparse.fills_in(csr.size)
    table = Padded.empty(csr.size, m)
    for rows, part in parts:
        width = part.columns.shape[1]
        table.columns[rows, :width], table.values[rows, :width] = part
    return table


def _blocks(csr: Csr, groups: list[Integers]) -> Iterator[tuple[Integers, Matrix]]:
    """Yield classes, (g, s), and the inverses of their blocks of T, (g, s, s)."""
    sizes = np.array([len(classes) for classes in groups])
    owners, place = csr.owners(), np.zeros(csr.size, dtype=np.int64)
    for size in np.unique(sizes):
        same = [groups[i] for i in np.flatnonzero(sizes == size)]
        at_once = MAX_GROUP**2 // size**2
        for first in range(0, len(same), at_once):
            classes = np.stack(same[first : first + at_once])
            group = np.full(csr.size, -1)
            group[classes] = np.arange(len(classes))[:, None]
            place[classes] = np.arange(size)
            here = np.flatnonzero(group[owners] >= 0)
            i, j = owners[here], csr.indices[here]
            blocks = np.zeros((len(classes), size, size))
            blocks[group[i], place[i], place[j]] = csr.data[here]
            yield classes, _inverted(blocks)


def _inverted(blocks: Matrix) -> Matrix:
    try:
        return np.asarray(np.linalg.inv(blocks), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.full_like(blocks, np.inf)


def _scipy(part: str) -> Any:
    try:
        return import_module(f"scipy.{part}")
    except ImportError:
        raise ImportError(
            "T: needs SciPy to invert a sparse matrix, which is not installed; "
            "try pip install 'sigua[sparse]'"
        ) from None
