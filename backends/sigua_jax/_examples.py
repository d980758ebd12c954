"""The user's mini-batch, checked: logits, labels, who takes part, who is judged together."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import Array
from jax import numpy as jnp

from sigua import Method, checks
from sigua.requirements import require_classes
from sigua_jax._check import array, is_kind, mask, nan_unless, per_example, readable, written


class Examples(NamedTuple):
    """A mini-batch in the form that the step uses."""

    logits: Any
    """float32 or better, (n, k); for a loss of the user's own anything that it accepts."""
    labels: Any
    """int32, (n,), in [0, k), or float, (n, k); or anything that the loss accepts."""
    where: Array | None
    """bool, (n,): who takes part; None for all."""
    factor: Any = 1.0
    """(n,), multiplies losses and weights: NaN for traced labels that are no class."""

    def predictions(self) -> tuple[Array, Array]:
        """Return logits, without gradient, and labels; raise ValueError if there are none."""
        if self.logits is None:
            raise ValueError(
                "logits: must be given, with labels, to a method or groups that depend on them, "
                "got None; try logits=, labels="
            )
        return jax.lax.stop_gradient(self.logits), self.labels


def examples(
    method: Method, logits: Any, labels: Any, where: Any, of_classes: bool = True
) -> Examples:
    """Return the mini-batch, checked; those who take no part have logits and labels of 0.

    Args:
        method: its number of classes must be that of the logits.
        logits, labels, where: as for `sigua_loss`.
        of_classes: whether logits and labels must be of classes, or anything that a loss accepts.

    Raises:
        ValueError: arguments that do not fit the method or each other; labels that are no class,
            where they can be read.
    """
    logits, labels = array("logits", logits), array("labels", labels)
    rows = logits.ndim > 0 and labels.shape[:1] == logits.shape[:1]
    of_rows = rows and logits.ndim == 2 and logits.shape[1] > 1
    hard = of_rows and labels.ndim == 1 and is_kind(labels, jnp.integer)
    soft = of_rows and labels.shape == logits.shape and is_kind(labels, jnp.floating)
    if not rows or (of_classes and not ((hard or soft) and is_kind(logits, jnp.floating))):
        raise _misfit(logits, labels)
    if is_kind(logits, jnp.floating):
        logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    if where is not None:
        where = mask("where", where, logits.shape[:1])
        logits, labels = (jnp.where(along(where, x), x, jnp.zeros_like(x)) for x in (logits, labels))
    given = Examples(logits, labels, where)
    if of_classes:
        require_classes(method, logits.shape[1])
    if hard:
        return _of_indices(given)
    return _of_probabilities(given) if of_classes else given


def _of_indices(given: Examples) -> Examples:
    """Return labels in [0, k); a factor of NaN where they were not."""
    labels, k = given.labels, given.logits.shape[1]
    if readable(labels):
        return given._replace(labels=jnp.asarray(checks.labels("labels", labels, k), jnp.int32))
    last = min(k - 1, int(jnp.iinfo(labels.dtype).max))  # type: ignore[no-untyped-call]  # JAX's
    known = (labels >= 0) & (labels <= last)
    # A lookup beyond the last class would have no gradient, not NaN.
    labels = jnp.where(known, labels, 0).astype(jnp.int32)
    return given._replace(labels=labels, factor=nan_unless(known))


def _of_probabilities(given: Examples) -> Examples:
    """Return class probabilities in the logits' dtype; a factor of NaN where they are none."""
    labels = given.labels.astype(given.logits.dtype)
    wrong = ~(jnp.abs(labels.sum(-1) - 1) <= checks.SUM_TOLERANCE) | (labels < 0).any(-1)
    wrong = wrong if given.where is None else wrong & given.where
    if not readable(wrong):
        return given._replace(labels=labels, factor=nan_unless(~wrong))
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(
            "labels: must be class probabilities, from 0 up with sum 1, got "
            f"{labels[i].tolist()} at {i}; try class indices, or where= to leave examples out"
        )
    return given._replace(labels=labels)


def groups_of(value: Any, given: Examples, shape: tuple[int, ...]) -> Array:
    """Return integers, (n,), equal for those who are judged together, or raise ValueError."""
    if callable(value):
        value = value(*given.predictions())
    elif isinstance(value, str):
        checks.choice("groups", value, ("class",))
        value = given.predictions()[1]
    return per_example("groups", value, shape, jnp.integer, "labels.argmax(-1), or reshape")


def two_way(z: Any) -> Array:
    """Return the logits of two classes, (0, z), from one sigmoid output: (n, 2) from (n,).

    Labels are then 0 and 1, or class probabilities, `jnp.stack([1 - p, p], -1)`.

    >>> two_way(jnp.array([3.0])).tolist()
    [[0.0, 3.0]]
    """
    z = array("z", z)
    return jnp.stack([jnp.zeros_like(z), z], -1)


def along(column: Array, like: Array) -> Array:
    """Return a column (n,) as (n, 1, ...), to broadcast against an array of (n, ...)."""
    return column.reshape(-1, *[1] * (like.ndim - 1))


def _misfit(logits: Array, labels: Array) -> ValueError:
    """Return the error for logits, or for labels that do not fit them."""
    n, name = logits.shape[:1], "labels"
    advice = {n: "labels.astype(int)", logits.shape: "labels.argmax(-1)", (*n, 1): "labels[:, 0]"}
    tried = advice.get(labels.shape, "an entry for each row of logits")
    if logits.shape in (n, (*n, 1)):
        name, tried = "logits", "sigua_jax.two_way(z), for one sigmoid output z, (n,)"
    elif logits.ndim != 2:
        name, tried = "logits", "reshape, or vmap to rank separately"
    elif not is_kind(logits, jnp.floating):
        name, tried = "logits", "logits.astype(float)"
    return ValueError(
        f"{name}: must be logits, float (n, k), with labels that are integers (n,), or class "
        f"probabilities, float (n, k), got {written(logits)} and {written(labels)}; try {tried}"
    )
