"""Without a criterion: the corrected losses, and who is good or bad with what weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sigua import Method, Split, step
from sigua.conditions import reads
from sigua.requirements import require_method
from sigua_torch import _check, _ops
from sigua_torch._examples import of_classes
from sigua_torch._pool import REFUSED, Pool, other_process
from sigua_torch._wrapped import Criterion, Wrapped

PLAIN = torch.nn.CrossEntropyLoss()


class Judged(NamedTuple):
    """A mini-batch as the rules see it, without gradient; every entry has shape (n,)."""

    ranked: Tensor
    """What ranks an example: its loss without class weights."""
    valid: Tensor | None = None
    """bool: who takes part; None for everybody."""
    shares: Tensor | None = None
    """Each example's part of the plain criterion's denominator; None for 1 each."""
    trusted: Any = None
    """bool, or a `Split` of two."""
    groups: Tensor | None = None
    sums: Callable[[], Tensor] | None = None
    """Returns 1'T^-1 l."""
    margins: Any = None
    """A `sigua.step.Margins`, of NumPy's arrays where those are asked for, or None."""


def choose(method: Method, numbers: Any, judged: Judged, plain: bool) -> tuple[step.Selection, Any]:
    """Return who is good and bad, what each weighs, and the plain criterion's denominator.

    Where memory can be looked at they are NumPy's: it is the same step over NumPy's names.

    Args:
        method: whose condition decides.
        numbers: `method.at(epoch)`, as numbers or 0-d tensors.
        judged: the mini-batch.
        plain: whether NumPy can look at it.
    """
    ops: Any = step.numpy_names if plain else _ops
    view = _memory if plain else _itself
    ranked, valid, shares = view(judged.ranked), view(judged.valid), view(judged.shares)
    trusted = judged.trusted
    trusted = Split(*map(view, trusted)) if isinstance(trusted, Split) else view(trusted)
    sums = judged.sums
    chosen = step.select(
        ops,
        method,
        numbers,
        ranked,
        valid=valid,
        shares=shares,
        trusted=trusted,
        sums=None if sums is None else lambda: view(sums()),
        margins=judged.margins,
        groups=view(judged.groups),
    )
    total: Any = ranked.shape[0] if valid is None else valid.sum()
    return chosen, total if shares is None else shares.sum()


def _memory(x: Tensor | None) -> Any:
    return None if x is None else x.numpy(force=True)  # also of a negated view


def _itself(x: Tensor | None) -> Any:
    return x


def in_pool(judged: Judged, pool: Pool, marks: int, plain: bool) -> Judged:
    """Return the mini-batch of all processes; padding takes no part.

    Args:
        judged: this process's own.
        pool: who gathers.
        marks: how many columns of `trusted` there are in every process.
        plain: as for `choose`.

    Raises:
        ValueError: another process refuses its mini-batch.
    """
    ranked, trusted, groups = judged.ranked, judged.trusted, judged.groups
    ones = torch.ones_like(ranked)
    valid = ones if judged.valid is None else judged.valid
    shares = valid if judged.shares is None else judged.shares
    masks = list(trusted) if isinstance(trusted, Split) else [trusted, trusted]
    masks = [ones if mask is None else mask for mask in masks[:marks]]
    given = [valid, ranked, shares, *masks, *([] if groups is None else [groups])]
    valid, pooled, shares, *rest = pool.gather(given)
    refused = (valid == REFUSED).any()
    if plain and refused:
        raise other_process()

    def gathered(column: Any) -> Any:
        part = column if isinstance(column, Tensor) else torch.from_numpy(column)
        found = pool.gather([part])[0].to(ranked.dtype)
        return found if isinstance(column, Tensor) else found.numpy()

    sums, margins = judged.sums, judged.margins
    pair = Split(*(mask.bool() for mask in rest[:marks])) if marks else None
    return Judged(
        pooled.to(ranked.dtype),
        valid > 0,
        # Where values cannot be read, all are told by a loss of NaN.
        shares.to(ranked.dtype).masked_fill(refused, float("nan")),
        None
        if trusted is None or pair is None
        else pair
        if isinstance(trusted, Split)
        else pair[0],
        None if groups is None else rest[-1].long(),
        None if sums is None else lambda: gathered(sums()),
        None if margins is None else lambda by_class=True: gathered(margins(by_class)),
    )


def two_way(input: Tensor) -> Tensor:
    """Return a sigmoid's logit z as a softmax's logits (0, z): the same probabilities.

    For a method that needs a loss against each class: `criterion(two_way(logits), labels.long())`.

    Args:
        input: float, (N,) or (N, d1, ...), one logit per label.

    Returns:
        (N, 2) or (N, 2, d1, ...), for class indices 0 and 1 of the shape of `input`.

    >>> two_way(torch.tensor([3.0, -1.0]))
    tensor([[ 0.,  3.],
            [ 0., -1.]])
    """
    return torch.stack([torch.zeros_like(input), input], min(input.ndim, 1))


