"""What is refused or warned about, each in one sentence, at the user's own line where possible."""

from __future__ import annotations

import warnings
from typing import Any

import keras
import numpy as np

from sigua import Known, Method, SmallLoss, checks
from sigua.conditions import AllGood, reads
from sigua.requirements import require_ranking, require_whole
from sigua_keras._measure import is_alias

_MARKS = "try sample_weight=np.where(trusted, 1.0, -1.0)"


def output(value: Any) -> None:
    """Raise ValueError unless `value` can name an output; a bool is not an index."""
    if isinstance(value, bool) or not (value is None or isinstance(value, (str, int))):
        raise ValueError(
            f"output: must be the name or the index of an output, got {value!r}; "
            "try leaving it out for one output, or a callback for each noisy output"
        )


def plain(loss: Any) -> None:
    """Raise ValueError for a loss that is a SIGUALoss already."""
    if isinstance(getattr(loss, "method", None), Method):
        raise ValueError(
            "loss: must be a plain one, which SIGUA weighs, got a SIGUALoss; "
            "try 'sparse_categorical_crossentropy', or leaving the callback out"
        )


def known(name: str, loss: Any) -> None:
    """Raise ValueError for a loss that `keras.losses.get` would refuse in the first step."""
    try:
        found = is_alias(loss) or keras.losses.get(loss)
    except (TypeError, ValueError):
        found = None
    if not found:
        raise ValueError(
            f"{name}: must be a loss of Keras or its name, got {loss!r}; "
            "try 'categorical_crossentropy'"
        )


def ranking(method: Method, per_class: Any, per_image: Any, rank_by: Any) -> None:
    """Raise ValueError on a ranking that does not fit the method."""
    for name, value in (("per_class", per_class), ("per_image", per_image)):
        checks.flag(name, value)
        if value:
            require_whole(method, name)
    if rank_by is not None:
        require_ranking(method)
        plain(rank_by)
        known("rank_by", rank_by)


def reads_signs(method: Method) -> bool:
    """Return whether the sign of a sample weight marks the example."""
    return reads(method.condition, "trusted")


def weight(method: Method, value: Any) -> None:
    """Raise ValueError on booleans for marks, or on negative weights in an array for no marks."""
    if value is None:
        if isinstance(method.condition, Known):
            raise ValueError(
                "sample_weight: must mark each example by its sign for Known, plus for good and "
                f"minus for bad, got None; {_MARKS} in fit"
            )
        return
    if not hasattr(value, "dtype"):
        value = np.asarray(value)
    if reads_signs(method):
        if keras.backend.standardize_dtype(value.dtype) == "bool":
            raise ValueError(
                "sample_weight: must mark each example by its sign, got booleans, of which False "
                f"is 0 and leaves an example out; {_MARKS}"
            )
    elif isinstance(value, np.ndarray) and (value < 0).any():
        raise ValueError(
            "sample_weight: must not be negative, because this method reads no signs and would "
            f"climb, got {value[value < 0][0]:g}; try 0, which leaves an example out"
        )


def compiled(loss: Any, output: Any) -> None:
    """Raise ValueError unless a loss is compiled, for the output if it has a name or an index."""
    if isinstance(loss, dict) and output is not None and not isinstance(output, int):
        loss = loss.get(output)
    elif isinstance(loss, (list, tuple)) and isinstance(output, int) and output < len(loss):
        loss = loss[output]
    if loss is None:
        where = "" if output is None else f" for the output {output!r}"
        raise ValueError(
            f"loss: must be compiled{where}, because validation and SIGUA use it, got None; try "
            "naming one in model.compile(optimizer, loss)"
        )


def labels(label: Any, output: Any) -> None:
    """Raise ValueError if an output has no labels."""
    if label is None:
        raise ValueError(
            f"y: must have labels for the output {output!r}, got None; try a dict or a list with "
            "an entry per output"
        )


def apart(names: list[Any]) -> None:
    """Raise ValueError if an output has two SIGUAs, one by its name and one by its index."""
    if len(set(names)) < len(names):
        raise ValueError(
            f"output: must be a different one for each SIGUA of a model, got {names}; "
            "try one callback for each"
        )


def stepping(clock: Any) -> None:
    """Raise ValueError in a loop whose steps are not counted."""
    if clock.steps_per_epoch is not None and not clock.stepping:
        raise ValueError(
            "steps_per_epoch: must be None outside fit and train_on_batch, which count the steps, "
            "got a training step of another kind; "
            "try set_epoch(step / steps_per_epoch) in your loop instead"
        )


def asked(method: Method, value: bool) -> None:
    """Raise ValueError if a user's `compute_loss` left out a loss that the method changes."""
    changed = method.T is not None or not isinstance(method.condition, AllGood)
    if changed and not value:
        raise ValueError(
            "compute_loss: must call super().compute_loss(x, y, y_pred, sample_weight), which has "
            "SIGUA's loss, got one that does not; try adding your terms to its value"
        )


def classless(count: int, epoch: float) -> bool:
    """Return whether some labels were not a class, and warn if so."""
    if count:
        warnings.warn(
            f"epoch {epoch:g}: {count} labels were not a class, and took no part (classes count "
            "from 0; a fraction, NaN, -1 or a row of zeros is not one); give such examples a "
            "sample_weight of 0",
            stacklevel=3,
        )
    return count > 0


def idle(method: Method, epoch: float, good: float | None, bad: float | None) -> bool:
    """Return whether a selection dropped or forgot no example after its warm-up, and warn if so."""
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
    never = "dropped" if good == 1 else "bad"
    warnings.warn(
        f"epoch {epoch:g}: no example was ever {never}, although the warm-up is over; the "
        "mini-batches are too small for the rates, or all losses are equal",
        stacklevel=3,
    )
    return True


def reached(value: bool) -> None:
    """Raise ValueError if an epoch of training never called `compute_loss`."""
    if not value:
        raise ValueError(
            "train_step: must call self.compute_loss(x, y, y_pred, sample_weight), got no call in "
            "a whole epoch, so training was plain; try computing the loss with it, and calling "
            "super().compute_loss if you override it"
        )
