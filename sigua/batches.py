"""Mini-batches of which a share was checked by hand, for any loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sigua import checks


def enough(num_classes: int) -> int:
    """Return how many checked labels are enough to count T and to train on half of them.

    Fewer are worth a look all the same; `examples/checked.py` measures it.

    >>> enough(4), enough(20)
    (100, 200)
    """
    return max(100, 10 * num_classes)


class CheckedBatches:
    """Mini-batches that begin with checked examples: indices, for a loader.

    An epoch has each of the other examples once, in random order, and the checked ones as often as
    it takes to fill their share of each mini-batch. The first `num_checked` of a mini-batch are
    checked:

        batches = sigua.CheckedBatches(checked, batch_size=64)
        loader = DataLoader(dataset, batch_sampler=batches)  # PyTorch
        m = batches.num_checked
        loss = criterion(logits[m:], labels[m:]) + plain(logits[:m], labels[:m])

    `iter` begins a new epoch and draws anew; `batches[i]` is a mini-batch of the epoch that
    `shuffle` or `iter` has begun. A mini-batch has `batch_size` examples at most; the sizes in an
    epoch differ by one at most. If nobody is checked these are ordinary mini-batches.

    Args:
        checked: bool, shape (n,): whose label was checked, and corrected if it was wrong.
        batch_size: the size of a mini-batch, at least 2.
        share: of each mini-batch that is checked, in [0, 1); one example at least.
        seed: an integer or a `numpy.random.Generator`.

    Attributes:
        num_checked: how many examples of each mini-batch are checked.
        num_examples: n.

    Raises:
        ValueError: arguments that are not as said here, or everybody is checked.

    >>> batches = CheckedBatches([True, False, False, True, False, False], batch_size=4, seed=0)
    >>> len(batches), batches.num_checked
    (2, 2)
    >>> [sorted(batch[2:]) for batch in batches]
    [[1, 5], [2, 4]]
    """

    def __init__(
        self, checked: ArrayLike, batch_size: int, *, share: float = 0.5, seed: Any = None
    ) -> None:
        size = checks.whole("batch_size", batch_size, 2, "try 64")
        share = checks.number("share", share, 0, 1, "try 0.5", closed=False)
        mask = _mask(checked)
        self.num_examples = len(mask)
        self._checked, self._others = np.flatnonzero(mask), np.flatnonzero(~mask)
        most = round(share / (1 - share) * len(self._others))  # where a mini-batch has all others
        firsts = max(min(round(share * size), size - 1, most), 1)
        self.num_checked = firsts if mask.any() else 0
        self._steps = -(-len(self._others) // (size - self.num_checked))
        self._rng = checks.generator(seed)
        self.shuffle()

    def shuffle(self) -> None:
        """Begin another epoch: draw its mini-batches."""
        others = np.array_split(self._rng.permutation(self._others), self._steps)
        count = self._steps * self.num_checked  # each as often as any other, or once more
        rounds = -(-count // max(len(self._checked), 1))
        drawn = [self._rng.permutation(self._checked) for _ in range(rounds)]
        firsts = np.concatenate([self._checked[:0], *drawn])[:count].reshape(self._steps, -1)
        pairs = zip(firsts, others, strict=True)
        self._batches: list[list[int]] = [np.concatenate(pair).tolist() for pair in pairs]

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, i: int) -> list[int]:
        return self._batches[i]

    def __iter__(self) -> Iterator[list[int]]:
        self.shuffle()
        return iter(self._batches)


def _mask(checked: ArrayLike) -> NDArray[np.bool_]:
    mask = checks.array("checked", checked)
    if mask.dtype != bool or mask.ndim != 1:
        got = f"shape {mask.shape} of {mask.dtype}"
        raise ValueError(
            f"checked: must be a bool mask with an entry for each example, got {got}; "
            "try np.isin(np.arange(n), checked) of indices"
        )
    if mask.all():
        raise ValueError(
            f"checked: must leave examples unchecked, got all of {len(mask)}; "
            "try an ordinary loader and plain training"
        )
    return mask
