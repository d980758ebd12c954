"""What the user passes, as arrays: logits, labels, masks; or a sentence on what is wrong."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from sigua import Method, checks
from sigua.requirements import require_classes


class Examples(NamedTuple):
    """A mini-batch in the form that the step uses."""

    logits: Any  # float32 or better, (n, k); None without
    labels: Any  # int32, (n,), in [0, k), or float, (n, k); None without
    where: Array | None  # bool, (n,): who takes part; None for all
    factor: Any = 1.0  # (n,), of losses and weights: NaN for traced labels that are no class

    def predictions(self) -> tuple[Array, Array]:
        """Return logits, without gradient, and labels; raise ValueError if there are none."""
        if self.logits is None:
            raise ValueError(
                "logits: must be given, with labels, to a method or groups that depend on them, "
                "got None; try logits=, labels="
            )
        return jax.lax.stop_gradient(self.logits), self.labels


def examples(method: Method, logits: Any, labels: Any, where: Any) -> Examples:
    """Return the mini-batch, checked; those who take no part have logits and labels of 0."""
    logits, labels = array("logits", logits), array("labels", labels)
    hard = labels.shape == logits.shape[:1] and is_kind(labels, jnp.integer)
    soft = labels.shape == logits.shape and is_kind(labels, jnp.floating)
    of_classes = logits.ndim == 2 and logits.shape[1] > 1 and is_kind(logits, jnp.floating)
    if not (of_classes and (hard or soft)):
        advice = "labels.astype(int), labels.argmax(-1) on other rows, or vmap to rank separately"
        if logits.ndim == 1 or logits.shape[-1:] == (1,):
            advice = "sigua_jax.two_way(z) for one sigmoid output z, (n,)"
        raise ValueError(
            "logits: must be float (n, k), with labels that are integers (n,), or class "
            f"probabilities, float (n, k), got {written(logits)} and {written(labels)}; "
            f"try {advice}"
        )
    require_classes(method, logits.shape[1])
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    if where is not None:
        where = mask("where", where, logits.shape[:1])
        logits = jnp.where(where[:, None], logits, 0.0)
        labels = jnp.where(where if hard else where[:, None], labels, jnp.zeros_like(labels))
    given = Examples(logits, labels, where)
    return _of_indices(given) if hard else _of_probabilities(given)


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


def two_way(z: Any) -> Array:
    """Return the logits of two classes, (0, z), from one sigmoid output: (n, 2) from (n,).

    Labels are then 0 and 1, or class probabilities, `jnp.stack([1 - p, p], -1)`.

    >>> two_way(jnp.array([3.0])).tolist()
    [[0.0, 3.0]]
    """
    z = array("z", z)
    return jnp.stack([jnp.zeros_like(z), z], -1)


def array(name: str, value: Any) -> Array:
    """Return a JAX array, or raise ValueError on values that JAX refuses or would wrap around."""
    try:
        words = any(isinstance(leaf, str) for leaf in jax.tree.leaves(value))
        found: Array = jnp.asarray(None if words else value)  # JAX may take words for dtypes
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name}: must be a NumPy or JAX array of numbers, in the machine's byte order, got "
            f"{getattr(value, 'dtype', type(value).__name__)}; try np.asarray(...), or astype(...)"
        ) from error
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size:
        limits: Any = np.iinfo(found.dtype)
        if value.min() < limits.min or value.max() > limits.max:
            raise ValueError(
                f"{name}: must fit in {found.dtype}, got {value.min()} to {value.max()}; "
                "try smaller numbers, or jax_enable_x64"
            )
    return found


def per_example(name: str, value: Any, shape: tuple[int, ...], kind: Any, advice: str) -> Array:
    """Return an array with an entry per example, or raise ValueError on another shape or dtype."""
    found = array(name, value)
    if found.shape != shape or not is_kind(found, kind):
        raise ValueError(
            f"{name}: must be {kind.__name__}{shape}, one per example, got {written(found)}; "
            f"try {advice}"
        )
    return found


def mask(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    """Return a mask as an array, or raise ValueError on another shape or dtype."""
    return per_example(name, value, shape, jnp.bool_, "astype(bool), or reshape")


def is_kind(found: Array, kind: Any) -> bool:
    return bool(jnp.issubdtype(found.dtype, kind))


def readable(found: Any) -> bool:
    return not isinstance(found, jax.core.Tracer)


def nan_unless(right: Any) -> Any:
    """Return a factor: 1, or NaN where what is traced turns out to be wrong."""
    return 1.0 if right is True else jnp.where(right, 1.0, jnp.nan)


def written(found: Array) -> str:
    """Return dtype and shape, such as float32(6, 10)."""
    return f"{found.dtype}{found.shape}"
