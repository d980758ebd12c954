"""`SIGUALoss`, the criterion: what a training loop calls, and its life."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from sigua import Method, Split, confidence
from sigua.requirements import require_method, require_whole
from sigua_torch import _check, _ops
from sigua_torch._examples import logits_of
from sigua_torch._objective import Objective
from sigua_torch._ops import as_tensor
from sigua_torch._wrapped import Criterion

Groups = str | Callable[[Any, Tensor], Tensor] | None


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
            around the criterion, `torch.optim.LBFGS`, or two forward passes. Each call
            also moves the class confidence of `sigua_ag`; the guide shows how to choose once.

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

    method: Method
    """What it trains with; for another method make another criterion."""

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
        for name in others:
            _check.option(name, TypeError)
        require_method(method)
        _check.groups(groups, sync)
        if groups is not None:
            require_whole(method, "groups")
        nn.Module.__init__(self)
        # What a call reads is in plain attributes, which a module finds at once.
        self.__dict__["method"] = method
        with torch.inference_mode(False):  # whose tensors could not be filled later
            self._objective = Objective(method, groups, sync, steps_per_epoch)
        self.loss = nn.CrossEntropyLoss() if loss is None else loss
        alone = self._objective.pool is None and groups is None
        self._advice = _check.Advice(method, steps_per_epoch is not None, alone)
        self._last: list[Any] = [None] * 3  # as many as later, or a graph is made twice

    @property
    def split(self) -> Split | None:
        """Who was good and bad in the last training call: boolean masks with a loss's shape.

        None before it, and after one inside a transform of `torch.func`, to which masks belong.
        """
        *masks, shape = self._last
        if shape is None:
            return None
        return Split(*(as_tensor(mask).reshape(shape) for mask in masks))

    @property
    def epoch(self) -> float:
        """The current epoch t; fractional where steps are counted, and then read off the device."""
        return self._objective.numbers.epoch

    def set_epoch(self, epoch: float) -> None:
        """Say which epoch begins, as for `DistributedSampler.set_epoch`; it counts from 0.

        Args:
            epoch: t >= 0; fractional is allowed, as epoch + step / len(loader).

        Raises:
            ValueError: `epoch` is negative, a schedule's value there is refused, or the criterion
                counts by itself (`steps_per_epoch`).

        Where an epoch begins, a step that was not ended by `end_step` ends.
        """
        numbers = self._objective.numbers
        if numbers.steps_per_epoch is not None:
            got = f"steps_per_epoch={numbers.steps_per_epoch}"
            rule = "not be called on a criterion that counts by itself"
            _check.refuse("set_epoch", rule, got, "leaving one of the two out")
        before = self.epoch
        numbers.set(epoch)
        if epoch == math.floor(epoch) or math.floor(epoch) != math.floor(before):
            self.end_step()
        if epoch > 0:
            self._advice.calls_at_epoch_0 = None

    def end_step(self) -> None:
        """Say that the optimizer has made its step, where `num_items_in_batch` is given.

        The class confidence then moves, by all micro-batches of the step at once. Without
        `num_items_in_batch` every call is a step; for a method that keeps none nothing happens.
        Save a state after it: the micro-batches of a step that has not ended are not saved.
        """
        if self._objective.confidence is not None:
            self._objective.confidence.end()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.method!r})"

    def __getattr__(self, name: str) -> Any:
        if name in _check.OF_THE_LOSS:
            _check.option(name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "loss":
            self._objective.wrap(value)
        elif name in _check.OF_THE_LOSS or name in _check.FIXED:
            _check.option(name)
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
                weights, the sum of its labels' weights; with `sync`, each process's own, of which
                the mean is taken, for gradients are averaged, too. For a method with a class
                confidence, such as `sigua_ag`, `end_step` has to be called after each step of the
                optimizer. A compiled criterion cannot tell that it was forgotten.

        Raises:
            ValueError: shapes, dtypes or labels that do not fit.
        """
        objective = self._objective
        if not (self.training and torch.is_grad_enabled()):
            logits, target = logits_of(input, target)
            return objective.plain_loss(logits, target, where, num_items_in_batch)
        try:
            logits, target = logits_of(input, target)
            measured = objective.measured(logits, target, where, trusted, num_items_in_batch)
        except Exception:
            objective.refuse()
            raise
        losses = measured.losses
        if not torch.compiler.is_compiling():
            self._advice.look(losses.shape[0])
        weights: Tensor
        good, bad, weights, silent = objective.chosen(measured)
        transformed = not measured.viewable and _ops.is_transformed()
        self._last[:] = [None] * 3 if transformed else (good, bad, measured.shape)
        if silent is not None:
            losses = losses.masked_fill(silent, 0.0)
        if measured.reduction == "none":
            return (losses * weights).reshape(measured.shape)
        return torch.dot(losses, weights)

    def _replicate_for_data_parallel(self) -> Any:
        if self.training:
            rule = "be outside of nn.DataParallel, which drops what its copies count"
            advice = "criterion(parallel_model(inputs), labels)"
            _check.refuse("criterion", rule, "one inside", advice)
        copy: nn.Module = super()._replicate_for_data_parallel()  # type: ignore[no-untyped-call]  # PyTorch's
        return copy

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SIGUALoss:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # PyTorch's
        with torch.inference_mode(False):
            self._objective.move(fn(self._objective.numbers.like))
        return self

    def get_extra_state(self) -> Tensor:
        """Return the epoch, and what the rule remembers in the columns after it, padded with 0.

        A tensor, which safetensors stores, too; and a fresh one, for who averages state dicts.
        """
        epoch = torch.tensor(self.epoch, dtype=torch.float64)
        if self._objective.confidence is None:
            return epoch
        seen = self._objective.confidence.saved()
        return torch.cat([epoch.to(seen.device).expand(len(seen), 1), seen], 1)

    def set_extra_state(self, state: Any) -> None:
        """Take over what `get_extra_state` returned, of a criterion with another method, too."""
        rule, advice = "be the state of a criterion, finite and not negative", "its state_dict()"
        got = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
        table = isinstance(state, Tensor) and state.ndim == 2  # of the epoch, and k classes
        saved = table and len(state) in (2, state.shape[1] - 1 + confidence.VECTORS)
        if not saved and not (isinstance(state, Tensor) and state.numel() == 1):
            _check.refuse("_extra_state", rule, got, advice)
        if not state.is_meta and not ((state >= 0) & (state < float("inf"))).all():
            _check.refuse("_extra_state", rule, state, advice)
        with torch.inference_mode(False):
            self._objective.numbers.set(0.0 if state.is_meta else state.flatten()[0].item())
            if self._objective.confidence is not None:  # which begins anew after another method's
                self._objective.confidence.load(
                    state.reshape(len(state) if table else 1, -1)[:, 1:]
                )

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        # The state of a plain criterion, or of the network alone, changes nothing but its weight.
        if f"{prefix}weight" in state:
            state[f"{prefix}loss.weight"] = state.pop(f"{prefix}weight")
        state.setdefault(f"{prefix}_extra_state", self.get_extra_state())
        super()._load_from_state_dict(state, prefix, *others)
