"""Diagnostics that are gathered on the device, and moved to the host once per epoch."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigua import Split, checks
from sigua.diagnostics import EpochReport, masks_to_count, report
from sigua_torch import _check
from sigua_torch._measure import class_dim
from sigua_torch._sigmoid import two_way


class SelectionMeter:
    """Counts good and bad examples over an epoch, how many rightly, and what is memorised.

        for x, y, intact in loader:
            logits = model(x)
            loss = criterion(logits, y)
            ...
            meter.update(criterion.split, intact=intact, logits=logits, target=y)
        print(meter.report())

    Accuracies are those during training: each mini-batch's logits are from its own step.

    Attributes:
        counts: int64 on the device, a 0-d tensor by name. With several processes, sum them over the
            processes before `report`.
        classes: int64 on the device, (2, k): how often each class was predicted, and how often it
            was the label; to be summed likewise. None without logits.
    """

    def __init__(self) -> None:
        self.counts: dict[str, Tensor] = {}
        self.classes: Tensor | None = None
        self._missing: set[int] = set()

    @torch.no_grad()
    def update(
        self,
        split: Split,
        *,
        intact: Tensor | None = None,
        logits: Tensor | None = None,
        target: Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        """Count a mini-batch. Nothing waits for the device.

        Args:
            split: `criterion.split`, after the training call.
            intact: bool, with the split's shape: which labels are right, if that is known.
            logits: (N, k) or (N, k, d1, ...), for accuracies; with `target`. For a sigmoid, with
                the split's shape, or k = 1: a logit above 0 then predicts class 1.
            target: class indices, with the split's shape.
            ignore_index: the class index that is not counted.

        Raises:
            ValueError: shapes, dtypes or devices that do not fit, other arguments or another number
                of classes than in the calls before, or, on the CPU, a class out of range.
        """
        _check_update(split, intact, logits, target)
        part, right = torch.ones_like(split.good), None
        if target is not None:
            part = target != ignore_index
        if logits is not None and target is not None:
            predicted, k = _predicted(logits, target.shape)
            self._check_classes(k)
            _in_range("target", target.masked_fill(~part, 0), k)
            right = predicted == target
        masks = masks_to_count(split, part, intact=intact, right=right)
        if self.counts and self.counts.keys() != masks.keys():
            raise ValueError(
                f"update: must count the same until report(), got {', '.join(masks)} after "
                f"{', '.join(self.counts)}; try the same arguments in each call"
            )
        for name, mask in masks.items():
            self.counts[name] = self.counts.get(name, 0) + mask.sum()
        if logits is not None and target is not None:
            found = _class_counts(predicted, target, part, k)
            self.classes = found if self.classes is None else self.classes + found

    def _check_classes(self, k: int) -> None:
        if self.classes is not None and self.classes.shape[1] != k:
            raise ValueError(
                f"logits: must have as many classes until report(), got {k} after "
                f"{self.classes.shape[1]}; try a SelectionMeter for each output"
            )

    def report(self) -> EpochReport:
        """Return the epoch's report, in one transfer, and reset the counts.

        Raises:
            ValueError: nothing was counted.

        Warns:
            UserWarning: for the second epoch in a row, a class that occurs among the labels was
                never predicted: it may be lost for good. Forward correction can do that where two
                classes are mistaken for each other.
        """
        if not self.counts:
            raise ValueError(
                "update: must be called before report, got no call; "
                "try update after each training step"
            )
        parts = [torch.stack(list(self.counts.values()))]
        parts += [] if self.classes is None else [self.classes.reshape(-1)]
        values = torch.cat(parts).tolist()
        names, self.counts, self.classes = list(self.counts), {}, None
        values, by_class = values[: len(names)], values[len(names) :]
        self._look_for_missing(by_class[: len(by_class) // 2], by_class[len(by_class) // 2 :])
        return report(dict(zip(names, values, strict=True)))

    def _look_for_missing(self, predicted: list[int], labelled: list[int]) -> None:
        """Warn of classes that were not predicted in this epoch, as in the one before."""
        pairs = enumerate(zip(predicted, labelled, strict=True))
        before, self._missing = self._missing, {i for i, (p, y) in pairs if y and not p}
        lost = sorted(self._missing & before)
        if lost:
            those = ", ".join(map(str, lost))
            warnings.warn(
                f"class {those} was never predicted, for the second epoch: with forward "
                "correction, add a tenth of plain cross-entropy; otherwise check whether it is "
                "rare (per_class=True), or whether T or the noise rate is too high",
                stacklevel=3,
            )


class LabelHistory:
    """Records each label's loss and margin, epoch by epoch, for `sigua.rank_label_issues`.

        for x, y, index in loader:  # the dataset returns index beside (x, y)
            ...
            history.update(index, logits, y)
        history.end_epoch()

    An example that an epoch leaves out (`drop_last`) keeps its values of the epoch before.

    Args:
        num_examples: n; indices are in [0, n).

    Raises:
        ValueError: `num_examples` is not a whole number of at least 1.
    """

    def __init__(self, num_examples: int) -> None:
        self.num_examples = checks.whole("num_examples", num_examples, 1, "try len(dataset)")
        self._current: Tensor | None = None
        self._is_new = False
        self._epochs: list[NDArray[np.float32]] = []

    @torch.no_grad()
    def update(self, index: Tensor, logits: Tensor, target: Tensor) -> None:
        """Record a mini-batch. Nothing waits for the device.

        Args:
            index: integers, (N,): which examples these are; on the CPU or with the logits.
            logits: float, (N, k), or (N, 1) for a sigmoid.
            target: class indices in [0, k), (N,); for a sigmoid 0 or 1.

        Raises:
            ValueError: types, dtypes, shapes or devices that do not fit, or, on the CPU, an index
                or a class out of range.
        """
        for name, value in (("index", index), ("logits", logits), ("target", target)):
            _tensor(name, value)
        if target.shape == logits.shape and target.ndim == 2 and target.shape[1] > 1:
            raise ValueError(
                "target: must be class indices of shape (N,), "
                f"got class probabilities {tuple(target.shape)}; try target.argmax(1)"
            )
        if not (logits.ndim == 2 and index.shape == target.shape == logits.shape[:1]):
            raise ValueError(
                "index: must be (N,), for logits of (N, k) and a target of (N,), got "
                f"{tuple(index.shape)}, {tuple(logits.shape)} and {tuple(target.shape)}; "
                "try an index per example"
            )
        _integers("index", index, "index.long() for numbers of examples; a mask is not allowed")
        _integers("target", target, "target.long()", (torch.uint8,))
        if not logits.is_floating_point():
            raise ValueError(
                f"logits: must be floating-point, got {logits.dtype}; try the model's own output"
            )
        _check.same_device("target", target, logits.device, "the device of logits")
        if index.device.type != "cpu":  # from where it is brought to the logits
            _check.same_device("index", index, logits.device, "the device of logits")
        if logits.shape[1] == 1:
            logits = two_way(logits[:, 0])
        _in_range("index", index, self.num_examples)
        _in_range("target", target, logits.shape[1])
        if self._current is None:
            shape = 2, self.num_examples
            with torch.inference_mode(False):  # whose tensors could not be written to later
                self._current = torch.full(shape, float("nan"), device=logits.device)
        log_p = logits.float().log_softmax(1)
        column = target.long()[:, None]
        own = log_p.gather(1, column)[:, 0]
        other = log_p.scatter(1, column, -float("inf")).amax(1)
        here = index.to(logits.device).long()
        self._current[:, here] = torch.stack([-own, own.exp() - other.exp()])
        self._is_new = True

    def end_epoch(self) -> None:
        """Move the epoch's losses and margins to the host, in one transfer.

        Raises:
            ValueError: nothing was recorded since the epoch before.
        """
        if self._current is None or not self._is_new:
            raise ValueError(
                "update: must be called before end_epoch, got no call; "
                "try update after each training step"
            )
        self._epochs.append(self._current.cpu().numpy().copy())
        self._is_new = False

    @property
    def losses(self) -> NDArray[np.float32]:
        """Plain cross-entropies, (epochs, n), float32; NaN before an example's first epoch."""
        return np.array([losses for losses, _ in self._ended()])

    @property
    def margins(self) -> NDArray[np.float32]:
        """The label's probability less the largest other, (epochs, n); NaN as for `losses`."""
        return np.array([margins for _, margins in self._ended()])

    def _ended(self) -> list[NDArray[np.float32]]:
        """Return losses and margins of each epoch, (2, n), or raise ValueError on none."""
        if not self._epochs:
            raise ValueError(
                "end_epoch: must be called after each epoch, got no call; try history.end_epoch()"
            )
        return self._epochs


