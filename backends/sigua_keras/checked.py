"""Checked examples in each mini-batch: two outputs of one model, and the data for them."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import keras
import numpy as np
from keras import ops, tree
from keras.src.backend import get_keras_mask, set_keras_mask
from numpy.typing import ArrayLike, NDArray

import sigua
from sigua import checks
from sigua_keras import _loss

NAMES = ("noisy", "checked")


def with_checked(
    model: Any,
    x: Any,
    y: ArrayLike,
    checked: ArrayLike,
    batch_size: int = 64,
    *,
    share: float = 0.5,
    seed: Any = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[Any, CheckedData]:
    """Return a model and the data to fit it to, of which a share of each mini-batch is checked.

        both, data = with_checked(model, x, y, checked)
        both.fit(data, epochs=30, callbacks=[SIGUA(method, output="noisy")])

    `both` has the weights of `model`, which is thereby trained, and is compiled as `model` is. It
    has two inputs and two outputs, "noisy" and "checked": the callback selects among the first, the
    second are trained on plainly. Their losses have equal weight, however few were checked. Metrics
    are of either output, such as `noisy_accuracy`. Whatever is not training is that of `model`:
    `validation_data` are its x and y, and `both` evaluates, predicts and is saved as `model`.

    Args:
        model: compiled, with one output.
        x: its input, an array (n, ...), or a list or dict of them.
        y: the labels, (n, ...), those of checked examples corrected.
        checked: bool, (n,): whose label was checked.
        batch_size: the size of a mini-batch, at least 2.
        share: of each mini-batch that is checked, in (0, 1).
        seed: an integer or a `numpy.random.Generator`.
        sample_weight: (n, ...), as for `fit`; None for ones.

    Raises:
        ValueError: arguments that are not as said here, or nobody is checked.
    """
    if getattr(model, "loss", None) is None:
        raise ValueError(
            "model: must be compiled with a loss, got none; "
            'try model.compile("adam", "sparse_categorical_crossentropy")'
        )
    for name, rows in (("y", y), ("checked", checked), ("sample_weight", sample_weight)):
        checks.same_order(name, rows, x, "x")
    batches = sigua.CheckedBatches(checked, batch_size, share=share, seed=seed)
    if not batches.num_checked:
        raise ValueError("checked: must be True for some examples, got none; try model.fit(x, y)")
    arrays = tree.map_structure(_array, tuple(x) if isinstance(x, list) else x)
    y_pred = model(tree.map_structure(lambda each: each[:1], arrays))
    both = Both(model, y_pred)
    data = CheckedData(arrays, y, batches, sample_weight)
    _require_classes(model.loss, data.parts["y"], y_pred.shape[-1])
    both.compile(**_as_compiled(model))
    return both, data


def _array(x: Any) -> NDArray[Any]:
    found = np.asarray(x) if hasattr(x, "shape") else np.empty(())
    if found.ndim == 0:
        raise ValueError(
            "x: must be an array (n, ...), or a list or dict of them, because examples are drawn "
            f"by their index, got {type(x).__name__}; try arrays"
        )
    return found


def _require_classes(loss: Any, y: NDArray[Any], k: int) -> None:
    """Raise ValueError on labels that are no class, of which some backends make a loss of 0."""
    loss = keras.losses.get(tree.flatten(loss)[0])
    known = (y >= 0) & (y < k) & (y == np.floor(y))
    ignored = _loss.option(loss, "ignore_class")
    wrong = ~known if ignored is None else ~known & (y != ignored)
    if _loss.function_of(loss) in _loss.OF_INTEGERS and wrong.any():
        raise ValueError(
            f"y: must be classes in [0, {k}), got {y[wrong][0]}; "
            "try names, y = np.unique(y, return_inverse=True)"
        )


def _as_compiled(model: Any) -> dict[str, Any]:
    """Return the arguments of a model's `compile` for two outputs like its own."""
    given = dict(model._compile_config.config)
    for name in ("loss", "loss_weights", "metrics", "weighted_metrics"):
        if given[name] is not None:
            parts = [[_anew(each) for each in tree.flatten(given[name])] for _ in NAMES]
            parts = parts if "metrics" in name else [part[0] for part in parts]
            given[name] = dict(zip(NAMES, parts, strict=True))
    return given | {"optimizer": model.optimizer}


