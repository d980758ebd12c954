"""`SIGUALoss`, the criterion: measure, choose, reduce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sigua import Method, Split, checks
from sigua.conditions import reads
from sigua_torch import _check, _graph
from sigua_torch._advice import Advice
from sigua_torch._batch import find_groups
from sigua_torch._correct import correction_of
from sigua_torch._everyday import Everyday
from sigua_torch._examples import Examples
from sigua_torch._flat import INF, is_transformed
from sigua_torch._logits import logits_of
from sigua_torch._margins import Confidence, Margins
from sigua_torch._measure import Base
from sigua_torch._measured import Measured, measured, plain
from sigua_torch._options import REDUCTIONS, check_options, check_scope
from sigua_torch._pool import pool_of
from sigua_torch._schedule import EpochNumbers, check_steps
from sigua_torch._select import Columns, LastSplit, Selector, flattened
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
    `plain.load_state_dict(state, strict=False)` leaves the epoch out. A method that keeps a class
    confidence, as `sigua_ag` does, has that in its state, too: to load the state of another method,
    or load its state into another, pass `strict=False`; the epoch is loaded.

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
        check_options(
            method, weight, ignore_index, reduction, label_smoothing, base, rank_by, check_labels
        )
        check_scope(method, per_class, per_image, sync)
        check_steps(method, steps_per_epoch)
        super().__init__(
            weight,
            ignore_index=int(ignore_index),
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
        self._method, self._per_class, self._per_image = method, per_class, per_image
        self.base, self.rank_by = base, rank_by
        self.sigmoid = sigmoid
        self.by_sigmoid = sigmoid or isinstance(base, nn.BCEWithLogitsLoss)
        self.check_labels = check_labels
        self._select = Selector(method, pool=pool_of(sync))
        by_class = reads(method.condition, "confidence")
        self.confidence = Confidence(self._select.pool) if by_class else None
        self.reads_margins = by_class or reads(method.condition, "margins")
        self.correction = correction_of(method)
        self.numbers = EpochNumbers(method, steps_per_epoch)
        self._last = LastSplit()
        self._whole = self._select.pool is None and not (per_class or per_image)
        self._flat = Everyday.of(self, self._last) if self._whole else None
        self._advice = Advice(method, self.numbers, self._whole)

    @property
    def method(self) -> Method:
        """What it trains with; for another method make another criterion, as for the next two."""
        return self._method

    @property
    def per_class(self) -> bool:
        """Whether the examples of each label are selected among apart."""
        return self._per_class

    @property
    def per_image(self) -> bool:
        """Whether each of the N is."""
        return self._per_image

    @property
    def is_usual(self) -> bool:
        """Whether all examples are judged together, by the loss of `nn.CrossEntropyLoss`."""
        return self._whole and self.base is None and self.rank_by is None

    @property
    def ignores_floats(self) -> bool:
        """Whether a float target may be ignored.

        A number to regress on may be -100, the default; a sigmoid's target may not.
        """
        return self.by_sigmoid or (self.base is not None and self.ignore_index != -100)

    @property
    def averages(self) -> bool:
        """Whether the reduction is "mean"; like `nn.CrossEntropyLoss`, it obeys a change."""
        if self.reduction not in REDUCTIONS:
            checks.choice("reduction", self.reduction, REDUCTIONS)
        return self.reduction == "mean"

    @property
    def split(self) -> Split | None:
        """Who was good and bad in the last training call: boolean masks with a loss's shape."""
        return self._last.masks()

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
            raise ValueError(
                "set_epoch: must not be called on a criterion that counts by itself, got "
                f"steps_per_epoch={self.numbers.steps_per_epoch}; try leaving one of the two out"
            )
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
        if self._flat is not None and trusted is None and num_items_in_batch is None:
            short = self._flat(self, input, target)
            if short is not None:
                self._advice.look(target.numel())
                return self._reduce(*short)
        examples = Examples.of(self, input, target, num_items_in_batch)
        if not (self.training and torch.is_grad_enabled()):
            return plain(self, examples)
        examples = examples.for_training(self)
        found = measured(self, examples)
        _check.trusted(self.method, trusted, found.losses)
        weights = self._choose(examples, found, trusted)
        if examples.on_host:
            self._advice.look(found.losses.numel())
        # An infinite loss says nothing; a NaN stays NaN, even times 0.
        if _graph.is_here(weights):
            return self._reduce(_graph.finite(found.losses, weights), weights)
        infinite = found.losses.detach() == INF
        return self._reduce(found.losses.masked_fill(infinite, 0.0), weights)

    def _choose(self, examples: Examples, found: Measured, trusted: Any) -> Tensor:
        """Return the weights of Eq. 3, (n,), and keep who was good and bad."""
        logits, target, valid, items, on_host = examples
        numbers, shape = self.numbers.now(on_host), found.losses.shape
        groups = find_groups(self.per_class, self.per_image, logits, target, shape)
        margins = Margins(logits, target, valid) if self.reads_margins else None
        ask = None if margins is None else margins.measure(self.confidence)
        columns = Columns.of(examples, found, trusted, groups, ask)
        weights, split = self._select(columns, numbers, items, on_host, self.averages)
        if margins is not None and self.confidence is not None and not is_transformed():
            self.confidence.update(margins.sums(), items)
        self.numbers.advance()
        self._last.found = Split(*(mask.reshape(shape) for mask in split))
        return weights

    def _reduce(self, losses: Tensor, weights: Tensor) -> Tensor:
        """Return the signed losses, or their sum; the weights are those of Eq. 3, (n,)."""
        if self.reduction == "none":
            return losses * weights.reshape(losses.shape)
        return torch.dot(flattened(losses), weights)

    def _replicate_for_data_parallel(self) -> Any:
        if self.training:
            raise ValueError(
                "criterion: must be outside of nn.DataParallel, which drops what its copies count, "
                "got one inside; try criterion(parallel_model(inputs), labels)"
            )
        copy: nn.Module = super()._replicate_for_data_parallel()  # type: ignore[no-untyped-call]  # PyTorch's
        return copy

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        epoch, seen = (f"{prefix}{name}._extra_state" for name in ("numbers", "confidence"))
        keeps = self.confidence is not None
        if epoch not in state and seen not in state:  # a plain criterion's
            state[epoch] = torch.zeros((), dtype=torch.float64)
            if keeps:
                state[seen] = torch.zeros(2, 0)
        if epoch in state:
            _check.state_of_epoch(epoch, state[epoch])
        if keeps and seen in state:
            _check.state_of_confidence(seen, state[seen])
            state[seen] = state[seen].to(self.numbers.step.device)
        super()._load_from_state_dict(state, prefix, *others)
