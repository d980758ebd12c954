"""Without a criterion: the corrected losses, and who is good or bad with what weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sigua import Method, Split, step
from sigua.conditions import reads
from sigua.requirements import require_classes, require_method
from sigua_torch import _check, _ops
from sigua_torch._examples import HALF, of_classes
from sigua_torch._pool import REFUSED, Pool, other_process
from sigua_torch._wrapped import Criterion, Wrapped

FEW_CLASSES = 64
"""Up to so many, NumPy reduces over classes several times as fast where each is in one piece."""


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
        float32 or better, (), (N,) or (N, d1, ...); 0 for ignored labels.

    Raises:
        ValueError: arguments that do not fit.

    >>> import sigua
    >>> T = sigua.TransitionMatrix.symmetric(0.5, 3)
    >>> corrected_losses(torch.zeros(1, 3), torch.tensor([0]), sigua.forward_correction(T))
    tensor([1.0986])
    """
    require_method(method)
    options = Wrapped(nn.CrossEntropyLoss() if loss is None else loss).read()
    x, y, valid, shape, _ = of_classes(logits, labels, None, options.ignore_index)
    require_classes(method, x.shape[1])
    M, own = step.matrix(_ops, method, x), options.cast(x.dtype).loss
    losses: Tensor = step.corrected_losses(_ops, method.correction, M, own, x, y)
    if valid is not None:
        losses = losses.masked_fill(~valid, 0.0)
    return losses.reshape(shape or ())


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
    plain, ranked = _ops.is_plain(losses), losses.detach().reshape(-1)
    if where is not None:
        _check.mask("where", where, losses.shape, losses.device)
    _check.trusted(method, trusted, losses.shape, losses.device)
    x = None if logits is None else logits.detach()
    if isinstance(groups, str):
        _check.groups(groups, "image is a shape's, so that integers have to say it")
        groups = _given("labels", labels)
    by_class, margins = reads(method.condition, "confidence"), None
    if by_class or reads(method.condition, "margins"):
        x, rates = _given("logits", x), memory(confidence) if plain else confidence
        margins = margins_of(x, _given("labels", labels), rates, by_class, plain)
    chosen = choose(
        method,
        method.at(epoch),
        ranked.float() if ranked.dtype in HALF else ranked,
        plain,
        valid=column(where),
        trusted=column(trusted),
        sums=lambda: step.class_sums(_ops, method.T, step.CrossEntropy(), _given("logits", x)),
        margins=margins,
        groups=column(groups),
    )
    parts = (part if isinstance(part, Tensor) else torch.from_numpy(part) for part in chosen)
    return step.Selection(*(part.reshape(losses.shape) for part in parts))


def _given(name: str, value: Tensor | None) -> Tensor:
    if value is None:
        raise ValueError(f"{name}: must be given for this rule, got None; try {name}={name}")
    return value


def choose(
    method: Method, numbers: Any, ranked: Tensor, plain: bool, **columns: Any
) -> step.Selection:
    """Return the selection of `sigua.step.select`, of NumPy's arrays if those can be looked at.

    Args:
        method: whose condition decides.
        numbers: `method.at(epoch)`, as numbers or 0-d tensors.
        ranked: (n,), what decides.
        plain: whether NumPy can look at them.
        columns: the other arguments of `select`.
    """
    if not plain:
        return step.select(_ops, method, numbers, ranked, **columns)
    sums = columns.pop("sums", None)
    columns = {name: memory(part) for name, part in columns.items() if part is not None}
    if sums is not None:
        columns["sums"] = lambda: memory(sums()).reshape(-1)
    return step.select(step.numpy_names, method, numbers, memory(ranked), **columns)


def denominator(ranked: Tensor, valid: Tensor | None, shares: Tensor | None, plain: bool) -> Any:
    """Return the plain criterion's denominator, a number if it can be read."""
    if shares is None and valid is None:
        return ranked.shape[0]
    total = valid.sum() if shares is None and valid is not None else shares.sum()
    return total.item() if plain else total


def memory(x: Any) -> Any:
    """Return tensors as views of NumPy, and everything else as it is."""
    if isinstance(x, Split):
        return Split(*map(memory, x))
    return x.numpy(force=True) if isinstance(x, Tensor) else x  # also of a negated view


def column(x: Any) -> Any:
    """Return a tensor, or a pair, as one column each; `reshape` costs where it is one."""
    if isinstance(x, Split):
        return Split(*map(column, x))
    return x if x is None or x.ndim == 1 else x.reshape(-1)


def margins_of(logits: Tensor, y: Tensor, rates: Any, by_class: bool, plain: bool) -> step.Margins:
    """Return what measures margins, of NumPy's arrays if those can be looked at.

    Args:
        logits: (N, k, ...).
        y: labels.
        rates: the class confidence, of NumPy's likewise; None for 1 each.
        by_class: whether margins by class may be asked for.
        plain: whether NumPy can look at them.
    """
    if not plain:
        return step.Margins(_ops, logits.detach(), y, rates, by_class)
    x = memory(logits)
    x = np.asfortranarray(x) if x.ndim == 2 and x.shape[1] <= FEW_CLASSES else x
    return step.Margins(step.numpy_names, x, memory(y), rates, by_class)


def in_pool(
    ranked: Tensor, pool: Pool, plain: bool, marks: int, columns: dict[str, Any]
) -> tuple[Tensor, dict[str, Any]]:
    """Return what decides, and the columns of `choose`, of all processes.

    Padding takes no part.

    Args:
        ranked: (n,), this process's.
        pool: who gathers.
        plain: whether values can be read.
        marks: how many columns of `trusted` every process gives.
        columns: this process's.

    Raises:
        ValueError: another process refuses its mini-batch.
    """
    ones = torch.ones_like(ranked)
    trusted, groups = columns["trusted"], columns["groups"]
    valid = ones if columns["valid"] is None else columns["valid"]
    shares = valid if columns["shares"] is None else columns["shares"]
    masks = trusted if isinstance(trusted, Split) else (trusted, trusted)
    given = [valid, ranked, shares, *(ones if each is None else each for each in masks[:marks])]
    given += [] if groups is None else [groups]
    valid, pooled, shares, *rest = pool.gather(given)
    refused = (valid == REFUSED).any()
    if plain and refused:
        raise other_process()

    def gathered(part: Any) -> Any:
        own = part if isinstance(part, Tensor) else torch.from_numpy(part)
        (found,) = pool.gather([own.reshape(-1)])
        return found.to(ranked.dtype) if own is part else found.to(ranked.dtype).numpy()

    sums, margins = columns["sums"], columns["margins"]
    pair = Split(*(mask.bool() for mask in rest[:marks])) if marks else (None,)
    return pooled.to(ranked.dtype), {
        "valid": valid > 0,
        # Where values cannot be read, a process that refuses makes the loss of all NaN.
        "shares": shares.to(ranked.dtype).masked_fill(refused, float("nan")),
        "trusted": None if trusted is None else pair if isinstance(trusted, Split) else pair[0],
        "groups": None if groups is None else rest[-1].long(),
        "sums": None if sums is None else lambda: gathered(sums()),
        "margins": None if margins is None else lambda by_class=True: gathered(margins(by_class)),
    }
