"""The objective of a mini-batch: measure, choose, weigh. What it keeps is in `_state`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sigua import Method, step
from sigua.conditions import reads
from sigua.requirements import require_classes
from sigua_torch import _check, _ops
from sigua_torch._examples import Examples, groups_of, of_any, of_classes
from sigua_torch._ops import as_tensor, as_view, column
from sigua_torch._pool import in_pool, pool_of
from sigua_torch._state import Confidence, Numbers
from sigua_torch._wrapped import Options, Wrapped

FEW_CLASSES = 64
"""Up to so many, all goes several times as fast where each class is in one piece."""


class Measured(NamedTuple):
    """A mini-batch: all that may be refused has been, and nothing is changed yet."""

    losses: Tensor  # (n,), with gradient
    shape: torch.Size  # what a loss has for the user
    viewable: bool  # whether NumPy can look at them
    reduction: str
    ranked: Tensor  # (n,): what decides, without class weights and gradient
    columns: dict[str, Any]  # the other arguments of `step.select`
    items: Any  # what "mean" divides by; None for the examples at hand
    here: float | None  # their own part of `items`, where that is known and asked for
    sums: Any  # what the class confidence moves by


class Objective:
    """The training objective: of a method, groups, and a pool, by what is kept in between."""

    wrapped: Wrapped

    def __init__(self, method: Method, groups: Any, sync: Any, steps_per_epoch: int | None) -> None:
        self.method, self.groups, self.pool = method, groups, pool_of(sync)
        self.numbers = Numbers(method, steps_per_epoch)
        read = ("confidence", "counts", "margins", "trusted")
        by_class, counts, margins, trusted = (reads(method.condition, name) for name in read)
        self.confidence = Confidence(counts, self.numbers.like.device) if by_class else None
        self.reads_margins = by_class or margins
        self.of_classes = self.reads_margins or method.T is not None  # whatever the loss
        self.marks = 2 * trusted

    def wrap(self, loss: Any) -> None:
        """Take a criterion, or raise ValueError if it is none, or does not fit the method."""
        _check.loss(loss, "T" if self.method.T is not None else "margins" * self.reads_margins)
        self.wrapped = Wrapped(loss)

    def move(self, like: Tensor) -> None:
        """Move what is kept to another device, or into another precision."""
        self.numbers.move(like)
        if self.confidence is not None:
            self.confidence.move(like.device)

    def plain_loss(self, input: Tensor, target: Tensor, where: Any, items: Any) -> Tensor:
        """Return the wrapped criterion's own loss."""
        wrapped, options = self.wrapped, self.wrapped.read()
        items = items if options.reduction == "mean" else None
        if wrapped.is_module and where is None and items is None:
            own: Tensor = wrapped.loss(input, target)
            return own
        given, options = self._examples(input, target, where)
        losses, shape = _losses(given, options.loss, where)
        if given.valid is not None:
            losses = losses.masked_fill(~given.valid, 0.0)
        if options.reduction == "none":
            return losses.reshape(shape)
        if options.reduction == "sum":
            return losses.sum()
        count = _denominator(given.valid, given.shares, shape.numel())
        if items is not None:
            count = _check.items(items, float(count) if given.viewable else None)
        return torch.div(losses.sum(), count)

    def measured(
        self, input: Tensor, target: Tensor, where: Any, trusted: Any, items: Any
    ) -> Measured:
        """Return the mini-batch as the rules see it, or raise ValueError if it is refused."""
        method, numbers = self.method, self.numbers
        given, options = self._examples(input, target, where)
        x, y, valid, _, viewable, shares = given
        if not viewable:
            _check.tensor("input", x, numbers.like.device, "criterion")
            if _ops.is_transformed():
                _check.transforms(self.confidence is not None, numbers.steps_per_epoch)
        M = None if method.T is None else numbers.matrix(x)
        losses, shape = _losses(given, options.loss, where, method.correction, M)
        ranked, columns = losses.detach(), self._columns(given, options)
        if options.weight is not None:
            plain = options.unweighted
            ranked = step.corrected_losses(_ops, method.correction, M, plain, x.detach(), y)
            ranked = column(ranked)
        if trusted is not None or self.marks:
            _check.trusted(method, trusted, shape, x.device)
            columns["trusted"] = column(trusted)
        if self.groups is not None:
            columns["groups"] = groups_of(self.groups, y, input, target, shape)
        here = sums = None
        if items is not None:
            count = _denominator(valid, shares, shape.numel())
            here = float(count) if viewable else None
            items = _check.items(items, here)
        if self.confidence is not None:
            if items is not None:
                self.confidence.check(items, here)
            sums = columns["margins"].sums(as_view(valid) if viewable else valid)
        if self.pool is not None:
            self.pool.check(shape.numel())
        return Measured(
            losses, shape, viewable, options.reduction, ranked, columns, items, here, sums
        )

    def _examples(self, input: Any, target: Any, where: Any) -> tuple[Examples, Options]:
        """Return the examples and the criterion's options, or raise ValueError on what is wrong."""
        wrapped, options = self.wrapped, self.wrapped.read()
        if not (wrapped.is_cross_entropy or self.of_classes):
            given = of_any(input, target, where, options.ignore_index, wrapped.is_sigmoid)
            return given, options
        looked_up = self.of_classes or self.groups is not None or not options.is_plain
        given = of_classes(input, target, where, options.ignore_index, looked_up)
        if self.of_classes:
            require_classes(self.method, given.logits.shape[1])
        if options.weight is not None:
            options = options.cast(given.logits.dtype)
            given = given._replace(shares=_shares(given, options.weight))
        return given, options

    def _columns(self, given: Examples, options: Options) -> dict[str, Any]:
        """Return who takes part, and what the rule asks for."""
        x, y, valid, _, viewable, shares = given
        columns: dict[str, Any] = {"valid": valid, "shares": shares}
        if self.reads_margins:
            kept = self.confidence
            state = None if kept is None else kept.state(x.shape[1])
            columns["margins"] = margins_of(x, y, state, viewable)
        row = self.numbers.column_sums
        if row is not None:
            columns["sums"] = lambda: sums_of(row, options.unweighted, x, viewable)
        return columns

    def refuse(self) -> None:
        """Tell the other processes that this one refuses its mini-batch."""
        if self.pool is not None:
            columns = 3 + self.marks + (self.groups is not None)
            self.pool.refuse(columns, self.numbers.like.device)

    def chosen(self, measured: Measured) -> step.Selection:
        """Return who is good and bad, the factors of Eq. 3, and whose losses say nothing.

        Masks are tensors, or arrays of NumPy; the rest are tensors. `silent` is None for nobody.
        What has to move with the step is moved.
        """
        losses, viewable, pool = measured.losses, measured.viewable, self.pool
        ranked, columns, items = measured.ranked, measured.columns, measured.items
        if pool is not None:
            ranked, columns, mean = in_pool(ranked, pool, viewable, self.marks, columns, items)
            items = None if items is None else mean.item() if viewable else mean.to(losses)
        readable = viewable or (losses.is_cpu and not torch.compiler.is_compiling())
        now = self.numbers.now(readable)
        ops, ranked, columns = seen(ranked, columns, viewable)
        valid, shares = columns["valid"], columns["shares"]
        size = ranked.shape[0] if valid is None else valid.sum()
        chosen = step.select(ops, self.method, now, ranked, size=size, **columns)
        good, bad, weights, silent = chosen
        if measured.reduction == "mean":
            if items is None:
                items = size if shares is None else shares.sum()
                # Gradients are averaged over the processes.
                items = items if pool is None else items / pool.processes
            weights = weights / _ops.or_one(items)
        if pool is not None:
            n = losses.shape[0]
            good, bad, weights, silent = (
                pool.own(part, n) for part in (good, bad, weights, silent)
            )
        if self.confidence is not None:
            sums = as_tensor(measured.sums)
            sums = sums if pool is None else pool.total(sums)
            self.confidence.add(sums, measured.items, measured.here)
        self.numbers.advance()
        if viewable:
            weights = torch.from_numpy(weights)
            weights = weights if weights.dtype == losses.dtype else weights.to(losses.dtype)
            silent = torch.from_numpy(silent) if np.count_nonzero(silent) else None
        return step.Selection(good, bad, weights, silent)


