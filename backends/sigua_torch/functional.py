"""Without a criterion: the corrected losses, and who is good or bad with what weight."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sigua import Method, Split, checks, step
from sigua.conditions import reads
from sigua.requirements import require_classes, require_method, require_whole
from sigua_torch import _check, _ops
from sigua_torch._examples import of_classes
from sigua_torch._objective import margins_of, seen, sums_of
from sigua_torch._ops import as_tensor, column, exact
from sigua_torch._state import nothing_seen
from sigua_torch._wrapped import Criterion, Wrapped

FLOATS = torch.float32, torch.float64
INTEGERS = torch.int64, torch.int32
NAMES = "logits", "labels"


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
    given = of_classes(logits, labels, None, options.ignore_index, names=NAMES)
    x, y, valid = given.logits, given.y, given.valid
    require_classes(method, x.shape[1])
    M, own = step.matrix(_ops, method, x), options.cast(x.dtype).loss
    losses: Tensor = step.corrected_losses(_ops, method.correction, M, own, x, y)
    if valid is not None:
        losses = losses.reshape(-1).masked_fill(~valid, 0.0)
    return losses.reshape(given.shape or ())


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
        labels: class indices or probabilities, where the rule reads margins; -100, as elsewhere in
            PyTorch, takes no part. For another index give `where`.
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
    shape, device, viewable = losses.shape, losses.device, _ops.is_viewable(losses)
    if where is not None:
        _check.mask("where", where, shape, device)
    if labels is not None:
        _check.tensor("labels", labels, device, "loss")
    _check.trusted(method, trusted, shape, device)
    x, y = None, labels
    if logits is not None:
        x, y, where = _fitting(logits, labels, where, shape, device)
        require_classes(method, x.shape[1])
    elif labels is not None and not labels.is_floating_point():
        _check.fits("labels", labels, shape, INTEGERS, "class indices, one for each loss")
        where = labels != -100 if where is None else where & (labels != -100)
    columns: dict[str, Any] = {"valid": column(where), "trusted": column(trusted)}
    if groups is not None:
        require_whole(method, "groups")
        columns["groups"] = column(_groups(groups, labels, shape))
    if reads(method.condition, "confidence") or reads(method.condition, "margins"):
        x, y = _given("logits", x), _given("labels", y)
        state = _remembered(method, confidence, x)
        columns["margins"] = margins_of(x, y, state, viewable)
    T: Any = method.T
    if method.correction == "backward":
        columns["sums"] = lambda: sums_of(
            T.inverse_column_sums, step.CrossEntropy(), _given("logits", x), viewable
        )
    ops, ranked, columns = seen(exact(losses.detach().reshape(-1)), columns, viewable)
    chosen = step.select(ops, method, method.at(epoch), ranked, **columns)
    return step.Selection(*(as_tensor(part).reshape(shape) for part in chosen))


def _fitting(
    logits: Tensor,
    labels: Tensor | None,
    where: Tensor | None,
    shape: torch.Size,
    device: torch.device,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return logits, (N, k, ...), labels if given, and who takes part, that fit the losses."""
    _check.tensor("logits", logits, device, "loss")
    _check.class_dim(logits, shape, "losses'")
    if labels is None:
        return exact(logits.detach() if logits.ndim > 1 else logits.detach()[None]), None, where
    found = of_classes(logits.detach(), labels, where, -100, names=NAMES)
    return found.logits, found.y, found.valid


def _groups(groups: Any, labels: Tensor | None, shape: torch.Size) -> Tensor:
    """Return who is judged together, integers of the losses' shape."""
    if isinstance(groups, str):
        checks.choice("groups", groups, ("class",))
        groups = _given("labels", labels)
    found: Tensor = groups
    _check.fits("groups", found, shape, INTEGERS, "an integer for each loss, or 'class'")
    return found


def _remembered(method: Method, state: Tensor | None, x: Tensor) -> Tensor | None:
    """Return the state that margins are measured by; None for a rule without one."""
    if not reads(method.condition, "confidence"):
        return None
    zeros = nothing_seen(x.shape[1], reads(method.condition, "counts"), x.device)
    state = zeros if state is None else state
    advice = f"sigua.confidence.zeros({x.shape[1]}) and what becomes of it, as a tensor"
    _check.fits("confidence", state, zeros.shape, FLOATS, advice)
    return state


def _given(name: str, value: Tensor | None) -> Tensor:
    if value is None:
        _check.refuse(name, "be given for this rule", None, f"{name}={name}")
    return value
