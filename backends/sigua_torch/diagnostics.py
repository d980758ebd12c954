"""Diagnostics that are gathered on the device, and moved to the host once per epoch."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigua import Split, checks, step
from sigua.diagnostics import EpochReport, masks_to_count, report
from sigua_torch import _check

# Not torch.uint8 for indices, which would be a mask.
INTEGERS = torch.int64, torch.int32, torch.int16, torch.uint8


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
        self._kinds: str | None = None
        self._missing: set[int] = set()

    @torch.no_grad()
    def update(
        self,
        split: Split | step.Selection,
        *,
        intact: Tensor | None = None,
        logits: Tensor | None = None,
        target: Tensor | None = None,
        where: Tensor | None = None,
        ignore_index: int = -100,
    ) -> None:
        """Count a mini-batch. Nothing waits for the device.

        Args:
            split: `criterion.split`, after the training call, or what `select` returned.
            intact: bool, with the split's shape: which labels are right, if that is known.
            logits: (N, k) or (N, k, d1, ...), for accuracies; with `target`. For a sigmoid, with
                the split's shape, or k = 1: a logit above 0 then predicts class 1.
            target: class indices, with the split's shape.
            where: bool, with the split's shape: who took part, as told to the criterion; the others
                are not counted.
            ignore_index: the class index that is not counted, if the target is given.

        Raises:
            ValueError: shapes or dtypes that do not fit, other arguments or another number of
                classes than in the calls before, or, on the CPU, a class out of range.
        """
        if not isinstance(split, (Split, step.Selection)):  # as after a transform of torch.func
            advice = "criterion.split after a training call"
            _check.refuse("split", "be a sigua.Split", type(split).__name__, advice)
        good, right, found = split.good, None, None
        if intact is not None:
            _check.fits("intact", intact, good.shape, (torch.bool,), "clean == y")
        if target is not None:
            _check.fits("target", target, good.shape, INTEGERS, "class indices, y.long()")
        if where is not None:
            _check.fits("where", where, good.shape, (torch.bool,), "the criterion's own where")
        part = torch.ones_like(good) if where is None else where
        part = part if target is None else part & (target != ignore_index)
        if logits is not None:
            if target is None:
                _check.refuse("target", "be given with logits", None, "target=labels")
            right, found = _compared(logits, target, part)
        masks = masks_to_count(split, part, intact=intact, right=right)
        kinds = ", ".join([*masks, *([] if found is None else [f"{found.shape[1]} classes"])])
        if self._kinds not in (None, kinds):
            advice = "the same arguments in each call, and a SelectionMeter for each output"
            got = f"{kinds} after {self._kinds}"
            _check.refuse("update", "count the same until report()", got, advice)
        self._kinds = kinds
        self.counts = {name: self.counts.get(name, 0) + mask.sum() for name, mask in masks.items()}
        self.classes = found if found is None or self.classes is None else self.classes + found

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
            advice = "update after each training step"
            _check.refuse("update", "be called before report", "no call", advice)
        names, parts = list(self.counts), list(self.counts.values())
        parts += [] if self.classes is None else self.classes.reshape(-1).unbind()
        values = torch.stack(parts).cpu().numpy()
        self.counts, self.classes, self._kinds = {}, None, None
        self._look_for_missing(*values[len(names) :].reshape(2, -1))
        return report(dict(zip(names, values[: len(names)].tolist(), strict=True)))

    def _look_for_missing(self, predicted: NDArray[np.int64], labelled: NDArray[np.int64]) -> None:
        """Warn of classes that were not predicted in this epoch, as in the one before."""
        missing = set(np.flatnonzero((predicted == 0) & (labelled > 0)).tolist())
        lost, self._missing = sorted(missing & self._missing), missing
        if lost:
            warnings.warn(
                f"class {', '.join(map(str, lost))} was never predicted, for the second epoch: "
                "with forward correction, add a tenth of plain cross-entropy; otherwise check "
                "whether it is rare (groups='class'), or whether T or the noise rate is too high",
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
            ValueError: types, dtypes or shapes that do not fit, or, on the CPU, an index or a class
                out of range.
        """
        if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.is_floating_point():
            got = f"{tuple(np.shape(logits))} of {getattr(logits, 'dtype', type(logits).__name__)}"
            _check.refuse(
                "logits", "be a float torch tensor, (N, k)", got, "the model's own output"
            )
        _check.fits("index", index, logits.shape[:1], INTEGERS[:-1], "an index per example")
        _check.fits("target", target, logits.shape[:1], INTEGERS, "y.long(), or y.argmax(1)")
        if logits.shape[1] == 1:  # a sigmoid is a softmax of (0, z)
            logits = torch.cat([torch.zeros_like(logits), logits], 1)
        _in_range("index", index, self.num_examples)
        _in_range("target", target, logits.shape[1])
        log_p, column = logits.float().log_softmax(1), target.long()[:, None]
        own = log_p.gather(1, column)[:, 0]
        other = log_p.scatter(1, column, -float("inf")).amax(1)
        here = index.to(logits.device).long()
        if self._current is None:
            shape = 2, self.num_examples
            with torch.inference_mode(False):  # whose tensors could not be written to later
                self._current = torch.full(shape, float("nan"), device=logits.device)
        self._current[:, here] = torch.stack([-own, own.exp() - other.exp()])
        self._is_new = True

    def end_epoch(self) -> None:
        """Move the epoch's losses and margins to the host, in one transfer.

        Raises:
            ValueError: nothing was recorded since the epoch before.
        """
        if self._current is None or not self._is_new:
            advice = "update after each training step"
            _check.refuse("update", "be called before end_epoch", "no call", advice)
        self._epochs.append(self._current.cpu().numpy().copy())
        self._is_new = False

    @property
    def losses(self) -> NDArray[np.float32]:
        """Plain cross-entropies, (epochs, n), float32; NaN before an example's first epoch."""
        return self._ended(0)

    @property
    def margins(self) -> NDArray[np.float32]:
        """The label's probability less the largest other, (epochs, n); NaN as for `losses`."""
        return self._ended(1)

    def _ended(self, row: int) -> NDArray[np.float32]:
        if not self._epochs:
            advice = "history.end_epoch()"
            _check.refuse("end_epoch", "be called after each epoch", "no call", advice)
        return np.array([epoch[row] for epoch in self._epochs])