def _losses(
    given: Examples, loss: Any, where: Any, correction: str = "none", M: Any = None
) -> tuple[Tensor, torch.Size]:
    """Return a loss per example, (n,), and what shape they have for the user."""
    x, y, shape = given.logits, given.y, given.shape
    losses = step.corrected_losses(_ops, correction, M, loss, x, y)
    if shape is None:  # which only the loss could tell
        shape = losses.shape
        if where is not None:
            _check.mask("where", where, shape, x.device)
    elif losses.shape != shape and losses.numel() != shape.numel():
        rule = f"return a loss per example, {tuple(shape)}"
        advice = "a loss between classes, or standard() and small losses for a regression"
        _check.refuse("loss", rule, tuple(losses.shape), advice)
    return column(losses), shape


def _shares(given: Examples, weight: Any) -> Tensor | None:
    """Return each example's part of the denominator; None for 1 each, as with probabilities."""
    x, y, valid = given.logits, given.y, given.valid
    if len(weight) != x.shape[1]:
        rule = f"have an entry for each of the input's {x.shape[1]} classes"
        _check.refuse("weight", rule, len(weight), "one weight per class")
    if not step.is_index(y, x):
        return None
    shares: Tensor = weight[y].reshape(-1)
    return shares if valid is None else shares.masked_fill(~valid, 0.0)


def _denominator(valid: Tensor | None, shares: Tensor | None, n: int) -> Any:
    """Return what "mean" divides by, of n examples."""
    counted = valid if shares is None else shares
    return n if counted is None else counted.sum()


def seen(
    ranked: Tensor, columns: dict[str, Any], viewable: bool
) -> tuple[Any, Any, dict[str, Any]]:
    """Return the names for `step.select` and what it takes: NumPy's, and views, where they can."""
    if not viewable:
        return _ops, ranked, columns
    columns = {name: as_view(part) for name, part in columns.items()}
    return step.numpy_names, as_view(ranked), columns


def sums_of(row: Any, loss: Any, x: Tensor, viewable: bool) -> Any:
    """Return 1'T^-1 l, (n,), from the row 1'T^-1."""
    found = step.class_sums(_ops, row, loss, x.detach()).reshape(-1)
    return as_view(found) if viewable else found


def margins_of(logits: Tensor, y: Tensor, state: Any, viewable: bool) -> step.Margins:
    """Return what measures margins, by NumPy's names where those can, as of the state."""
    x = logits.detach()
    if not viewable:
        return step.Margins(_ops, _ops.softmax(x), y, state)
    few = x.ndim == 2 and x.shape[1] <= FEW_CLASSES
    p = torch.softmax(x.t().contiguous(), 0).t() if few else _ops.softmax(x)
    return step.Margins(step.numpy_names, p.numpy(), as_view(y), as_view(state))
