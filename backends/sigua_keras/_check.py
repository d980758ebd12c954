"""What is refused or warned of, in one sentence each, where the user wrote it if it can be."""

from __future__ import annotations

import warnings
from typing import Any

import keras
import numpy as np

from sigua import Known, Method, SmallLoss, checks
from sigua.conditions import reads
from sigua.requirements import require_ranking, require_whole
from sigua_keras._measure import is_alias

_MARKS = "pass sample_weight=np.where(trusted, 1.0, -1.0)"


def output(value: Any) -> None:
    """Raise ValueError unless it may name an output; a bool is no index."""
    if isinstance(value, bool) or not (value is None or isinstance(value, (str, int))):
        advice = "leave it out for one output; several noisy ones have a callback each"
        rule = "must be the name or the index of an output"
        raise checks.refuse("output", rule, f"{value!r} came", advice)


def plain(loss: Any) -> None:
    """Raise ValueError for a loss that is SIGUA's already."""
    if isinstance(getattr(loss, "method", None), Method):
        rule = "must be a plain one, which SIGUA weighs"
        advice = "compile 'sparse_categorical_crossentropy', or leave the callback out"
        raise checks.refuse("loss", rule, "a SIGUALoss came, which is SIGUA's already", advice)


def known(name: str, loss: Any) -> None:
    """Raise ValueError for what `keras.losses.get` would refuse in the first step."""
    try:
        found = is_alias(loss) or keras.losses.get(loss)
    except (TypeError, ValueError):
        found = None
    if not found:
        rule, advice = "must be a loss of Keras or its name", "such as 'categorical_crossentropy'"
        raise checks.refuse(name, rule, f"{loss!r} came", advice)


def ranking(method: Method, per_class: Any, rank_by: Any) -> None:
    """Refuse a ranking that does not fit."""
    checks.flag("per_class", per_class)
    if per_class:
        require_whole(method, "per_class")
    if rank_by is not None:
        require_ranking(method)
        plain(rank_by)
        known("rank_by", rank_by)


def reads_signs(method: Method) -> bool:
    """Return whether the sign of a sample weight marks the example."""
    return reads(method.condition, "trusted")


def weight(method: Method, value: Any) -> None:
    """Refuse sample weights whose kind, or whose values where they are no tensors, mislead."""
    if value is None:
        if isinstance(method.condition, Known):
            rule = "for Known its sign marks each example, plus for good and minus for bad"
            raise checks.refuse("sample_weight", rule, "none came", f"{_MARKS} to fit")
        return
    if not hasattr(value, "dtype"):
        value = np.asarray(value)
    if reads_signs(method):
        if keras.backend.standardize_dtype(value.dtype) == "bool":
            rule = "its sign marks each example, and False is 0, which leaves it out"
            raise checks.refuse("sample_weight", rule, "booleans came", _MARKS)
    elif isinstance(value, np.ndarray) and (value < 0).any():
        rule = "must not be negative, for this method reads no signs and would climb"
        came = f"{value[value < 0][0]:g} came"
        raise checks.refuse("sample_weight", rule, came, "leave an example out by 0")


def compiled(loss: Any, output: Any) -> None:
    """Raise ValueError unless a loss is compiled, for the output if it has a name or an index."""
    if isinstance(loss, dict) and output is not None and not isinstance(output, int):
        loss = loss.get(output)
    elif isinstance(loss, (list, tuple)) and isinstance(output, int) and output < len(loss):
        loss = loss[output]
    if loss is None:
        where = "" if output is None else f" for the output {output!r}"
        raise ValueError(
            f"loss: must be compiled{where}, for validation and what SIGUA weighs, got none; try "
            "naming one in model.compile(optimizer, loss)"
        )


def rows(loss: Any, y_pred: Any) -> None:
    """Raise ValueError for predictions of which a loss of Keras has several values per example."""
    loss = "crossentropy" if is_alias(loss) else keras.losses.get(loss)
    module = getattr(getattr(loss, "fn", loss), "__module__", "keras.losses")
    if len(y_pred.shape) > 2 and module.startswith("keras."):
        raise ValueError(
            f"output: must be one row per example, (batch, classes), got {tuple(y_pred.shape)}; "
            "try pooling or flattening its other axes, or a loss with one value per example"
        )


def labels(label: Any, output: Any) -> None:
    """Raise ValueError if an output has no labels."""
    if label is None:
        raise ValueError(
            f"y: must have labels for the output {output!r}, got none; try a dict or a list with "
            "an entry per output"
        )


def apart(names: list[Any]) -> None:
    """Raise ValueError if an output has two SIGUAs, one by its name and one by its index."""
    if len(set(names)) < len(names):
        raise ValueError(
            f"output: must be another one for each SIGUA of a model, got {names}; try one callback "
            "for each"
        )


def stepping(clock: Any) -> None:
    """Raise ValueError in a loop whose steps nobody counts."""
    if clock.steps_per_epoch is not None and not clock.stepping:
        raise ValueError(
            "steps_per_epoch: must be counted by fit or train_on_batch, got a training step of "
            "another kind; try set_epoch(step / steps_per_epoch) in your loop instead"
        )


def asked(value: bool) -> None:
    """Raise ValueError if a `compute_loss` of one's own left out a corrected loss."""
    if not value:
        raise ValueError(
            "compute_loss: must call super().compute_loss(x, y, y_pred, sample_weight), where a "
            "corrected loss is, got one that does not; try adding your terms to its value"
        )


def classless(count: int, epoch: float) -> bool:
    """Return whether labels were no class; then warn."""
    if count:
        warnings.warn(
            f"epoch {epoch:g}: {count} labels were no class, and took no part (classes count from "
            "0; a row of zeros, NaN or -1 is none); give such examples a sample_weight of 0",
            stacklevel=3,
        )
    return count > 0


def idle(method: Method, epoch: float, good: float | None, bad: float | None) -> bool:
    """Return whether, after its warm-up, a selection dropped or forgot nobody; then warn."""
    condition: Any = method.condition
    if not isinstance(condition, SmallLoss) or good is None or bad is None:
        return False
    warm = epoch >= method.horizon and condition.noise_rate > 0
    if not warm:
        return False
    _, keep, forget = method.at(epoch)
    forgets = forget > (0 if condition.variant == "official" else keep)
    if good != 1 and not (forgets and bad == 0 and good > 0):
        return False
    nobody = "dropped" if good == 1 else "bad"
    warnings.warn(
        f"epoch {epoch:g}: no example was ever {nobody}, although the warm-up is over; the "
        "mini-batches are too small for the rates, or all losses tie",
        stacklevel=3,
    )
    return True


def reached(value: bool) -> None:
    """Raise ValueError if an epoch of training never asked for the loss."""
    if not value:
        rule = "must call self.compute_loss(x, y, y_pred, sample_weight)"
        came = "it did not in a whole epoch, so that training was plain"
        raise checks.refuse("train_step", rule, came, "compute the loss with it")
