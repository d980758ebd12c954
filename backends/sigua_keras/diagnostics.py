"""Diagnostics of a `fit`, by a pass over the training data after each epoch, and one transfer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import Method, Split, checks, label_losses, label_margins, reference
from sigua.diagnostics import masks_to_count, report
from sigua.requirements import require_classes
from sigua_keras._outputs import Outputs


class LabelWatch(keras.callbacks.Callback):
    """Records each label's loss and margin after each epoch: for Figure 1's curves, and suspects.

        watch = LabelWatch(x, y, intact=clean == y)
        model.fit(x, y, callbacks=[SIGUA(method), watch])
        issues = sigua.rank_label_issues(margins=watch.margins, noise_rate=0.2)

    `fit` does not say which examples are in a mini-batch, so this costs a forward pass over the
    data per epoch. The logs, and so History, get `accuracy_given` and, where it is known which
    labels are right, `accuracy_intact` and `accuracy_flipped`, the share of wrong labels that were
    memorised. All are those after the epoch, with dropout off. With `method`, the logs also get
    `good_precision`, `good_recall`, `bad_precision` and `bad_recall` (see `sigua.diagnostics`) of
    its selection by the losses of the pass, among `batch_size` examples at a time.

    Args:
        x: input of `model.predict`, n examples, in the order of `y`: arrays, or a data set that
            ends and does not shuffle.
        y: the labels as given, integers in [0, k), shape (n,); 0 and 1 for one sigmoid unit.
        intact: bool, (n,): which labels are right, if that is known.
        method: its selection is judged; needs `intact`. Not `Known`, whose selection is given.
        from_logits: whether the model predicts logits, as for Keras's losses.
        batch_size: of the pass, and of the selection; use that of `fit` to make them alike.
        output: which output `y` belongs to, if the model has several: its name, or its index.

    A LabelWatch is for one model. Where that predicts NaN, loss and margin are NaN, as are
    accuracies of such examples.

    Raises:
        ValueError: labels or a mask of another shape, dtype or length, none, or below 0. When
            training begins: labels that the model has no class for, predictions that do not fit,
            or that are not probabilities.
    """

    def __init__(
        self,
        x: Any,
        y: ArrayLike,
        intact: ArrayLike | None = None,
        *,
        method: Method | None = None,
        from_logits: bool = False,
        batch_size: int = 32,
        output: str | int | None = None,
    ) -> None:
        super().__init__()
        self.output = output
        self.x, self.from_logits, self.method = x, from_logits, method
        self.batch_size = checks.whole("batch_size", batch_size, 1, "try 32, Keras's default")
        checks.same_order("y", y, x, "x")
        self.y = checks.labels("y", y, float("inf"))  # what no model has a class for
        if self.y.size == 0:
            raise ValueError("y: must have a label for each example, got none; try training data")
        given = keras.tree.flatten(x)[0]
        self._is_array = hasattr(given, "shape")
        if self._is_array:
            checks.same_length("x", range(given.shape[0]), "y", self.y)  # SciPy's have no length
        self.intact = None if intact is None else np.asarray(intact, dtype=bool)
        if self.intact is not None:
            checks.same_length("intact", self.intact, "y", self.y)
        elif method is not None:
            raise ValueError(
                "intact: must be given with method, whose selection it judges, got None; "
                "try intact=clean == y, or leaving method out"
            )
        if method is not None and "trusted" in getattr(method.condition, "reads", ()):
            raise ValueError(
                f"method: must select by losses, got {method!r}, whose good and bad are given; "
                "try leaving it out"
            )
        self._losses: list[NDArray[np.float32]] = []
        self._margins: list[NDArray[np.float32]] = []
        self._watched: Any = None
        self._first: Any = None  # inputs of a data set, to see that it does not shuffle

    @property
    def losses(self) -> NDArray[np.float32]:
        """Plain cross-entropies at the given labels, (epochs, n), float32."""
        return np.array(self._losses)

    @property
    def margins(self) -> NDArray[np.float32]:
        """The label's probability less the largest other, (epochs, n), float32."""
        return np.array(self._margins)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Check a mini-batch, to refuse now what would be refused after the first epoch.

        Raises:
            ValueError: predictions that do not fit, or that are not probabilities; another model
                than before; data that is shuffled.
        """
        if self._watched not in (None, self.model):
            raise ValueError(
                "LabelWatch: must be used for one model, got a second one; "
                "try a LabelWatch for each"
            )
        self._watched = self.model
        p = self._probabilities(steps=1)
        checks.labels("y", self.y, checks.rows_of_classes("probabilities", p).shape[1])
        _measured(label_losses, p, self.y[: len(p)])
        if self.method is not None:
            require_classes(self.method, p.shape[1], "predictions")
        if not self._is_array:
            self._predictions(steps=1)  # which sees whether the data set shuffles

    def _predictions(self, steps: int | None) -> Any:
        """Return what the model predicts, for the first `steps` mini-batches, or for all."""
        if self._is_array:
            options = {"batch_size": self.batch_size, "verbose": 0, "steps": steps}
            return self.model.predict(self.x, **options)
        found = [self.model.predict_on_batch(x) for x in self._inputs(steps)]
        return keras.tree.map_structure(lambda *parts: np.concatenate(parts), *found)

    def _inputs(self, steps: int | None) -> Iterator[Any]:
        """Yield the inputs of a data set's mini-batches; raise ValueError if it is shuffled."""
        indexed, start = isinstance(self.x, keras.utils.PyDataset), 0
        batches = (self.x[i] for i in range(len(self.x))) if indexed else iter(self.x)
        for i, batch in enumerate(itertools.islice(batches, steps)):
            x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
            first = np.asarray(keras.ops.convert_to_numpy(keras.tree.flatten(x)[0]))
            stop = start + len(first)
            checks.same_length("x", range(max(stop, len(self.y))), "y", self.y)
            if i == 0 and self._first is None:
                self._first = first
            found = y if y is None or keras.tree.is_nested(y) else keras.ops.convert_to_numpy(y)
            known = getattr(found, "shape", None) in ((stop - start,), (stop - start, 1))
            other = known and (np.ravel(found) != self.y[start:stop]).any()
            if other or (i == 0 and not np.array_equal(first, self._first, equal_nan=True)):
                raise ValueError(
                    "x: must yield the examples in the order of y in every pass, got another one; "
                    "try arrays, or a data set that does not shuffle"
                )
            start = stop
            yield x

    def _probabilities(self, steps: int | None = None) -> NDArray[np.float64]:
        """Return p, (n, k), for the first `steps` mini-batches, or for all."""
        y_pred = self._predictions(steps)
        outputs = Outputs(y_pred, getattr(self.model, "output_names", None))
        p = np.asarray(outputs.part(y_pred, outputs.index(self.output))).astype(np.float64)
        if p.ndim == 2 and p.shape[1] == 1:  # one sigmoid unit
            p = np.concatenate([0 * p if self.from_logits else 1 - p, p], axis=1)
        return np.asarray(np.exp(reference.log_softmax(p)) if self.from_logits else p)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        p = self._probabilities()
        checks.same_length("x", p, "y", self.y)  # of a data set it was not known before
        self._losses.append(_measured(label_losses, p, self.y))
        self._margins.append(_measured(label_margins, p, self.y))
        right = np.where(np.isnan(p).any(axis=1), np.nan, p.argmax(axis=1) == self.y)
        groups = {"given": np.ones(len(p), bool)}
        if self.intact is not None:
            groups |= {"intact": self.intact, "flipped": ~self.intact}
        if logs is not None:
            for name, group in groups.items():
                logs[f"accuracy_{name}"] = float(right[group].mean()) if group.any() else np.nan
            if self.method is not None and self.intact is not None:
                logs |= self._selection(self.method, self.intact, p, epoch)

    def _selection(
        self, method: Method, intact: NDArray[Any], p: NDArray[Any], epoch: int
    ) -> dict[str, float]:
        with np.errstate(divide="ignore"):
            logits = np.log(p)
        parts = (slice(i, i + self.batch_size) for i in range(0, len(p), self.batch_size))
        splits = [reference.step(method, logits[i], self.y[i], epoch).split for i in parts]
        split = Split(*(np.concatenate(masks) for masks in zip(*splits, strict=True)))
        masks = masks_to_count(split, np.ones_like(split.good), intact=intact)
        done = report({name: int(mask.sum()) for name, mask in masks.items()})
        names = ("good_precision", "good_recall", "bad_precision", "bad_recall")
        return {name: getattr(done, name) for name in names}


def _measured(measure: Any, p: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float32]:
    """Return losses or margins, (n,), with NaN where a prediction is, which the core refuses."""
    missing = np.isnan(p).any(axis=1)
    values = measure(np.where(missing[:, None], 1 / p.shape[1], p) if missing.any() else p, y)
    return np.where(missing, np.nan, values).astype(np.float32)