def corrected_losses(
    logits: Tensor, labels: Tensor, method: Method, loss: Criterion | None = None
) -> Tensor:
    """Return what a method optimises, a loss per example, with gradient.

    Args:
        logits: float, (k,), (N, k) or (N, k, d1, ...).
        labels: class indices without the class dimension, or class probabilities.
        method: whose T corrects.
        loss: as for `SIGUALoss`; its reduction is not applied.

    Returns:
        float32 or better, (N, d1, ...); 0 for ignored labels.

    Raises:
        ValueError: arguments that do not fit.

    >>> import sigua
    >>> T = sigua.TransitionMatrix.symmetric(0.5, 2 + 1)
    >>> corrected_losses(torch.zeros(1, 3), torch.tensor([0]), sigua.backward_correction(T))
    tensor([1.0986])
    """
    require_method(method)
    wrapped = Wrapped(PLAIN if loss is None else loss)
    options = wrapped.read()
    given = of_classes(method, logits, labels, None, options.ignore_index)
    M = step.matrix(_ops, method, given.logits)
    loss = options.cast(given.logits.dtype)
    found: Tensor = step.corrected_losses(_ops, method.correction, M, loss, given.logits, given.y)
    if given.valid is not None:
        found = found.masked_fill(~given.valid, 0.0)
    return found.reshape(given.shape)


def select(
    losses: Tensor,
    epoch: float,
    method: Method,
    *,
    logits: Tensor | None = None,
    labels: Tensor | None = None,
    where: Tensor | None = None,
    trusted: Tensor | Split | None = None,
    confidence: Tensor | None = None,
    groups: Any = None,
) -> step.Selection:
    """Return who is good and who is bad by their losses, and what each weighs.

        objective = (chosen.weights * losses.masked_fill(chosen.silent, 0)).sum() / n       (Eq. 3)

    Whoever wants to rank by another loss than the one that is optimised, or to reduce it otherwise,
    writes that line. Nothing here has a gradient.

    Args:
        losses: float, of any shape: what decides.
        epoch: t, from 0.
        method: whose condition decides.
        logits: (N, k, d1, ...), where the rule reads margins or class sums.
        labels: class indices or probabilities, where the rule reads margins.
        where: bool, like the losses: who takes part.
        trusted: bool, like the losses, or a `sigua.Split` of two, for `sigua.Known`.
        confidence: (k,), the class confidence c; None for 1 each.
        groups: "class", which needs class indices as labels, or integers like the losses.

    Returns:
        `good`, `bad`, `weights` and `silent`, each with the losses' shape.

    Raises:
        ValueError: arguments that do not fit, or that the rule reads and are missing.

    >>> import sigua
    >>> method = sigua.sigua_sl(noise_rate=0.5, delta=0.25, gamma=0.5, warmup=0)
    >>> select(torch.tensor([4.0, 3.0, 2.0, 1.0, 0.0]), 0, method).weights
    tensor([ 0.0000, -0.5000,  1.0000,  1.0000,  1.0000])
    """
    require_method(method)
    _check.tensor("losses", losses)
    ranked = losses.detach().reshape(-1)
    ranked = ranked.float() if ranked.dtype in (torch.float16, torch.bfloat16) else ranked
    plain = _ops.is_plain(losses)
    if where is not None:
        _check.mask("where", where, losses.shape, losses.device)
    _check.trusted(method, trusted, losses.shape, losses.device)
    if isinstance(groups, str):
        _check.groups(groups, None)
        groups = _labels_for("groups='class'", labels)
    judged = Judged(
        ranked,
        column(where),
        None,
        Split(*map(column, trusted)) if isinstance(trusted, Split) else column(trusted),
        column(groups),
        None if logits is None else lambda: _class_sums(method, logits.detach()),
        _margins(method, logits, labels, confidence, plain),
    )
    chosen, _ = choose(method, method.at(epoch), judged, plain)
    parts = (part if isinstance(part, Tensor) else torch.from_numpy(part) for part in chosen)
    return step.Selection(*(part.reshape(losses.shape) for part in parts))


def column(x: Tensor | None) -> Any:
    """Return a tensor as one column, (n,); `reshape` costs where it is one."""
    return x if x is None or x.ndim == 1 else x.reshape(-1)


def _labels_for(what: str, labels: Tensor | None) -> Tensor:
    if labels is None or labels.is_floating_point():
        raise ValueError(f"labels: must be class indices for {what}, got none; try labels=labels")
    return labels.reshape(-1)


def _class_sums(method: Method, logits: Tensor) -> Tensor:
    found: Tensor = step.class_sums(_ops, method.T, step.CrossEntropy(), logits)
    return found.reshape(-1)


def _margins(
    method: Method, logits: Tensor | None, labels: Tensor | None, rates: Tensor | None, plain: bool
) -> Any:
    """Return what measures margins; None where the rule reads none."""
    by_class = reads(method.condition, "confidence")
    if not (by_class or reads(method.condition, "margins")):
        return None
    if logits is None or labels is None:
        raise ValueError(
            "logits: must be given with the labels for margins, which the rule reads, got none; "
            "try logits=logits, labels=labels"
        )
    return margins_of(logits, labels, _memory(rates) if plain else rates, by_class, plain)


def margins_of(logits: Tensor, y: Tensor, rates: Any, by_class: bool, plain: bool) -> step.Margins:
    """Return what measures margins, of NumPy's arrays where it can look at them.

    Args:
        logits: (N, k, ...).
        y: labels.
        rates: the class confidence, of NumPy's likewise; None for 1 each.
        by_class: whether margins by class may be asked for.
        plain: whether NumPy can look at them.
    """
    if plain:
        return step.Margins(step.numpy_names, _memory(logits), _memory(y), rates, by_class)
    return step.Margins(_ops, logits.detach(), y, rates, by_class)