def _check_update(
    split: Split, intact: Tensor | None, logits: Tensor | None, target: Tensor | None
) -> None:
    """Raise ValueError on arguments of `SelectionMeter.update` that do not fit."""
    if not isinstance(split, Split):
        raise ValueError(
            f"split: must be a sigua.Split, got {type(split).__name__}; "
            "try criterion.split after a training call"
        )
    _fit("intact", intact, split.good)
    _fit("target", target, split.good)
    if logits is not None:
        _tensor("logits", logits)
        _check.same_device("logits", logits, split.good.device, "the device of split")
    if intact is not None and intact.dtype != torch.bool:
        raise ValueError(
            f"intact: must be bool, True for a right label, got {intact.dtype}; try clean == y"
        )
    if target is not None and target.is_floating_point():
        raise ValueError(f"target: must be class indices, got {target.dtype}; try y.long()")
    if logits is not None and target is None:
        raise ValueError("target: must be given with logits, got None; try target=labels")


def _class_counts(predicted: Tensor, target: Tensor, part: Tensor, k: int) -> Tensor:
    """Return how often each class was predicted, and was the label, among valid examples."""
    ones = part.reshape(-1).long()
    rows = [column.reshape(-1).long().clamp(0, k - 1) for column in (predicted, target)]
    zeros = ones.new_zeros(k)
    return torch.stack([zeros.scatter_add(0, row, ones) for row in rows])


