"""`SIGUALoss`, the criterion: measure, choose, reduce."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from sigua import Method, Split, step
from sigua.conditions import may_read_marks, reads
from sigua.requirements import require_classes, require_method, require_whole
from sigua_torch import _check, _ops
from sigua_torch._examples import Examples, groups_of, of_any, of_classes
from sigua_torch._logits import logits_of
from sigua_torch._pool import pool_of
from sigua_torch._state import Confidence, Numbers, is_saved
from sigua_torch._wrapped import Criterion, Options, Wrapped, reduced, shares
from sigua_torch.functional import as_seen, column, in_pool, margins_of

Groups = str | Callable[[Any, Tensor], Tensor] | None


class Measured(NamedTuple):
    """A mini-batch: all that may be refused has been, and nothing is changed yet."""

    losses: Tensor
    """(n,), with gradient."""
    shape: torch.Size
    """What a loss has for the user."""
    plain: bool
    """Whether NumPy can look at them."""
    reduction: str
    ranked: Tensor
    """(n,): what decides, without class weights."""
    columns: dict[str, Any]
    """The other arguments of `choose`."""
    items: Any
    """What "mean" divides by; None for the examples at hand."""
    here: float | None
    """Their own part of `items`, where that is known and asked for."""
    is_plain: bool
    """Whether `ranked` is the cross-entropy at the labels."""


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
    continues. That of a plain criterion loads, and leaves both as they are. In a module that
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
        # What a call reads is in plain attributes, which a module finds at once.
        self._method, self._groups, self._pool = method, groups, pool_of(sync)
        self._by_class = reads(method.condition, "confidence")
        self._reads_margins = self._by_class or reads(method.condition, "margins")
        self._looked_up = self._reads_margins or method.T is not None or groups is not None
        self._has_classes = method.T is not None or hasattr(method, "num_classes")
        self._marks = 2 * may_read_marks(method.condition)
        self.loss = nn.CrossEntropyLoss() if loss is None else loss
        with torch.inference_mode(False):  # whose tensors could not be filled later
            self._like = torch.empty((), dtype=torch.float32)
            self._numbers = Numbers(method, steps_per_epoch, self._like)
        counts = reads(method.condition, "counts")
        self._confidence = Confidence(counts, self._like.device) if self._by_class else None
        alone = self._pool is None and groups is None
        self._advice = _check.Advice(method, steps_per_epoch is not None, alone)
        self._last: list[Any] = []

    @property
    def method(self) -> Method:
        """What it trains with; for another method make another criterion."""
        return self._method

    @property
    def split(self) -> Split | None:
        """Who was good and bad in the last training call: boolean masks with a loss's shape.

        None before it, and after one inside a transform of `torch.func`, to which masks belong.
        """
        if not self._last:
            return None
        *masks, shape = self._last
        tensors = (mask if isinstance(mask, Tensor) else torch.from_numpy(mask) for mask in masks)
        return Split(*(mask.reshape(shape) for mask in tensors))

    @property
    def epoch(self) -> float:
        """The current epoch t; fractional where steps are counted, and then read off the device."""
        return self._numbers.epoch

    def set_epoch(self, epoch: float) -> None:
        """Say which epoch begins, as for `DistributedSampler.set_epoch`; it counts from 0.

        Args:
            epoch: t >= 0; fractional is allowed, as epoch + step / len(loader).

        Raises:
            ValueError: `epoch` is negative, or the criterion counts by itself (`steps_per_epoch`).
        """
        if self._numbers.steps_per_epoch is not None:
            raise ValueError(
                "set_epoch: must not be called on a criterion that counts by itself, got "
                f"steps_per_epoch={self._numbers.steps_per_epoch}; try leaving one of the two out"
            )
        self._numbers.set(epoch)
        self.end_step()
        if epoch > 0:
            self._advice.calls_at_epoch_0 = None

    def end_step(self) -> None:
        """Say that the optimizer has made its step, where `num_items_in_batch` is given.

        The class confidence then moves, by all micro-batches of the step at once. Without
        `num_items_in_batch` every call is a step; for a method that keeps none nothing happens.
        Save a state after it: the micro-batches of a step that has not ended are not saved.
        """
        if self._confidence is not None:
            self._confidence.end()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._method!r})"

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "loss":
            needs = "T" if self._method.T is not None else "margins" if self._reads_margins else ""
            if needs:
                _check.of_softmax(value, needs)
            self._wrapped = Wrapped(value)
        elif name in _check.MOVED or name in _check.FIXED:
            _check.set_late(name, self.loss)
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
                gradient accumulation, the size of the whole accumulated batch, above 0; with class
                weights, the sum of its labels' weights. For a method with a class confidence, such
                as `sigua_ag`, `end_step` has to be called after each step of the optimizer. A
                compiled criterion cannot tell that it was forgotten.

        Raises:
            ValueError: shapes, dtypes or labels that do not fit.
        """
        if not isinstance(input, Tensor):
            input, target = logits_of(input, target)
        if not (self.training and torch.is_grad_enabled()):
            return self._plain(input, target, where, num_items_in_batch)
        try:
            measured = self._measured(input, target, where, trusted, num_items_in_batch)
        except Exception:
            if self._pool is not None:
                columns = 3 + self._marks + (self._groups is not None)
                self._pool.refuse(columns, self._numbers.device)
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

    def _examples(self, options: Options, input: Tensor, target: Tensor, where: Any) -> Examples:
        """Return the examples, or raise ValueError if they do not fit."""
        wrapped, method = self._wrapped, self._method
        if not (wrapped.is_cross_entropy or self._reads_margins or method.T is not None):
            return of_any(input, target, where, options.ignore_index, wrapped.is_sigmoid)
        looked_up = self._looked_up or not options.is_plain or options.weight is not None
        given = of_classes(input, target, where, options.ignore_index, looked_up)
        if self._has_classes or options.weight is not None:
            require_classes(method, given.logits.shape[1])
            _check.weights(options.weight, given.logits.shape[1])
        return given

    def _plain(self, input: Tensor, target: Tensor, where: Any, items: Any) -> Tensor:
        """Return the plain criterion's loss."""
        wrapped, options = self._wrapped, self._wrapped.read()
        items = items if options.reduction == "mean" else None
        if wrapped.is_module and where is None and items is None:
            plain: Tensor = wrapped.loss(input, target)
            return plain
        x, y, valid, shape, readable = self._examples(options, input, target, where)
        options = options.cast(x.dtype)
        losses = options.loss.at_label(_ops, x, y)
        losses, valid = losses.reshape(losses.shape if shape is None else shape), column(valid)
        if items is not None:
            items = _check.items(items, _taking_part(losses, valid) if readable else None)
        by_class = None
        if options.weight is not None and step.is_index(y, x):
            by_class = shares(options.weight, y, valid)
        return reduced(losses, options.reduction, valid, by_class, items)

    def _measured(
        self, input: Tensor, target: Tensor, where: Any, trusted: Any, items: Any
    ) -> Measured:
        """Return the mini-batch as the rules see it, or raise ValueError if it is refused."""
        method, numbers, options = self._method, self._numbers, self._wrapped.read()
        given = self._examples(options, input, target, where)
        x, y, valid, shape, plain = given
        if not plain:
            _check.tensor("input", x, numbers.device, "criterion")
            if _ops.is_transformed():
                _check.transforms(self._by_class, numbers.steps_per_epoch)
        M, options = numbers.matrix(x), options.cast(x.dtype)
        losses = step.corrected_losses(_ops, method.correction, M, options.loss, x, y)
        shape = losses.shape if shape is None else shape
        if losses.shape.numel() != shape.numel():
            _check.one_loss_each(losses.shape, shape)
        if valid is not None and valid.shape.numel() != shape.numel():
            _check.mask("where", valid, shape, x.device)
        if trusted is not None or self._marks:
            _check.trusted(method, trusted, shape, x.device)
        ranked, columns = losses.detach(), {}
        if valid is not None:
            columns["valid"] = column(valid)
        if options.weight is not None:
            z, unweighted = x.detach(), options.loss._replace(weight=None)
            ranked = step.corrected_losses(_ops, method.correction, M, unweighted, z, y)
            if step.is_index(y, x):
                columns["shares"] = shares(options.weight, y, columns.get("valid"))
        if trusted is not None:
            columns["trusted"] = column(trusted)
        if self._groups is not None:
            columns["groups"] = groups_of(self._groups, y, input, target, shape)
        self._add_measures(columns, given, options)
        here = None if items is None or not plain else _taking_part(losses, valid)
        items = None if items is None else _check.items(items, here)
        counted = float(columns["shares"].sum()) if here and "shares" in columns else here
        if self._confidence is not None and items is not None:
            self._confidence.check(items, counted)
        if self._pool is not None:
            self._pool.check(shape.numel())
        losses, ranked = column(losses), column(ranked)
        known = method.correction == "none" and step.is_index(y, x) and options.is_plain
        return Measured(
            losses, shape, plain, options.reduction, ranked, columns, items, counted, known
        )

    def _add_measures(self, columns: dict[str, Any], given: Examples, options: Options) -> None:
        """Add what a rule may ask for: margins, and class sums."""
        x, y, _, _, plain = given
        if self._reads_margins:
            known = self._confidence
            state = None if known is None else known.state(x.shape[1], plain)
            columns["margins"] = margins_of(x, y, state, plain)
        T = self._numbers.class_sums
        if T is not None:
            loss = options.loss
            loss = loss._replace(weight=None) if options.weight is not None else loss

            def sums() -> Any:
                found = step.class_sums(_ops, T, loss, x.detach()).reshape(-1)
                return as_seen(found) if plain else found

            columns["sums"] = sums

    def _weights(self, measured: Measured) -> tuple[Tensor, Tensor | None]:
        """Return the factors of Eq. 3, (n,), and whose losses say nothing, None for nobody's."""
        losses, shape, plain, reduction, ranked, own, items, here, is_plain = measured
        pool, numbers, columns, mine = self._pool, self._numbers, own, ranked
        if pool is not None:
            ranked, columns = in_pool(ranked, pool, plain, self._marks, own)
        ops: Any = _ops
        if plain:
            ops, ranked = step.numpy_names, as_seen(ranked)
            columns = {name: as_seen(part) for name, part in columns.items()} if columns else own
        readable = plain or (losses.is_cpu and not torch.compiler.is_compiling())
        size = columns["valid"].sum() if "valid" in columns else ranked.shape[0]
        now = numbers.now(readable)
        # Of infinite logits NumPy warns, where torch does not.
        with np.errstate(invalid="ignore") if plain else nullcontext():
            chosen = step.select(ops, self._method, now, ranked, size=size, **columns)
        good, bad, weights, silent = chosen
        if reduction == "mean":
            total = columns["shares"].sum() if "shares" in columns else size
            total = total if items is None else items
            if pool is not None and items is None:  # gradients are averaged over the processes
                total = total / pool.processes
            weights = weights / _ops.or_one(total)
        if pool is not None:
            n = losses.shape[0]
            good, bad, weights, silent = (
                pool.own(part, n) for part in (good, bad, weights, silent)
            )
        if self._confidence is not None:
            valid = as_seen(own.get("valid")) if plain else own.get("valid")
            known = None if not is_plain else as_seen(mine) if plain else mine
            sums = own["margins"].sums(valid, known)
            sums = sums if isinstance(sums, Tensor) else torch.from_numpy(sums)
            self._confidence.add(sums if pool is None else pool.total(sums), items, here)
        numbers.advance()
        self._last[:] = () if _ops.is_transformed() else (good, bad, shape)
        if not plain:
            return weights, silent
        weights = torch.from_numpy(weights)
        weights = weights if weights.dtype == losses.dtype else weights.to(losses.dtype)
        return weights, torch.from_numpy(silent) if silent.any() else None

    def _replicate_for_data_parallel(self) -> Any:
        if self.training:
            raise ValueError(
                "criterion: must be outside of nn.DataParallel, which drops what its copies count, "
                "got one inside; try criterion(parallel_model(inputs), labels)"
            )
        copy: nn.Module = super()._replicate_for_data_parallel()  # type: ignore[no-untyped-call]  # PyTorch's
        return copy

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SIGUALoss:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # PyTorch's
        with torch.inference_mode(False):
            moved = fn(self._like)
            # Half precision would round what must be exact.
            exact = torch.float64 if moved.dtype == torch.float64 else torch.float32
            self._like = torch.empty((), dtype=exact, device=moved.device)
            self._numbers.move(self._like)
            if self._confidence is not None:
                self._confidence.move(moved.device)
        return self

    def get_extra_state(self) -> Tensor:
        """Return the epoch, and what the rule remembers in the columns after it, padded with 0.

        A tensor, which safetensors stores, too; and a fresh one, for who averages state dicts.
        """
        epoch = torch.tensor(self.epoch, dtype=torch.float64)
        if self._confidence is None:
            return epoch
        seen = self._confidence.saved()
        return torch.cat([epoch.to(seen.device).expand(len(seen), 1), seen], 1)

    def set_extra_state(self, state: Any) -> None:
        """Take over what `get_extra_state` returned, of a criterion with another method, too."""
        rule = "_extra_state: must be the state of a criterion, finite and not negative"
        numbers = isinstance(state, Tensor) and state.is_floating_point()
        if not numbers or not (state.numel() == 1 or is_saved(state)):
            got = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
            raise ValueError(f"{rule}, got {got}; try the state_dict() of a criterion")
        if not state.is_meta and not ((state >= 0) & (state < float("inf"))).all():
            raise ValueError(f"{rule}, got {state}; try the state_dict() of a criterion")
        with torch.inference_mode(False):
            self._numbers.set(0.0 if state.is_meta else state.flatten()[0].item())
            if self._confidence is not None:  # which begins anew after another method's
                self._confidence.load(state[:, 1:] if state.ndim == 2 else state.new_zeros(2, 0))

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        old = {f"{prefix}weight": f"{prefix}loss.weight"}  # of a plain criterion, and of 0.2
        old |= {f"{prefix}numbers._extra_state": f"{prefix}_extra_state"}
        for name, new in old.items():
            if name in state:
                state[new] = state.pop(name)
        # The state of a plain criterion, or of the network alone, changes nothing.
        epoch = state.setdefault(f"{prefix}_extra_state", self.get_extra_state())
        seen = state.pop(f"{prefix}confidence._extra_state", None)
        if seen is not None and seen.shape[1]:
            state[f"{prefix}_extra_state"] = torch.cat(
                [epoch.flatten()[0].to(seen).expand(2, 1), seen], 1
            )
        super()._load_from_state_dict(state, prefix, *others)


def _taking_part(losses: Tensor, valid: Tensor | None) -> int:
    return losses.numel() if valid is None else int(valid.sum())
