"""The logits in what a model returns: Hugging Face's models return more than them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sigua import checks


def logits_of(output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits in a mapping or an object that has them, classes in dimension 1.

    Args:
        output: with "logits" or `.logits`: (N, k), (N, k, d1, ...), or (N, length, k) where the
            target is (N, length), as token classifiers have them.
        target: what the logits are for.

    Returns:
        The logits and their target; `output` itself if it is neither, to be refused with all else
        that is no tensor. A causal language model (its output is a `CausalLMOutput...`) predicts
        at each place the token after it: the last place has no target, the first token no logits.

    Raises:
        ValueError: a mapping without logits, or a tuple.
    """
    if isinstance(output, (tuple, list)):
        raise ValueError(
            f"input: must be logits, or an output that names them, got a {type(output).__name__}; "
            "try return_dict=True in the model's config, or pass the logits"
        )
    if isinstance(output, Mapping) and "logits" not in output:
        came = f"one with {', '.join(map(repr, output)) or 'nothing'} came"
        advice = "return the logits under that name, or pass them"
        raise checks.refuse("input", "must hold 'logits' if it is a mapping", came, advice)
    named = isinstance(output, Mapping)
    logits: Tensor = output["logits"] if named else getattr(output, "logits", output)
    tensors = isinstance(logits, Tensor) and isinstance(target, Tensor)
    if tensors and logits.ndim == 3 and logits.shape[:2] == target.shape:
        if _is_causal(output):
            logits, target = logits[:, :-1], target[:, 1:]
        return logits.movedim(2, 1), target
    return logits, target


def _is_causal(output: Any) -> bool:
    """Return whether Hugging Face calls this the output of a causal language model."""
    return any("CausalLMOutput" in kind.__name__ for kind in type(output).__mro__)