def _in_range(name: str, value: Tensor, size: int) -> None:
    """Raise ValueError on an index outside [0, size); on the CPU only, because it is read."""
    if value.device.type != "cpu" or not value.numel():
        return
    numbers = value.numpy()
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= size:
        raise ValueError(
            f"{name}: must lie in [0, {size}), got {low if low < 0 else high}; try counting from 0"
        )


def _predicted(logits: Tensor, shape: torch.Size) -> tuple[Tensor, int]:
    """Return the predicted class (1 for a sigmoid's logit above 0), and the number of classes."""
    if logits.shape == shape and logits.ndim:
        return (logits > 0).long(), 2
    dim = class_dim(logits)
    if logits.ndim == 0 or logits.shape[:dim] + logits.shape[dim + 1 :] != shape:
        raise ValueError(
            f"logits: must have the split's shape {tuple(shape)}, with a dimension for the classes "
            f"unless they are a sigmoid's, got {tuple(logits.shape)}; try the same mini-batch"
        )
    if logits.shape[dim] == 1:
        return (logits.squeeze(dim) > 0).long(), 2
    return logits.argmax(dim), logits.shape[dim]


def _integers(name: str, value: Tensor, advice: str, more: tuple[torch.dtype, ...] = ()) -> None:
    """Raise ValueError on floats, and on bytes and booleans, which would index like a mask."""
    if value.dtype not in (torch.int64, torch.int32, torch.int16, *more):
        raise ValueError(f"{name}: must be int64, got {value.dtype}; try {advice}")


def _tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(
            f"{name}: must be a torch tensor, got {type(value).__name__}; try torch.as_tensor(...)"
        )


def _fit(name: str, value: Tensor | None, like: Tensor) -> None:
    if value is None:
        return
    _tensor(name, value)
    if value.shape != like.shape:
        raise ValueError(
            f"{name}: must have the split's shape {tuple(like.shape)}, got {tuple(value.shape)}; "
            "try an entry per example"
        )
    _check.same_device(name, value, like.device, "the device of split")
