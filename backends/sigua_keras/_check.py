"""What is refused or warned about, each in one sentence, at the user's own line where possible."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import keras

from sigua import Known, Method, SmallLoss, checks, requirements
from sigua.conditions import AllGood, reads
from sigua_keras import _loss

Groups = str | Callable[[Any, Any], Any] | None
"""Who is judged together: "class", "image", or a function of labels and predictions; None: all."""


def groups(method: Method, value: Any) -> None:
    """Raise ValueError unless groups are known, and fit the method."""
    if value is None:
        return
    if not callable(value):  # a function of (y, y_pred)
        checks.choice("groups", value, ("class", "image"))
    requirements.require_whole(method, "groups")


def reduction(loss: Any) -> None:
    """Raise ValueError on a loss that would be divided by signed weights."""
    if getattr(loss, "reduction", None) == "mean_with_sample_weight":
        raise ValueError(
            "loss: must not be divided by the sum of its weights, which are signed here, "
            "got reduction='mean_with_sample_weight'; try 'sum_over_batch_size'"
        )


def prediction(method: Method, loss: Any, y_pred: Any, groups: Groups) -> bool:
    """Return whether each example must have one class, whatever the loss.

    Raises:
        ValueError: predictions and a loss that do not fit the method, or its groups.
    """
    margins = reads(method.condition, "margins")
    one_class = groups == "class" or method.T is not None or margins
    several = _loss.function_of(loss) in _loss.BINARY and y_pred.shape[-1] != 1  # sigmoids
    requirements.require_classes(method, _loss.num_classes(loss, y_pred), "predictions")
    if margins:
        _require_cross_entropy(loss, y_pred)
    if one_class and several:
        name = "groups" if groups == "class" else "T" if method.T is not None else "method"
        raise ValueError(
            f"{name}: must have one class per example, got {_loss.name_of(loss)} for predictions "
            f"{tuple(y_pred.shape)}, each with a label; try 'categorical_crossentropy', or one "
            "output per label"
        )
    return one_class


def _require_cross_entropy(loss: Any, y_pred: Any) -> None:
    """Raise ValueError unless a loss takes one probability or logit per class."""
    name, units = _loss.name_of(loss), y_pred.shape[-1]
    fitting: tuple[Any, ...] = _loss.BINARY if units == 1 else _loss.OF_PROBABILITIES
    if not _loss.is_keras(loss):
        if _loss.option(loss, "from_logits") is None:
            raise ValueError(
                "loss: must say by an attribute from_logits whether predictions are logits or "
                f"probabilities of classes, which margins need, got {name} without it; "
                "try loss.from_logits = True"
            )
    elif _loss.function_of(loss) not in fitting:
        raise ValueError(
            "loss: must be a cross-entropy between classes, because margins are differences of "
            f"their probabilities, got {name} for predictions {tuple(y_pred.shape)}; try "
            "'sparse_categorical_crossentropy', or 'binary_crossentropy' with a last axis of 1"
        )


def reads_signs(method: Method) -> bool:
    """Return whether the sign of a sample weight marks the example."""
    return reads(method.condition, "trusted")


def weight(method: Method, value: Any) -> None:
    """Raise ValueError on no weights, or booleans, for marks."""
    got = None
    if value is None:
        got = "None" if isinstance(method.condition, Known) else None
    elif reads_signs(method) and "bool" in str(keras.ops.convert_to_tensor(value).dtype):
        got = "booleans, of which False is 0 and leaves an example out"
    if got is not None:
        raise ValueError(
            "sample_weight: must mark each example by its sign, plus for good and minus for bad, "
            f"got {got}; try sample_weight=np.where(trusted, 1.0, -1.0) in fit"
        )


def compiled(loss: Any, output: Any) -> None:
    """Raise ValueError unless a loss is compiled for an output."""
    if loss is None:
        where = "" if output is None else f" for the output {output!r}"
        raise ValueError(
            f"loss: must be compiled{where}, because validation and SIGUA use it, got None; try "
            "naming one in model.compile(optimizer, loss)"
        )


def another() -> ValueError:
    """Return the error for a second SIGUA of a model, or of an output."""
    return ValueError(
        "model: must have one SIGUA at a time for each output, got a second one; "
        "try one callback, a SIGUAModel, or attach(), and detach() the other"
    )


def counted(steps_per_epoch: int | None, stepping: bool) -> None:
    """Raise ValueError in a loop whose steps are not counted."""
    if steps_per_epoch is not None and not stepping:
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


def reached(value: bool) -> None:
    """Raise ValueError if an epoch of training never called `compute_loss`."""
    if not value:
        raise ValueError(
            "train_step: must call self.compute_loss(x, y, y_pred, sample_weight), got no call in "
            "a whole epoch, so training was plain; try computing the loss with it, and calling "
            "super().compute_loss if you override it"
        )


def lost(count: int, taking_part: int, epoch: float) -> bool:
    """Return whether some labels were not a class, and warn if so.

    Raises:
        ValueError: none was a class, so that nothing was trained.
    """
    if count and not taking_part:
        raise ValueError(
            "y: must be class indices from 0 up, one of the predictions each, got an epoch in "
            f"which no label that takes part is one ({count} are not); "
            "try np.unique(y, return_inverse=True)[1]"
        )
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
    if epoch < method.horizon or condition.noise_rate == 0:
        return False
    _, keep, forget = method.at(epoch)
    forgets = forget > (0 if condition.variant == "official" else keep)
    if good != 1 and not (forgets and bad == 0 and good > 0):
        return False
    warnings.warn(
        f"epoch {epoch:g}: no example was ever {'dropped' if good == 1 else 'bad'}, although the "
        "warm-up is over; the mini-batches are too small for the rates, or all losses are equal",
        stacklevel=3,
    )
    return True


def monitors(callbacks: Any) -> None:
    """Warn of a callback that stops or keeps a model by `val_loss`."""
    for callback in callbacks:
        chooses = getattr(callback, "save_best_only", True)  # a ModelCheckpoint may not
        if getattr(callback, "monitor", None) == "val_loss" and chooses:
            warnings.warn(
                f"{type(callback).__name__} monitors val_loss, which rises where a model stops "
                "believing wrong labels: try monitor='val_accuracy'",
                stacklevel=3,
            )