def _in_range(name: str, value: Tensor, size: int) -> None:
    """Raise ValueError on an index outside [0, size); on the CPU only, because it is read."""
    if value.is_cpu:
        outside = (value < 0) | (value >= size)
        _check.first(name, f"lie in [0, {size})", outside, value, "counting from 0")


def _compared(logits: Tensor, target: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether the model predicts the label, and how often each is predicted and labelled.

    They are bool, like the target, and int64, (2, k), of those that take part.
    """
    predicted, k = _predicted(logits, target.shape)
    label = target.masked_fill(~part, 0)
    _in_range("target", label, k)
    pairs, ones = torch.stack([predicted, label]).reshape(2, -1), part.reshape(1, -1).long()
    return predicted == target, ones.new_zeros(2, k).scatter_add(1, pairs, ones.expand_as(pairs))


def _predicted(logits: Tensor, shape: torch.Size) -> tuple[Tensor, int]:
    """Return the predicted class (1 for a sigmoid's logit above 0), and the number of classes."""
    if isinstance(logits, Tensor) and logits.ndim and logits.shape == shape:
        return (logits > 0).long(), 2
    dim = _check.class_dim(logits, shape, "split's")
    if logits.shape[dim] == 1:
        return (logits.squeeze(dim) > 0).long(), 2
    return logits.argmax(dim), logits.shape[dim]
