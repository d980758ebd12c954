"""Diagnostics of a `fit`: after each epoch a pass over the training data, and one transfer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import Method, checks, label_losses, label_margins, reference
from sigua.diagnostics import masks_to_count, report


class LabelWatch(keras.callbacks.Callback):
    """After each epoch, notes what the model makes of each label: Figure 1's curves, and suspects.

        watch = LabelWatch(x, y, intact=clean == y)
        model.fit(x, y, callbacks=[SIGUA(method), watch])
        issues = sigua.rank_label_issues(margins=watch.margins)

    `fit` does not say which examples a mini-batch holds, hence the pass; it costs a forward pass
    over the data an epoch. The logs, and so History, get `accuracy_given` and, where it is known
    which labels are right, `accuracy_intact` and `accuracy_flipped`, the share of wrong labels that
    were memorised. They are those after the epoch, with dropout off. With `method`, the logs also
    get `good_precision`, `good_recall`, `bad_precision` and `bad_recall` (see `sigua.diagnostics`)
    of what its rule chooses by the losses of the pass, among `batch_size` examples at a time.

    Args:
        x: what `model.predict` takes, n examples, in the order of `y`.
        y: the labels as given, integers in [0, k), shape (n,).
        intact: bool, (n,): whose label is right, if that is known.
        method: whose selection is judged; needs `intact`.
        from_logits: whether the model predicts logits, as for Keras's losses.
        batch_size: of the pass, and of the selection; that of `fit` makes them alike.

    Raises:
        ValueError: labels or a mask that are none, or of different lengths. After the first epoch:
            predictions that do not fit, or that are no probabilities.
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
    ) -> None:
        super().__init__()
        self.x, self.from_logits, self.method = x, from_logits, method
        self.batch_size = checks.whole("batch_size", batch_size, 1, "32 is Keras's own")
        self.y = checks.labels("y", y, np.iinfo(np.int64).max)
        self.intact = None if intact is None else np.asarray(intact, dtype=bool)
        if self.intact is not None:
            checks.same_length("intact", self.intact, "y", self.y)
        elif method is not None:
            advice = "pass intact=clean == y, or leave method out"
            raise checks.refuse("intact", "a selection is judged by it", "none came", advice)
        self._losses: list[NDArray[np.float32]] = []
        self._margins: list[NDArray[np.float32]] = []

    @property
    def losses(self) -> NDArray[np.float32]:
        """Plain cross-entropies at the given labels, (epochs, n), float32."""
        return np.array(self._losses)

    @property
    def margins(self) -> NDArray[np.float32]:
        """Probabilities of the label less the largest other, (epochs, n), float32."""
        return np.array(self._margins)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        p = np.asarray(self.model.predict(self.x, batch_size=self.batch_size, verbose=0))
        if self.from_logits:
            p = np.exp(reference.log_softmax(p))
        self._losses.append(label_losses(p, self.y).astype(np.float32))
        self._margins.append(label_margins(p, self.y).astype(np.float32))
        right = p.argmax(axis=1) == self.y
        groups = {"given": np.ones_like(right)}
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
        counts: Counter[str] = Counter()
        for start in range(0, len(p), self.batch_size):
            part = slice(start, start + self.batch_size)
            chosen = reference.step(method, logits[part], self.y[part], epoch).split
            everyone = np.ones_like(chosen.good)
            masks = masks_to_count(chosen, everyone, intact=intact[part])
            counts.update({name: int(mask.sum()) for name, mask in masks.items()})
        done = report(counts)
        names = ("good_precision", "good_recall", "bad_precision", "bad_recall")
        return {name: getattr(done, name) for name in names}
