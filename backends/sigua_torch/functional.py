"""Without a criterion: the corrected losses, and who is good or bad with what weight."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sigua import Method, Split, step
from sigua.conditions import reads
from sigua.confidence import zeros as remembered
from sigua.requirements import require_classes, require_method
from sigua_torch import _check, _ops
from sigua_torch._examples import HALF, of_classes
from sigua_torch._pool import REFUSED, Pool, other_process
from sigua_torch._wrapped import Criterion, Wrapped

BLOCK = 2**16
"""Of so many entries NumPy makes one block of a large mini-batch."""
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
        confidence: what the rule remembers (`sigua.confidence`); None for nothing yet.
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
    see = as_seen if plain else _itself
    by_class, margins = reads(method.condition, "confidence"), None
    if by_class or reads(method.condition, "margins"):
        x, state = _given("logits", x), see(confidence)
        if by_class and state is None:
            zeros = remembered(x.shape[1], reads(method.condition, "counts"))
            state = zeros if plain else torch.from_numpy(zeros).to(x.device)
        margins = margins_of(x, _given("labels", labels), state if by_class else None, plain)

    def sums() -> Any:
        T: Any = method.T
        found = step.class_sums(_ops, T, step.CrossEntropy(), _given("logits", x))
        return see(found.reshape(-1))

    chosen = step.select(
        step.numpy_names if plain else _ops,
        method,
        method.at(epoch),
        see(ranked.float() if ranked.dtype in HALF else ranked),
        valid=see(column(where)),
        trusted=see(column(trusted)),
        sums=sums,
        margins=margins,
        groups=see(column(groups)),
    )
    parts = (part if isinstance(part, Tensor) else torch.from_numpy(part) for part in chosen)
    return step.Selection(*(part.reshape(losses.shape) for part in parts))


def _itself(x: Any) -> Any:
    return x


def _given(name: str, value: Tensor | None) -> Tensor:
    if value is None:
        raise ValueError(f"{name}: must be given for this rule, got None; try {name}={name}")
    return value


def as_seen(x: Any) -> Any:
    """Return tensors as NumPy's views of their memory, and anything else as it is."""
    if isinstance(x, Tensor):
        return x.numpy(force=True)  # also of a negated view
    return Split(as_seen(x.good), as_seen(x.bad)) if isinstance(x, Split) else x


def column(x: Any) -> Any:
    """Return a tensor, or a pair, as one column each; `reshape` costs where it is one."""
    if isinstance(x, Split):
        return Split(*map(column, x))
    return x if x is None or x.ndim == 1 else x.reshape(-1)


class Blocks(step.Margins):
    """Measures a large mini-batch block by block: each then stays in the processor's cache."""

    def __call__(self, by_class: bool = True, power: float = 0.0) -> Any:
        x, rows = self.logits, max(1, BLOCK // self.logits.shape[1])
        if x.ndim > 2 or len(x) <= rows:
            return super().__call__(by_class, power)
        parts = (slice(i, i + rows) for i in range(0, len(x), rows))
        made = (step.Margins(self.ops, x[i], self.y[i], self.state) for i in parts)
        return np.concatenate([margins(by_class, power) for margins in made])


def margins_of(logits: Tensor, y: Tensor, state: Any, plain: bool) -> step.Margins:
    """Return what measures margins, of NumPy's arrays if those can be looked at.

    Args:
        logits: (N, k, ...).
        y: labels.
        state: what is remembered, of NumPy's likewise; None if the rule reads no confidence.
        plain: whether NumPy can look at them.
    """
    if not plain:
        return step.Margins(_ops, logits.detach(), y, state)
    x = as_seen(logits)
    x = np.asfortranarray(x) if x.ndim == 2 and x.shape[1] <= FEW_CLASSES else x
    return Blocks(step.numpy_names, x, as_seen(y), state)


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
    trusted, groups = columns.get("trusted"), columns.get("groups")
    valid = columns.get("valid", ones)
    masks = trusted if isinstance(trusted, Split) else (trusted, trusted)
    given = [valid, ranked, columns.get("shares", valid)]
    given += [ones if each is None else each for each in masks[:marks]]
    valid, pooled, shares, *rest = pool.gather(given if groups is None else [*given, groups])
    refused = (valid == REFUSED).any()
    if plain and refused:
        raise other_process()

    def gathered(part: Any) -> Any:
        own = torch.from_numpy(part) if plain else part
        found = pool.gather([own])[0].to(ranked.dtype)
        return found.numpy() if plain else found

    # Where values cannot be read, a process that refuses makes the loss of all NaN.
    shares = shares.to(ranked.dtype).masked_fill(refused, float("nan"))
    found: dict[str, Any] = {"valid": valid > 0, "shares": shares}
    if groups is not None:
        found["groups"] = rest[-1].long()
    if trusted is not None:
        pair = Split(*(mask.bool() for mask in rest[:marks]))
        found["trusted"] = pair if isinstance(trusted, Split) else pair.good
    for name in {"sums", "margins"} & set(columns):
        found[name] = partial(_called, gathered, columns[name])
    return pooled.to(ranked.dtype), found


def _called(gathered: Callable[[Any], Any], measure: Callable[..., Any], *how: Any) -> Any:
    return gathered(measure(*how))
