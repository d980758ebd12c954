"""Checked examples in each mini-batch: two outputs of one model, and the data for them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike

import sigua


def with_checked(
    model: Any,
    x: Any,
    y: ArrayLike,
    checked: ArrayLike,
    batch_size: int = 64,
    *,
    share: float = 0.5,
    seed: Any = None,
) -> tuple[Any, CheckedData]:
    """Return a model and the data to fit it to, of which a share of each mini-batch is checked.

        both, data = with_checked(model, x, y, checked)
        both.fit(data, epochs=30, callbacks=[SIGUA(method, output="noisy")])

    `both` has the weights, the optimizer and the loss of `model`, which is thereby trained, and
    predicts. It has two inputs and two outputs, "noisy" and "checked": the callback selects among
    the first, the second are trained on plainly. Their losses have equal weight, however few were
    checked.

    Args:
        model: compiled, with one input and one output.
        x: its input, an array (n, ...).
        y: the labels, (n, ...), those of checked examples corrected.
        checked: bool, (n,): whose label was checked.
        batch_size: the size of a mini-batch, at least 2.
        share: of each mini-batch that is checked, in (0, 1).
        seed: an integer or a `numpy.random.Generator`.

    Raises:
        ValueError: arguments that are not as said here, or nobody is checked.
    """
    if getattr(model, "loss", None) is None:
        raise ValueError(
            "model: must be compiled with a loss, got none; "
            'try model.compile("adam", "sparse_categorical_crossentropy")'
        )
    batches = sigua.CheckedBatches(checked, batch_size, share=share, seed=seed)
    if not batches.num_checked:
        raise ValueError("checked: must be True for some examples, got none; try model.fit(x, y)")
    data = CheckedData(x, y, batches)
    inputs = {name: keras.Input(data.x.shape[1:], name=name) for name in ("noisy", "checked")}
    both = keras.Model(inputs, {name: model(each) for name, each in inputs.items()})
    both.compile(model.optimizer, dict.fromkeys(inputs, model.loss))
    return both, data


class CheckedData(keras.utils.PyDataset):
    """Mini-batches for `with_checked`: x and y, each a dict of "noisy" and "checked"."""

    def __init__(self, x: Any, y: ArrayLike, batches: sigua.CheckedBatches, **workers: Any) -> None:
        super().__init__(**workers)
        self.x, self.y, self.batches = np.asarray(x), np.asarray(y), batches
        if not len(self.x) == len(self.y) == batches.num_examples:
            raise ValueError(
                "x: must have an entry for each of y and of checked, "
                f"got {len(self.x)}, {len(self.y)} and {batches.num_examples}; "
                "try the same examples in all"
            )

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> tuple[dict[str, Any], dict[str, Any]]:
        batch, m = self.batches[i], self.batches.num_checked
        rows = {"noisy": batch[m:], "checked": batch[:m]}
        x, y = ({name: each[some] for name, some in rows.items()} for each in (self.x, self.y))
        return x, y

    def on_epoch_end(self) -> None:
        self.batches.shuffle()
