"""`SIGUALoss`, the criterion: measure, choose, reduce."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from sigua import Method, Split, step
from sigua.conditions import may_read_marks, reads
from sigua.requirements import require_method, require_whole
from sigua_torch import _check, _ops
from sigua_torch._advice import Advice
from sigua_torch._examples import Examples, groups_of, of_any, of_classes
from sigua_torch._logits import logits_of
from sigua_torch._pool import pool_of
from sigua_torch._state import Confidence, Numbers
from sigua_torch._wrapped import Criterion, Options, Wrapped, reduced, shares
from sigua_torch.functional import Judged, choose, column, in_pool, margins_of

Groups = str | Callable[[Any, Tensor], Tensor] | None


class State(NamedTuple):
    """What a criterion keeps, where a module finds it at once."""

    numbers: Numbers
    confidence: Confidence | None


class Last:
    """Who was good and bad in the last training call: no attribute that a module sets slowly."""

    found: tuple[Any, Any, torch.Size] | None = None


class Measured(NamedTuple):
    """A mini-batch: all that may be refused has been, and nothing is changed yet."""

    losses: Tensor
    """With gradient, (n,)."""
    shape: torch.Size
    """What they have for the user."""
    judged: Judged
    plain: bool
    """Whether NumPy can look at them."""
    reduction: str
    items: Any
    """What "mean" divides by; None for the examples at hand."""
    here: int | None
    """How many take part, where that is known and asked for."""


class SIGUALoss(nn.CrossEntropyLoss):
    """The criterion that you had, trained with a `sigua` method.

        loss = sum_i loss_i * (good_i - gamma * bad_i) / n                               (Eq. 3)

    After `.eval()`, and wherever gradients are off, it *is* that criterion. The denominator is
    always the plain criterion's own, so that training is plain, too, while rho(t) = 1.

    Class weights scale losses but never decide who is good; who takes no part takes no rank and is
    not in n. float16 and bfloat16 logits are measured and ranked in float32, and their loss is
    float32. A loss of +inf, and a corrected loss that another class's infinite loss makes infinite,
    contributes nothing, unless all are; NaN reaches you. A mini-batch in which no example takes
    part has loss 0, where `nn.CrossEntropyLoss` has NaN.

    Args:
        method: what to train with, such as `sigua.sigua_sl(noise_rate=0.5, delta=0.15)`.
        loss: the criterion: `nn.CrossEntropyLoss(...)` (the default), another module with a
            `reduction`, or a function of (input, target) that returns a loss per example. Its
            `weight`, `ignore_index`, `label_smoothing` and `reduction` are read at every call. For
            backward correction, weights belong to the true class, and a loss of your own is called
            once per class; forward correction gives it log-probabilities for logits.
        groups: who is judged together: "class", the examples of each label, so that a rare or hard
            class is not dropped as a whole; "image", for (N, k, d1, ...), each of the N apart; or a
            function of (input, target) that returns integers with a loss's shape, such as
            annotators. By default the whole mini-batch.
        sync: select over the mini-batches of all processes of torch.distributed: True, a process
            group, or `sigua_torch.Pool(group, largest=...)`; every process must then call the
            criterion at every step, one without examples, too. What one refuses all refuse. By
            default each process selects among its own.
        steps_per_epoch: count the epoch in training calls, instead of waiting for `set_epoch`. Each
            call counts: leave it out where a step calls twice, as under `torch.utils.checkpoint`
            around the criterion, `torch.optim.LBFGS`, or two forward passes.

    Raises:
        ValueError: an argument is out of range, or does not fit the others.

    Its `state_dict` holds the epoch, and for `sigua_ag` the class confidence, so that a resumed run
    continues. That of a plain criterion loads, and training begins at epoch 0. In a module that
    `DistributedDataParallel` wraps they stay each process's own.

    Shape:
        As for `nn.CrossEntropyLoss`: input (k,), (N, k) or (N, k, d1, ...), with class indices or
        class probabilities. Each of the (N, d1, ...) losses is an example.

    >>> import sigua
    >>> criterion = SIGUALoss(sigua.sigua_sl(noise_rate=0.5, delta=0.25, warmup=0))
    >>> logits = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    >>> loss = criterion(logits.requires_grad_(), torch.zeros(5, dtype=torch.long))
    >>> criterion.split.good.tolist()
    [False, False, True, True, True]
    >>> criterion.split.bad.tolist()
    [False, True, False, False, False]
    """

    def __init__(
        self,
        method: Method,
        loss: Criterion | None = None,
        *,
        groups: Groups = None,
        sync: Any = None,
        steps_per_epoch: int | None = None,
        **others: NoReturn,
    ) -> None:
        _check.options(others)
        require_method(method)
        _check.groups(groups, sync)
        if groups is not None:
            require_whole(method, "groups")
        nn.Module.__init__(self)
        condition = method.condition
        self._method, self._groups, self._pool = method, groups, pool_of(sync)
        self._by_class = reads(condition, "confidence")
        self._margins = self._by_class or reads(condition, "margins")
        self._marks = 2 * may_read_marks(condition)
        self.loss = nn.CrossEntropyLoss() if loss is None else loss
        self.numbers = Numbers(method, steps_per_epoch)
        self.confidence = Confidence(self._pool) if self._by_class else None
        self._state = State(self.numbers, self.confidence)
        self._last = Last()
        whole = self._pool is None and groups is None
        self._advice = Advice(method, steps_per_epoch is not None, whole)

    @property
    def method(self) -> Method:
        """What it trains with; for another method make another criterion."""
        return self._method

    @property
    def split(self) -> Split | None:
        """Who was good and bad in the last training call: boolean masks with a loss's shape.

        None before it, and after a call inside a transform of `torch.func`, whose masks are its own.
        """
        if self._last.found is None:
            return None
        *masks, shape = self._last.found
        tensors = (m if isinstance(m, Tensor) else torch.from_numpy(m) for m in masks)
        return Split(*(mask.reshape(shape) for mask in tensors))

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
        self.end_step()
        if epoch > 0:
            self._advice.calls_at_epoch_0 = None

    def end_step(self) -> None:
        """Say that the optimizer has made its step, where `num_items_in_batch` is given.

        The class confidence then moves, by all micro-batches of the step at once. Without
        `num_items_in_batch` every call is a step; for methods without one nothing happens.
        """
        if self.confidence is not None:
            self.confidence.end()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._method!r})"

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _check.MOVED:
            _check.attribute(name, self.loss)
        if name == "loss":
            self._wrapped = Wrapped(value)
            if self._method.T is not None or self._margins:
                _check.of_softmax(value, "T" if self._method.T is not None else "margins")
        super().__setattr__(name, value)

    def forward(
        self,
        input: Tensor | Mapping[str, Tensor],
        target: Tensor,
        *,
        where: Tensor | None = None,
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
                the loss compares with.
            where: bool, with a loss's shape: who takes part.
            trusted: bool, with a loss's shape, or a `sigua.Split` of two, for `sigua.Known`.
            num_items_in_batch: what "mean" divides by, instead of the examples at hand: with
                gradient accumulation, the size of the whole accumulated batch, above 0. For a
                method with a class confidence, such as `sigua_ag`, `end_step` has to be called
                after each step of the optimizer.

        Raises:
            ValueError: shapes, dtypes or labels that do not fit.
        """
        if not isinstance(input, Tensor):
            input, target = logits_of(input, target)
        given = input, target, where
        if not (self.training and torch.is_grad_enabled()):
            return self._plain(given, num_items_in_batch)
        try:
            measured = self._measured(given, trusted, num_items_in_batch)
        except Exception:
            if self._pool is not None:
                columns = 3 + self._marks + (self._groups is not None)
                self._pool.refuse(columns, self._state.numbers.device)
            raise
        losses = measured.losses
        if measured.plain:
            self._advice.look(losses.shape[0])
        weights, silent = self._weights(measured)
        if silent is not None:
            losses = losses.masked_fill(silent, 0.0)
        if measured.reduction == "none":
            return (losses * weights).reshape(measured.shape)
        return torch.dot(losses, weights)

    def _examples(self, options: Options, input: Any, target: Any, where: Any) -> Examples:
        """Return the examples, or raise ValueError if they do not fit."""
        wrapped, method = self._wrapped, self._method
        if wrapped.is_cross_entropy or self._margins or method.T is not None:
            return of_classes(method, input, target, where, options.ignore_index)
        return of_any(input, target, where, options.ignore_index, wrapped.is_sigmoid)

    def _plain(self, given: tuple[Any, ...], items: Any) -> Tensor:
        """Return the plain criterion's loss."""
        wrapped, options = self._wrapped, self._wrapped.read()
        items = items if options.reduction == "mean" else None
        if wrapped.is_module and given[2] is None and items is None:
            plain: Tensor = wrapped.loss(*given[:2])
            return plain
        x, y, valid, shape, readable = self._examples(options, *given)
        losses = options.cast(x.dtype).at_label(_ops, x, y)
        losses, valid = losses.reshape(losses.shape if shape is None else shape), column(valid)
        if items is not None:
            items = _check.items(items, _taking_part(losses, valid) if readable else None)
        return reduced(losses, options.reduction, valid, shares(options.weight, x, y, valid), items)

    def _measured(self, given: tuple[Any, ...], trusted: Any, items: Any) -> Measured:
        """Return the mini-batch as the rules see it, or raise ValueError if it is refused."""
        method, (numbers, confidence) = self._method, self._state
        options = self._wrapped.read()
        x, y, valid, shape, plain = self._examples(options, *given)
        if not plain:
            _check.device(numbers.device, x)
            _check.transforms(confidence, numbers.steps_per_epoch)
        loss, M, weight = options.cast(x.dtype), numbers.matrix(x), options.weight
        losses = step.corrected_losses(_ops, method.correction, M, loss, x, y)
        shape = losses.shape if shape is None else shape
        if valid is not None and valid.numel() != losses.numel():
            _check.mask("where", valid, shape, x.device)
        if trusted is not None or self._marks:
            _check.trusted(method, trusted, shape, x.device)
        groups = groups_of(self._groups, y, given, shape)
        losses, valid, ranked = column(losses), column(valid), column(losses.detach())
        if weight is not None:
            unweighted = options.unweighted()
            ranked = step.corrected_losses(_ops, method.correction, M, unweighted, x.detach(), y)
            ranked = column(ranked)
        rates = None if confidence is None else confidence.rates(x.shape[1], plain)
        margins = margins_of(x, y, rates, self._by_class, plain) if self._margins else None
        sums = None
        if numbers.sums is not None:
            unweighted = options.unweighted()
            sums = lambda: step.class_sums(_ops, numbers.sums, unweighted, x.detach()).reshape(-1)
        here = None
        if items is not None:
            here = _taking_part(losses, valid) if plain else None
            items = _check.items(items, here)
            if confidence is not None:
                confidence.check(items, here)
        if self._pool is not None:
            self._pool.check(losses.shape[0])
        part = None if weight is None else shares(loss.weight, x, y, valid)
        judged = Judged(ranked, valid, part, _columns(trusted), groups, sums, margins)
        return Measured(losses, shape, judged, plain, options.reduction, items, here)

    def _weights(self, measured: Measured) -> tuple[Tensor, Tensor | None]:
        """Return the factors of Eq. 3, (n,), and whose losses say nothing, None for nobody's."""
        losses, shape, judged, plain, reduction, items, here = measured
        pool, (numbers, confidence), n = self._pool, self._state, losses.shape[0]
        own = judged
        if pool is not None:
            judged = in_pool(judged, pool, self._marks, plain)
        readable = plain or (losses.is_cpu and not torch.compiler.is_compiling())
        chosen, total = choose(self._method, numbers.now(readable), judged, plain)
        good, bad, weights, silent = chosen
        if reduction == "mean":
            if items is not None:
                total = items
            elif pool is not None:  # gradients are averaged, and are to sum up to the whole's
                total = total / pool.processes
            weights = weights / _ops.or_one(total)
        if pool is not None:
            good, bad, weights, silent = (
                pool.own(part, n) for part in (good, bad, weights, silent)
            )
        if confidence is not None:
            confidence.add(own.margins.sums(_view(own.valid, plain)), items, here)
        numbers.advance()
        self._last.found = None if _ops.is_transformed() else (good, bad, shape)
        if not plain:
            return weights, silent
        weights = torch.from_numpy(weights).to(losses.dtype)
        return weights, torch.from_numpy(silent) if silent.any() else None

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
        if f"{prefix}weight" in state:  # a plain criterion's
            state[f"{prefix}loss.weight"] = state.pop(f"{prefix}weight")
        if epoch not in state and seen not in state:
            state[epoch] = torch.zeros((), dtype=torch.float64)
            if self.confidence is not None:
                state[seen] = torch.zeros(2, 0)
        if epoch in state:
            _check.state_of_epoch(epoch, state[epoch])
        if self.confidence is not None and seen in state:
            _check.state_of_confidence(seen, state[seen])
        super()._load_from_state_dict(state, prefix, *others)


def _taking_part(losses: Tensor, valid: Tensor | None) -> int:
    return losses.numel() if valid is None else int(valid.sum())


def _view(x: Tensor | None, plain: bool) -> Any:
    return x.numpy() if plain and x is not None else x


def _columns(trusted: Any) -> Any:
    return Split(*map(column, trusted)) if isinstance(trusted, Split) else column(trusted)
