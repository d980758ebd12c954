"""The executable spec, in NumPy and float64: what every adapter must equal.

Nothing here is fast. Losses are in nats; logits have shape (n, k) and labels (n,), integers in
[0, k). Whatever has another shape or range raises ValueError.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks, conditions
from sigua._method import CORRECTIONS, Method
from sigua.objective import Split, objective, signed_weights
from sigua.requirements import require_classes
from sigua.transition import TransitionMatrix

Floats = NDArray[np.float64]


@dataclass
class Batch:
    """`sigua.conditions.Batch` in NumPy."""

    losses: Floats
    trusted: Any = None
    sums: Floats | None = None
    given_margins: Floats | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.losses)

    def smallest(self, count: int) -> float:
        ordered = np.sort(np.where(np.isnan(self.losses), np.inf, self.losses))
        return float(np.concatenate([[-np.inf], ordered])[min(count, self.size)])

    def mean(self) -> np.float64:
        counted = self.losses[self.losses != np.inf]
        return np.float64(counted.sum() / max(len(counted), 1))

    def class_sums(self) -> Floats:
        if self.sums is None:
            raise conditions.no_class_sums()
        return self.sums

    def margins(self, by_class: bool = True, power: float = 0.0) -> Floats:
        if self.given_margins is None:
            raise conditions.no_margins()
        return self.given_margins


class Step(NamedTuple):
    """What was computed of one mini-batch."""

    losses: Floats
    """(n,) the loss of each example that is optimised."""
    split: Split
    objective: float
    gradient: Floats
    """(n, k) of the objective with respect to the logits."""


def log_softmax(logits: ArrayLike) -> Floats:
    """Return log p, shape (n, k)."""
    logits = checks.floats("logits", logits)
    checks.shape("logits", logits, ("n", "k"), "try logits[None] for a single example")
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def every_class(logits: ArrayLike) -> Floats:
    """Return l, shape (n, k): the cross-entropy against every class."""
    return -log_softmax(logits)


def cross_entropy(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """Return the cross-entropy at the labels, shape (n,).

    >>> cross_entropy([[0.0, 0.0]], [1]).round(4)
    array([0.6931])
    """
    return _at(every_class(logits), labels)


def backward_corrected(logits: ArrayLike, T: TransitionMatrix) -> Floats:
    """Return T^-1 l, (n, k), for every observed label (Eq. 8); see `_combined`."""
    return _combined(every_class(logits), T.inverse.T)


def _combined(losses: Floats, coefficients: Floats) -> Floats:
    """Return losses @ coefficients, or +inf where an infinite loss is in the sum.

    A coefficient of 0 drops an infinite loss. With any other, of either sign, the sum is +inf,
    which takes no side: climbing on -inf, or inf - inf, would spoil the whole mini-batch.
    """
    infinite = losses == np.inf
    total = np.where(infinite, 0.0, losses) @ coefficients
    return np.asarray(np.where(infinite @ (coefficients != 0), np.inf, total))


def forward_corrected(logits: ArrayLike, T: TransitionMatrix) -> Floats:
    """Return -log(T'p), shape (n, k): the loss of predicting every observed label."""
    return -_log_joint(logits, T)[1]


def _log_joint(logits: ArrayLike, T: TransitionMatrix) -> tuple[Floats, Floats]:
    """Return log p(true i, observed j), (n, k, k), and log p(observed j), (n, k).

    In logarithms, because p can underflow where T'p does not.
    """
    with np.errstate(divide="ignore"):  # log 0 is -inf: T has zeros
        joint = log_softmax(logits)[:, :, None] + np.log(T.rows)
        largest = np.nan_to_num(joint.max(axis=1), nan=np.nan, neginf=0.0)
        observed = largest + np.log(np.exp(joint - largest[:, None]).sum(axis=1))
    return joint, observed


def losses_and_slopes(
    method: Method, logits: ArrayLike, labels: ArrayLike
) -> tuple[Floats, Floats, Floats | None]:
    """Return losses (n,), their gradients (n, k), and, with backward correction, 1'T^-1 l (n,)."""
    checks.choice("correction", method.correction, CORRECTIONS)
    p, labels, T = np.exp(log_softmax(logits)), np.asarray(labels), method.T
    if T is None:  # no correction
        return cross_entropy(logits, labels), p - np.eye(p.shape[1])[labels], None
    if method.correction == "backward":
        sums = _combined(every_class(logits), T.inverse_column_sums[:, None])[:, 0]
        # A row of T^-1 sums to 1, so that d(row . l) / d(logits) = p - row.
        return _at(backward_corrected(logits, T), labels), p - T.inverse[labels], sums
    joint, observed = _log_joint(logits, T)
    each = np.arange(len(labels))
    with np.errstate(invalid="ignore"):  # an impossible label has no responsible class
        responsible = np.exp(joint[each, :, labels] - observed[each, labels][:, None])
    return -_at(observed, labels), p - responsible, None


def margins(
    logits: ArrayLike,
    labels: ArrayLike,
    confidence: ArrayLike | None = None,
    bounds: ArrayLike | None = None,
) -> Floats:
    """Return u at the label less the largest other u, shape (n,), in [-1, 1].

    Args:
        logits: (n, k).
        labels: (n,).
        confidence: c, (k,), by which p is divided; None for ones, and u is p.
        bounds: (k, k), of the function `bounds`, by which other u are multiplied; None for ones.

    >>> margins(np.log([[0.6, 0.4]]), [0], confidence=[0.75, 0.25]).round(3)  # u = .8 : 1.6
    array([-0.333])
    """
    p = np.exp(log_softmax(logits))
    c = np.ones(p.shape[1]) if confidence is None else checks.floats("confidence", confidence)
    checks.shape("confidence", c, p.shape[1:], "try sigua.confidence.rates(state)")
    u = p / c
    u /= u.sum(axis=1, keepdims=True)
    own = _at(u, labels)
    if bounds is not None:
        u = u * checks.floats("bounds", bounds).T[np.asarray(labels)]
    np.put_along_axis(u, np.asarray(labels)[:, None], -np.inf, axis=1)
    return np.asarray(own - u.max(axis=1))


def bounds(counts: ArrayLike, power: float) -> Floats:
    """Return min(1, (C_oy / C_yy)^power) at row o and column y, (k, k); see `sigua.Agreement`.

    Args:
        counts: (k, k), how many examples were predicted as o and labelled y, discounted.
        power: at least 0.

    >>> bounds([[7, 2], [0, 4]], power=1).round(3)  # C has rows .8, .2 and 0, 1
    array([[1. , 0.2],
           [0. , 1. ]])
    """
    table = checks.floats("counts", counts)
    C = table + np.eye(len(table))
    C /= C.sum(axis=1, keepdims=True)
    return np.asarray(np.minimum(1.0, (C / np.diag(C)) ** power))


def prediction_counts(
    logits: ArrayLike, labels: ArrayLike, confidence: ArrayLike | None = None
) -> Floats:
    """Return how many examples are predicted as o and labelled y, (k, k), for `bounds`.

    What is predicted is the class with the largest p / c. Examples whose p is NaN are left out.

    >>> prediction_counts([[1.0, 0.0], [0.0, 1.0], [3.0, 0.0]], [0, 0, 1])
    array([[1., 1.],
           [1., 0.]])
    """
    p = np.exp(log_softmax(logits))
    known = ~np.isnan(p).any(axis=1)
    u = p[known] / (1.0 if confidence is None else checks.floats("confidence", confidence))
    counts = np.zeros(p.shape[1:] * 2)
    np.add.at(counts, (u.argmax(axis=1), np.asarray(labels)[known]), 1.0)
    return counts


def confidence_sums(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """Return, by class, the sum of p(j | x) over the examples labelled j and their number, (2, k).

    `sigua.confidence.moved` adds them to the state. Examples whose p is NaN are left out.

    >>> confidence_sums(np.log([[0.6, 0.4], [0.5, 0.5]]), [0, 0]).round(3)
    array([[1.1, 0. ],
           [2. , 0. ]])
    """
    p = _at(np.exp(log_softmax(logits)), labels)
    known = ~np.isnan(p)
    k = np.shape(logits)[1]
    given = np.asarray(labels)[known]
    return np.array([np.bincount(given, p[known], k), np.bincount(given, minlength=k)])


def split(
    method: Method,
    losses: ArrayLike,
    epoch: float = 0,
    *,
    trusted: Any = None,
    class_sums: Floats | None = None,
    margins: Floats | None = None,
    groups: ArrayLike | None = None,
) -> Split:
    """Return which examples are good and which are bad, from losses of shape (n,).

    Args:
        method: its condition decides.
        losses: (n,).
        epoch: t >= 0.
        trusted: bool, (n,), or a `Split` of two masks, for the condition `Known`.
        class_sums: (n,), 1'T^-1 l.
        margins: (n,), for the condition `Agreement`: those of the function `margins`.
        groups: integers, (n,): each group is judged as a mini-batch of its own, such as the labels.
    """
    values = checks.floats("losses", losses)
    checks.shape("losses", values, ("n",), "try losses.ravel()")
    n = values.shape
    marks, numbers = _marks(trusted, n), method.at(epoch)[1:]
    sums = None if class_sums is None else _column("class_sums", class_sums, n)
    margins = None if margins is None else _column("margins", margins, n)
    of = np.zeros(n, dtype=int) if groups is None else _column("groups", groups, n)
    good, bad = np.zeros((2, *n), dtype=bool)
    for group in np.unique(of):
        own = of == group
        batch = Batch(values[own], *(_part(part, own) for part in (marks, sums, margins)))
        good[own], bad[own] = conditions.choose(method.condition, batch, numbers)
    return Split(good, bad)


def step(
    method: Method,
    logits: ArrayLike,
    labels: ArrayLike,
    epoch: float = 0,
    *,
    trusted: Any = None,
    groups: ArrayLike | None = None,
    confidence: ArrayLike | None = None,
    counts: ArrayLike | None = None,
) -> Step:
    """Measure, decide and reduce one mini-batch.

    Args:
        method: what to train with.
        logits: float, (n, k).
        labels: (n,).
        epoch: t >= 0, fractional allowed.
        trusted: as for `split`.
        groups: as for `split`.
        confidence: c, shape (k,), for a rule that reads it: `sigua.confidence.rates` of the state
            before this mini-batch; None for ones, its value before the first mini-batch.
        counts: shape (k, k), for a rule with a power: see `bounds`; None for zeros.
    """
    k = log_softmax(logits).shape[1]
    require_classes(method, k)
    losses, slopes, sums = losses_and_slopes(method, logits, labels)
    by_class = conditions.reads(method.condition, "confidence")
    power = getattr(method.condition, "power", 0.0)
    limits = bounds(np.zeros((k, k)) if counts is None else counts, power) if power else None
    found = margins(logits, labels, confidence if by_class else None, limits)
    parts: dict[str, Any] = {"trusted": trusted, "class_sums": sums, "groups": groups}
    chosen = split(method, losses, epoch, margins=found, **parts)
    weights = signed_weights(chosen, method.at(epoch)[0], separate=method.separate)
    lost = len(losses) > 0 and bool(np.isposinf(losses).all())
    value = np.inf if lost else objective(losses, weights)
    slopes = np.where(np.isposinf(losses)[:, None], 0.0, slopes)
    return Step(losses, chosen, value, slopes * weights[:, None] / max(len(losses), 1))


def _at(table: Floats, labels: ArrayLike) -> Floats:
    labels = _column("labels", checks.labels("labels", labels, table.shape[1]), table.shape[:1])
    return np.take_along_axis(table, labels[:, None], axis=1)[:, 0]


def _column(name: str, value: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array with an entry per example."""
    column = checks.array(name, value)
    checks.shape(name, column, shape, "try an entry per example")
    return column


def _marks(trusted: Any, shape: tuple[int, ...]) -> Any:
    """Return a mask, or a `Split` of two masks, as arrays; None for None."""
    if trusted is None:
        return None
    if isinstance(trusted, Split):
        return Split(*(_marks(mask, shape) for mask in trusted))
    mask = _column("trusted", trusted, shape)
    if mask.size and mask.dtype != bool:  # an empty list is float64
        raise ValueError(
            f"trusted: must be bool, one per example, got {mask.dtype}; "
            "try mask.astype(bool), or sigua.Split(good, bad) for two masks"
        )
    return mask.astype(bool)


def _part(marks: Any, own: NDArray[np.bool_]) -> Any:
    """Return the marks of a group."""
    if isinstance(marks, Split):
        return Split(*(mask[own] for mask in marks))
    return None if marks is None else marks[own]