def _anew(metric: Any) -> Any:
    """Return a metric that counts by itself; names, functions and losses need not."""
    is_metric = isinstance(metric, keras.metrics.Metric)
    return type(metric).from_config(metric.get_config()) if is_metric else metric


class Both(keras.Model):
    """Trains a model on two parts of a mini-batch, and does all else as that model."""

    def __init__(self, model: Any, y_pred: Any) -> None:
        if tree.is_nested(y_pred):
            raise ValueError(
                "model: must have one output, which is no list or dict, got another structure; "
                "try a keras.Model of the output whose labels were checked"
            )
        super().__init__(autocast=False)  # the model casts its inputs itself
        self.model = model
        self._outputs_struct = dict.fromkeys(NAMES, y_pred)  # as a functional model has

    def call(self, inputs: dict[str, Any], training: bool | None = None) -> dict[str, Any]:
        """Call the model once, so that batch normalisation sees the whole mini-batch."""
        noisy, checked = (inputs[name] for name in NAMES)
        both = tree.map_structure(lambda *x: ops.concatenate(x), noisy, checked)
        y_pred, n = self.model(both, training=training), ops.shape(tree.flatten(noisy)[0])[0]
        return {"noisy": _part(slice(None, n), y_pred), "checked": _part(slice(n, None), y_pred)}

    def fit(self, *args: Any, class_weight: Any = None, **kwargs: Any) -> Any:
        if class_weight is not None:
            raise ValueError(
                "class_weight: must be None, because there are two outputs, got "
                f"{class_weight!r}; try with_checked(..., sample_weight=weights[y])"
            )
        validation = kwargs.get("validation_data")
        if isinstance(validation, tuple) and any(map(tree.is_nested, validation[1:])):
            raise ValueError(
                "validation_data: must be x and y of the model, which has one output, got several "
                "labels; try (x_val, y_val)"
            )
        return super().fit(*args, **kwargs)

    def evaluate(self, *args: Any, _use_cached_eval_dataset: bool = False, **kwargs: Any) -> Any:
        return self.model.evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.predict(*args, **kwargs)

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.model.save(*args, **kwargs)


def _part(rows: slice, y_pred: Any) -> Any:
    """Return rows of predictions, with what Keras hangs on them for its losses."""
    found, mask = y_pred[rows], get_keras_mask(y_pred)
    if mask is not None:
        set_keras_mask(found, mask[rows])
    logits = getattr(y_pred, "_keras_logits", None)  # on TensorFlow
    if logits is not None:
        found._keras_logits = logits[rows]
    return found


class CheckedData(keras.utils.PyDataset):
    """Mini-batches for `with_checked`: x, y and any weights, each a dict of its two parts."""

    def __init__(self, x: Any, y: Any, batches: sigua.CheckedBatches, sample_weight: Any) -> None:
        super().__init__()
        self.batches, labels = batches, np.asarray(y)
        if labels.dtype.kind not in "biuf":
            raise ValueError(
                f"y: must be numbers, got {labels.dtype}; "
                "try names, y = np.unique(words, return_inverse=True)"
            )
        parts = {"x": x, "y": labels, "sample_weight": sample_weight}
        self.parts = {name: part for name, part in parts.items() if part is not None}
        for name, part in self.parts.items():
            for each in tree.flatten(part):
                checks.same_length(name, each, "checked", range(batches.num_examples))

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> tuple[dict[str, Any], ...]:
        batch, m = self.batches[i], self.batches.num_checked
        rows = dict(zip(NAMES, (batch[m:], batch[:m]), strict=True))
        return tuple(
            {name: tree.map_structure(itemgetter(some), part) for name, some in rows.items()}
            for part in self.parts.values()
        )

    def on_epoch_end(self) -> None:
        self.batches.shuffle()
