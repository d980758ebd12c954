"""`SIGUALoss`, the criterion: measure, choose, reduce."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sigua import Method, Split, checks
from sigua.conditions import no_margins, reads
from sigua_torch import _check
from sigua_torch._advice import Advice
from sigua_torch._batch import INF, find_groups
from sigua_torch._correct import Correction
from sigua_torch._flat import FlatRule, is_everyday, is_transformed, is_visible, to_split
from sigua_torch._flat_agreement import FlatAgreement
from sigua_torch._logits import logits_of
from sigua_torch._margins import Confidence, Margins
from sigua_torch._measure import Base, Measure, class_dim, is_index
from sigua_torch._pool import pool_of
from sigua_torch._schedule import EpochNumbers, check_steps
from sigua_torch._select import Examples, Selector
from sigua_torch._sigmoid import is_two_way, two_way_pair


class SIGUALoss(nn.CrossEntropyLoss):
    """A drop-in for `nn.CrossEntropyLoss` that trains with a `sigua` method.

        loss = sum_i loss_i * (good_i - gamma * bad_i) / n                               (Eq. 3)

    It *is* `nn.CrossEntropyLoss` after `.eval()`, and wherever gradients are off. The denominator
    is always the plain criterion's own, so that training is plain, too, while rho(t) = 1.

    Class weights scale losses but never decide who is good; ignored targets take no rank and are
    not in n. float16 and bfloat16 logits are measured and ranked in float32, and their loss is
    float32. A loss of +inf contributes nothing, nor does a corrected loss that another class's
    infinite loss makes infinite, of either sign; NaN reaches you. A mini-batch in which no example
    takes part has loss 0, where `nn.CrossEntropyLoss` has NaN.

    Args:
        method: what to train with, such as `sigua.sigua_sl(noise_rate=0.5, delta=0.15)`.
        weight: float, (k,), a weight per class. For backward correction it belongs to the true
            class: the corrected loss estimates the *weighted* clean risk.
        ignore_index: the target that takes no part: a class index, or with
            `base=nn.BCEWithLogitsLoss(reduction="none")` the mark of a missing label, such as -1.
            Float targets of another base have it only if it is not -100, a number like any other.
        reduction: "mean", "sum", or "none" (the signed losses, which add up to "sum").
        label_smoothing: in [0, 1].
        base: another loss instead of cross-entropy: a function of (input, target) that returns a
            loss per example, like PyTorch's own with reduction="none" and those of
            `sigua_torch.losses`. Backward correction calls it once per class, and forward
            correction gives it log-probabilities for logits. With a matrix T, 2 x 2, or a computed
            noise floor, `nn.BCEWithLogitsLoss(reduction="none")` makes the sigmoid a two-way
            softmax: one logit, and a target of 0 or 1 (or p(1)), per label; each is an example.
            Where its loss is +inf, which contributes 0, its own gradient may still be NaN: take
            log_softmax, not the logarithm of a softmax.
        steps_per_epoch: count the epoch in training calls, instead of waiting for `set_epoch`. A
            call that `torch.utils.checkpoint` repeats in the backward pass is not counted again,
            and has the numbers that it had; `torch.optim.LBFGS`, which repeats as often as it
            likes, is refused.
        check_labels: check the range of class indices on an accelerator, too, where that waits for
            the device, and in a compiled graph, by an assertion on the device. On the CPU it is
            always done, but for a compiled graph.
        per_class: select among the examples of each label apart, so that a rare or hard class is
            not dropped as a whole. A mini-batch then needs several of each. Neither this nor
            `per_image` goes with `sigua_nf` and `sigua_fc`, whose floor is that of all classes.
        per_image: for (N, k, d1, ...), select within each of the N apart, not over them all.
        rank_by: the loss per example that decides, if it is not the one that is optimised: a
            function of (input, target), such as `nn.CrossEntropyLoss(reduction="none")` beside
            `label_smoothing` or `base`, the only one that `sigua_nf` takes. Beside a sigmoid that
            was made a softmax it is given that.
        sync: select over the mini-batches of all processes of torch.distributed: True, a process
            group, or `sigua_torch.Pool(group, largest=...)`; every process must then call the
            criterion at every step, one without examples, too. By default each process selects
            among its own.

    Raises:
        ValueError: an argument is out of range, or does not fit the others.

    Its `state_dict` holds the epoch, for a resumed run to continue its ramp. The state of a model
    that contains a plain criterion loads, and training begins at epoch 0; the other way,
    `plain.load_state_dict(state, strict=False)` leaves the epoch out.

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
        sync: Any = None,
        per_class: bool = False,
        per_image: bool = False,
        rank_by: Base | None = None,
    ) -> None:
        sigmoid = is_two_way(base, method, rank_by)
        base = None if sigmoid else base
        _check.options(method, weight, ignore_index, reduction, label_smoothing, base, rank_by)
        _check.scope(method, per_class, per_image, sync)
        check_steps(method, steps_per_epoch)
        super().__init__(
            weight,
            ignore_index=int(ignore_index),
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
        self.method = method
        self.base = base
        self.sigmoid = sigmoid
        # A number to regress on may be -100, the default; a sigmoid's target may not.
        self.by_sigmoid = sigmoid or isinstance(base, nn.BCEWithLogitsLoss)
        self.ignores_floats = self.by_sigmoid or (base is not None and self.ignore_index != -100)
        self.per_class, self.per_image, self.rank_by = per_class, per_image, rank_by
        self.check_labels = check_labels
        self._select = Selector(method, mean=reduction == "mean", pool=pool_of(sync))
        by_class = reads(method.condition, "confidence")
        self.confidence = Confidence(self._select.pool) if by_class else None
        self._reads_margins = by_class or reads(method.condition, "margins")
        self.correction = Correction(method)
        self.numbers = EpochNumbers(method, steps_per_epoch)
        special = base, rank_by, self._select.pool, per_class or None, per_image or None
        self._flat: FlatRule | FlatAgreement | None = None
        if special == (None,) * 5 and FlatRule.applies(method):
            self._flat = FlatRule(method, reduction == "mean")
        elif special == (None,) * 5 and FlatAgreement.applies(method, label_smoothing):
            self._flat = FlatAgreement(reduction == "mean", self.confidence)
        self._parts = self.correction, self.numbers  # a module finds its submodules slowly
        whole = self._select.pool is None and not (per_class or per_image)
        self._advice = Advice(method, self.numbers, whole)
        self.register_load_state_dict_pre_hook(_begin_at_epoch_0)  # type: ignore[no-untyped-call]  # PyTorch's

    @property
    def split(self) -> Split | None:
        """Who was good and bad in the last training call: boolean masks with a loss's shape."""
        found = self._select.found
        return found if found is None or isinstance(found, Split) else to_split(*found)

    @property
    def epoch(self) -> float:
        """The current epoch t; fractional where steps are counted, and then read off the device."""
        return self.numbers.epoch

    def set_epoch(self, epoch: float) -> None:
        """Say which epoch begins, as for `DistributedSampler.set_epoch`; it counts from 0.

        Args:
            epoch: t >= 0; fractional is allowed, as epoch + step / len(loader).

        Raises:
            ValueError: `epoch` is negative, or the criterion counts by itself (`steps_per_epoch`).
        """
        if self.numbers.steps_per_epoch is not None:
            came = f"steps_per_epoch={self.numbers.steps_per_epoch} was given"
            rule = "must not be called on a criterion that counts by itself"
            raise checks.refuse("set_epoch", rule, came, "leave one of the two out")
        self.numbers.set(epoch)
        if epoch > 0:
            self._advice.calls_at_epoch_0 = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.method!r})"

    def forward(
        self,
        input: Tensor | Mapping[str, Tensor],
        target: Tensor,
        trusted: Tensor | Split | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Return the objective; after `.eval()` or without gradients the plain loss.

        Args:
            input: logits, float, (k,), (N, k) or (N, k, d1, ...); or a mapping with "logits" or an
                object with `.logits`, as Hugging Face's models return, and there (N, length, k)
                for a target (N, length), too. In a `CausalLMOutput...` they are of the next token,
                and are compared with that: there are (N, length - 1) losses.
            target: class indices, or probabilities of the input's shape, which sum to 1; or what
                the base compares with.
            trusted: bool, with a loss's shape, or a `sigua.Split` of two, for `sigua.Known`.
            num_items_in_batch: what "mean" divides by, instead of the examples at hand: with
                gradient accumulation, the size of the whole accumulated batch, above 0.

        Raises:
            ValueError: shapes, dtypes or labels that do not fit.
        """
        if not isinstance(input, Tensor):
            input, target = logits_of(input, target)
        if self.sigmoid:
            input, target = two_way_pair(input, target)
        if trusted is None and num_items_in_batch is None:
            loss = self._everyday(input, target)
            if loss is not None:
                self._advice.look(target.numel())
                return loss
        of_classes = self.base is None or self._reads_margins
        _check.batch(self.method, input, target, None if of_classes else self.base)
        if self.confidence is not None:
            self.confidence.check(input)
        on_host = is_visible(input)
        valid = self._valid(input, target, on_host)
        if num_items_in_batch is not None:
            _check.items(num_items_in_batch, target, valid, on_host)
        if target.is_floating_point():
            target = self._filled(input, target, valid)
            if of_classes and (on_host or self.check_labels):
                _check.probabilities(target, class_dim(input))
        if not (self.training and torch.is_grad_enabled()):
            return self._plain(input, target, valid, num_items_in_batch)
        if not on_host:
            _check.device(self.numbers.step.device, input)
        if input.dtype in (torch.float16, torch.bfloat16):
            input = input.float()
            target = target.to(input.dtype) if target.is_floating_point() else target
        if not target.is_floating_point():  # uint8 would index like a mask
            target = (target if valid is None else target.masked_fill(~valid, 0)).long()
        losses, ranked, sums = self._measure(input, target, valid)
        _check.trusted(self.method, trusted, losses)
        numbers = self.numbers.now(on_host)
        shares = self._shares(input, target, valid)
        groups = find_groups(self.per_class, self.per_image, input, target, losses.shape)
        columns = map(_flattened, (ranked, valid, shares, sums, trusted))
        margins = Margins(input, target, valid) if self._reads_margins else None
        ask = None if margins is None else self._margins_of(margins)
        examples = Examples(*columns)._replace(groups=groups, margins=ask)
        weights, split = self._select(examples, numbers, num_items_in_batch, on_host)
        if margins is not None and self.confidence is not None and not is_transformed():
            self.confidence.update(margins.sums(), num_items_in_batch)
        self.numbers.advance()
        self._select.found = _shaped(split, losses)
        if on_host:
            self._advice.look(losses.numel())
        # An infinite loss says nothing; a NaN stays NaN, even times 0.
        return self._reduce(losses.masked_fill(losses.detach() == INF, 0.0), weights)

    def _everyday(self, logits: Tensor, target: Tensor) -> Tensor | None:
        """Return the objective by the short way; None where only the general one will do."""
        if self._flat is None or torch.compiler.is_compiling() or is_transformed():
            return None
        if not is_everyday(logits, target):
            return None
        if not (self.training and torch.is_grad_enabled()) or self.weight is not None:
            return None
        if isinstance(self._flat, FlatAgreement) and logits.ndim > 2:
            return None
        k = logits.shape[1]
        low, high = target.aminmax()
        if low.item() < 0 or high.item() >= k or 0 <= self.ignore_index < k:
            return None
        if self.method.T is not None and self.method.T.num_classes != k:
            return None
        measure = Measure(None, self.label_smoothing, None)
        correction, numbers = self._parts
        losses = correction.losses_if_finite(measure, logits, target)
        found = self._flat(_flattened(losses).detach(), numbers.now(on_host=True), logits, target)
        if found is None:
            return None
        numbers.advance()
        weights, codes = found
        self._select.found = codes, losses.shape
        return self._reduce(losses, weights)

    def _reduce(self, losses: Tensor, weights: Tensor) -> Tensor:
        """Return the signed losses, or their sum; the weights are those of Eq. 3, (n,)."""
        if self.reduction == "none":
            return losses * weights.reshape(losses.shape)
        return torch.dot(_flattened(losses), weights)

    def _margins_of(self, margins: Margins) -> Callable[[bool], Tensor]:
        """Return what measures margins, by class or not."""

        def measure(by_class: bool) -> Tensor:
            if not by_class:
                return margins(None)
            if self.confidence is None:
                raise no_margins()
            return margins(self.confidence.rates())

        return measure

    def _valid(self, logits: Tensor, target: Tensor, on_host: bool) -> Tensor | None:
        """Return who takes part, with a loss's shape; None if it is known that all do."""
        if target.numel() == 0 or (target.is_floating_point() and not self.ignores_floats):
            return None
        is_float = target.is_floating_point()
        of_classes = self.base is None or self.method.T is not None or self._reads_margins
        by_class = of_classes and not is_float
        if is_float and self.sigmoid:
            target = target.select(class_dim(logits), 1)
        k = logits.shape[class_dim(logits)]
        if by_class and on_host and not 0 <= self.ignore_index < k:
            low, high = target.aminmax()
            if low.item() >= 0 and high.item() < k:
                return None
        valid = target != self.ignore_index
        if by_class and (on_host or self.check_labels):
            _check.labels(target, valid, k)
        # What else a target may be is the base's affair; and whether its loss has that shape.
        if by_class or not on_host or (is_float and not self.by_sigmoid):
            return valid
        return None if valid.all() else valid

    def _filled(self, logits: Tensor, target: Tensor, valid: Tensor | None) -> Tensor:
        """Return a float target without what is ignored in it."""
        if valid is None:
            return target
        if self.sigmoid:
            return target.masked_fill(~valid.unsqueeze(class_dim(logits)), 0.5)
        return target.masked_fill(~valid, 0.0)

    def _plain(
        self, logits: Tensor, target: Tensor, valid: Tensor | None, items: Tensor | int | None
    ) -> Tensor:
        """Return the plain criterion's loss."""
        if self.reduction != "mean":
            items = None
        reduction = self.reduction if items is None else "sum"
        weight = self.weight if self.weight is None else self.weight.to(logits.dtype)
        if self.base is None and (valid is None or not target.is_floating_point()):
            loss = F.cross_entropy(
                logits,
                target,
                weight,
                ignore_index=self.ignore_index,
                reduction=reduction,
                label_smoothing=self.label_smoothing,
            )
        else:
            if valid is not None and not target.is_floating_point():
                target = target.masked_fill(~valid, 0)
            loss = self._measure_with(weight).at_label(logits, target)
            if self.base is not None:
                _check.per_example("base", loss, logits, target, valid)
            size: Any = loss.numel()
            if valid is not None:
                loss, size = loss.masked_fill(~valid, 0.0), valid.sum()
            if reduction != "none":
                loss = loss.sum() / size if reduction == "mean" else loss.sum()
        return loss if items is None else loss / items

    def _measure_with(self, weight: Tensor | None) -> Measure:
        base = None if self.base is None else partial(_check.call, self.base)
        return Measure(weight, self.label_smoothing, base)

    def _measure(
        self, logits: Tensor, target: Tensor, valid: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the losses, what ranks them, and their class sums if the rule asks for those."""
        weight = None if self.weight is None else self.weight.to(logits.dtype)
        measure = self._measure_with(weight)
        losses = self.correction.losses(measure, logits, target)
        if self.base is not None:
            _check.per_example("base", losses, logits, target, valid)
        ranked = losses.detach()
        sums = None
        if weight is not None or self.correction.sums is not None:
            measure = measure._replace(weight=None)
            with torch.no_grad():
                ranked = self.correction.losses(measure, logits, target)
                sums = self.correction.class_sums(measure, logits)
        if self.rank_by is not None:
            with torch.no_grad():
                ranked = _check.call(self.rank_by, logits, target)
            _check.per_example("rank_by", ranked, logits, target, losses)
            ranked = ranked.to(losses.dtype)
        if valid is not None:
            losses = losses.masked_fill(~valid, 0.0)
        return losses, ranked, sums

    def _shares(self, logits: Tensor, target: Tensor, valid: Tensor | None) -> Tensor | None:
        """Return each example's part of the plain criterion's denominator; None if it is 1 each."""
        if not is_index(logits, target) or self.weight is None:
            return None
        shares = self.weight[target].to(logits.dtype)
        return shares if valid is None else shares.masked_fill(~valid, 0.0)


def _begin_at_epoch_0(
    criterion: nn.Module, state: dict[str, Any], prefix: str, *others: Any
) -> None:
    """Fill in what a plain criterion's state lacks: the epoch, and what was seen before it."""
    parts = [f"{prefix}{name}._extra_state" for name in ("numbers", "confidence")]
    if not any(part in state for part in parts):
        state[parts[0]] = torch.zeros((), dtype=torch.float64)
        if getattr(criterion, "confidence", None) is not None:
            state[parts[1]] = torch.zeros(2, 0)


def _flattened(part: Any) -> Any:
    """Return a tensor or a pair of masks as one column each."""
    if isinstance(part, Split):
        return Split(*(mask.reshape(-1) for mask in part))
    return part if part is None or part.ndim == 1 else part.reshape(-1)


def _shaped(split: Split, like: Tensor) -> Split:
    """Undo `_flattened`."""
    return Split(*(mask.reshape(like.shape) for mask in split))
