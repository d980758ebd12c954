"""The logits in what a model returns: Hugging Face's models return more than them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sigua import checks


def logits_of(output: Any, target: Any) -> Tensor:
    """Return the logits in a mapping or an object that has them, classes in dimension 1.

    Args:
        output: with "logits" or `.logits`: (N, k), (N, k, d1, ...), or (N, length, k) where the
            target is (N, length), as token classifiers have them.
        target: what the logits are for.

    Returns:
        The logits; `output` itself if it is neither, to be refused with all else that is no tensor.

    Raises:
        ValueError: a mapping without logits.
    """
    if isinstance(output, Mapping) and "logits" not in output:
        came = f"one with {', '.join(map(repr, output)) or 'nothing'} came"
        advice = "return the logits under that name, or pass them"
        raise checks.refuse("input", "must hold 'logits' if it is a mapping", came, advice)
    logits: Tensor = (
        output["logits"] if isinstance(output, Mapping) else getattr(output, "logits", output)
    )
    tensors = isinstance(logits, Tensor) and isinstance(target, Tensor)
    if tensors and logits.ndim == 3 and logits.shape[:2] == target.shape:
        return logits.movedim(2, 1)
    return logits
