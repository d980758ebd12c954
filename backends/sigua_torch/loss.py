"""`SIGUALoss`, the criterion: measure, choose, reduce."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from sigua import Method, SmallLoss, Split, checks
from sigua.conditions import choose
from sigua_torch import _check, _flat
from sigua_torch._batch import INF, DeviceBatch, HostBatch
from sigua_torch._losses import Base, Correction, Measure, class_dim, is_index
from sigua_torch._schedule import EpochNumbers, check_steps


class SIGUALoss(nn.CrossEntropyLoss):
    """A drop-in for `nn.CrossEntropyLoss` that trains with a `sigua` method.

        loss = sum_i loss_i * (good_i - gamma * bad_i) / n                               (Eq. 3)

    It *is* `nn.CrossEntropyLoss` after `.eval()`, and wherever gradients are off. The denominator
    is always the plain criterion's own, so that training is plain, too, while rho(t) = 1.

    Class weights scale losses but never decide who is good; ignored targets take no rank and are
    not in n. float16 and bfloat16 logits are measured and ranked in float32, and their loss is
    float32. A loss of +inf contributes nothing; NaN reaches you. A mini-batch in which no example
    takes part has loss 0, where `nn.CrossEntropyLoss` has NaN.

    Args:
        method: what to train with, such as `sigua.sigua_sl(noise_rate=0.5, delta=0.15)`.
        weight: float, (k,), a weight per class. For backward correction it belongs to the true
            class: the corrected loss estimates the *weighted* clean risk.
        ignore_index: the class index that takes no part.
        reduction: "mean", "sum", or "none" (the signed losses, whose mean is "mean").
        label_smoothing: in [0, 1].
        base: another loss instead of cross-entropy: a function of (input, target) that returns a
            loss per example, like PyTorch's own with reduction="none". Backward correction calls it
            once per class.
        steps_per_epoch: count the epoch in training calls, instead of waiting for `set_epoch`.
        check_labels: check the range of class indices on an accelerator, too, where that waits for
            the device. On the CPU it is always done.

    Raises:
        ValueError: an argument is out of range, or does not fit the others.

    Shape:
        As for `nn.CrossEntropyLoss`: input (k,), (N, k) or (N, k, d1, ...), with class indices or
        class probabilities. Each of the (N, d1, ...) losses is an example.

    >>> import sigua
    >>> criterion = SIGUALoss(sigua.sigua_sl(noise_rate=0.5, delta=0.25, warmup=0))
    >>> logits = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    >>> loss = criterion(logits, torch.zeros(5, dtype=torch.long))
    >>> criterion.split.good.tolist()
    [False, False, True, True, True]
    >>> criterion.split.bad.tolist()
    [False, True, False, False, False]
    """

    def __init__(
        self,
        method: Method,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        base: Base | None = None,
        steps_per_epoch: int | None = None,
        check_labels: bool = False,
    ) -> None:
        _check.options(method, weight, reduction, label_smoothing, base)
        check_steps(method, steps_per_epoch)
        super().__init__(
            weight,
            ignore_index=ignore_index,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
        self.method = method
        self.base = base
        self.check_labels = check_labels
        self._split: Split | Tensor | None = None
        self._flat = None
        if _flat.FlatRule.applies(method):
            self._flat = _flat.FlatRule(method, mean=reduction == "mean")
        self.correction = Correction(method)
        self.numbers = EpochNumbers(method, steps_per_epoch)
        self._sizes: set[int] = set()

    @property
    def split(self) -> Split | None:
        """Who was good and bad in the last training call: boolean masks with a loss's shape."""
        if isinstance(self._split, Tensor):
            return _flat.to_split(self._split)
        return self._split

    @property
    def epoch(self) -> float:
        """The current epoch t; fractional where steps are counted, and then read off the device."""
        return self.numbers.epoch

    def set_epoch(self, epoch: float) -> None:
        """Say which epoch begins, as for `DistributedSampler.set_epoch`; it counts from 0.

        Args:
            epoch: t >= 0; fractional is allowed.

        Raises:
            ValueError: `epoch` is negative, or the criterion counts by itself (`steps_per_epoch`).
        """
        if self.numbers.steps_per_epoch is not None:
            came = f"steps_per_epoch={self.numbers.steps_per_epoch} was given"
            rule = "must not be called on a criterion that counts by itself"
            raise checks.refuse("set_epoch", rule, came, "leave one of the two out")
        self.numbers.set(epoch)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.method!r})"

    def forward(self, input: Tensor, target: Tensor, trusted: Tensor | None = None) -> Tensor:
        """Return the objective; after `.eval()` or without gradients the plain loss.

        Args:
            input: logits, float, (k,), (N, k) or (N, k, d1, ...).
            target: class indices, or probabilities of the input's shape.
            trusted: bool, with a loss's shape, for the condition `sigua.Known`.

        Raises:
            ValueError: shapes, dtypes or labels that do not fit.
        """
        on_host = input.device.type == "cpu" and not torch.compiler.is_compiling()
        _check.batch(self.method, input, target, self.base is not None)
        valid = self._valid(input, target, on_host)
        if not (self.training and torch.is_grad_enabled()):
            return self._plain(input, target, valid)
        if input.dtype in (torch.float16, torch.bfloat16):
            input = input.float()
            target = target.to(input.dtype) if target.is_floating_point() else target
        if not target.is_floating_point():  # uint8 would index like a mask
            target = (target if valid is None else target.where(valid, 0)).long()
        losses, ranked, sums = self._measure(input, target, valid)
        _check.trusted(self.method, trusted, losses)
        numbers = self.numbers.now(on_host)
        self.numbers.advance()
        flat = on_host and valid is None and self.weight is None
        weights = self._flat_weights(ranked, numbers) if flat else None
        if weights is None:
            size: Any = losses.numel() if valid is None else valid.sum()
            size = int(size) if on_host else size
            mask = None if trusted is None else trusted.reshape(-1)
            batch = (HostBatch if on_host else DeviceBatch)(ranked.reshape(-1), size, mask, sums)
            split = choose(self.method.condition, batch, numbers[1:])
            shares = self._shares(input, target, valid)
            weights = self._weights(split, numbers[0], shares, size, losses.dtype)
            self._split = Split(*(mask.reshape(losses.shape) for mask in split))
            # An infinite loss says nothing; a NaN stays NaN, even times 0.
            losses = losses.masked_fill(losses.detach() == INF, 0.0)
        if on_host:
            self._warn_if_too_small(losses.numel())
        if self.reduction == "none":
            return losses * weights.reshape(losses.shape)
        return torch.dot(losses.reshape(-1), weights)

    def _valid(self, logits: Tensor, target: Tensor, on_host: bool) -> Tensor | None:
        """Return which class indices take part; None if it is known that all do."""
        if not is_index(logits, target) or target.numel() == 0 or target.is_floating_point():
            return None
        if self.base is not None and self.method.T is None:
            return target != self.ignore_index  # what else a target may be is the base's affair
        k = logits.shape[class_dim(logits)]
        if on_host and not 0 <= self.ignore_index < k:
            low, high = target.aminmax()
            if low.item() >= 0 and high.item() < k:
                return None
        valid = target != self.ignore_index
        if on_host or self.check_labels:
            _check.labels(target, valid, k)
        return valid

    def _plain(self, logits: Tensor, target: Tensor, valid: Tensor | None) -> Tensor:
        if self.base is None:
            return super().forward(logits, target)
        losses = self.base(logits, target)
        if valid is not None:
            losses = losses.masked_fill(~valid, 0.0)
        if self.reduction == "none":
            return losses
        total = losses.sum()
        if self.reduction == "sum":
            return total
        return losses.mean() if valid is None else total / valid.sum()

    def _measure(
        self, logits: Tensor, target: Tensor, valid: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the losses, what ranks them (+inf for who takes no part), and their class sums."""
        weight = None if self.weight is None else self.weight.to(logits.dtype)
        measure = Measure(weight, self.label_smoothing, self.base)
        losses = self.correction(measure, logits, target)
        if self.base is not None:
            _check.per_example(losses, logits, target)
        ranked = losses.detach()
        sums = None
        with torch.no_grad():
            if weight is not None:
                measure = Measure(None, self.label_smoothing, self.base)
                ranked = self.correction(measure, logits, target)
            sums = self.correction.class_sums(measure, logits)
        if valid is not None:
            losses = losses.masked_fill(~valid, 0.0)
            ranked = ranked.masked_fill(~valid, INF)
        return losses, ranked, None if sums is None else sums.reshape(-1)

    def _shares(self, logits: Tensor, target: Tensor, valid: Tensor | None) -> Tensor | None:
        """Return each example's part of the plain criterion's denominator; None if it is 1 each."""
        if not is_index(logits, target) or self.weight is None:
            return None if valid is None else valid.reshape(-1)
        shares = self.weight[target].to(logits.dtype)
        return (shares if valid is None else shares.masked_fill(~valid, 0.0)).reshape(-1)

    def _flat_weights(self, ranked: Tensor, numbers: tuple[Any, ...]) -> Tensor | None:
        """Return `_weights` by the short way; None where that does not apply."""
        if self._flat is None or not ranked.numel():
            return None
        found = self._flat(ranked.reshape(-1), numbers)
        if found is None:
            return None
        weights, codes = found
        self._split = codes.reshape(ranked.shape)
        return weights

    def _weights(
        self, split: Split, gamma: Any, shares: Tensor | None, size: Any, dtype: torch.dtype
    ) -> Tensor:
        """Return the factors of Eq. 3, (n,), over the plain criterion's denominator for "mean"."""
        good, bad = split.good.to(dtype), split.bad.to(dtype)
        denominator: Any = size if shares is None else shares.sum()
        if self.method.separate:
            good = good * _inverse_share(good, shares, denominator)
            bad = bad * _inverse_share(bad, shares, denominator)
        weights: Tensor = good - gamma * bad
        return weights / _or_one(denominator) if self.reduction == "mean" else weights

    def _warn_if_too_small(self, size: int) -> None:
        condition = self.method.condition
        if size in self._sizes or size > 1000 or not isinstance(condition, SmallLoss):
            return
        self._sizes.add(size)
        if size > 0 and condition.noise_rate > 0 and condition.too_small(size):
            self._sizes.update(range(1001))
            warnings.warn(
                f"a mini-batch of {size} is too small for {self.method!r}: once warm, it drops no "
                "example, or climbs on none; use larger batches (if it was only the last, partial "
                "batch of an epoch, drop_last=True)",
                stacklevel=4,
            )


def _inverse_share(mask: Tensor, shares: Tensor | None, denominator: Any) -> Tensor:
    """Return the factor that turns a mask's sum into its mean, over its share of the batch."""
    factor: Tensor = denominator / _or_one((mask if shares is None else mask * shares).sum())
    return factor


def _or_one(number: Any) -> Any:
    """Return a denominator, or 1 where it is 0 and so is everything above it."""
    return number.where(number != 0, 1.0) if isinstance(number, Tensor) else number or 1
