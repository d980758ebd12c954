"""Find the logits in a model's output: models of Hugging Face return more than logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def logits_of(output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits in a mapping or an object that has them, classes in dimension 1.

    Args:
        output: with "logits" or `.logits`: (N, k), (N, k, d1, ...), or (N, length, k) where the
            target is (N, length), as in token classification.
        target: the target of the logits.

    Returns:
        The logits and their target. If `output` has no logits it is returned itself, and refused
        later if it is not a tensor. A causal language model (its output is a `CausalLMOutput...`)
        predicts the next token at each place: the last place has no target, and the first token no
        logits.

    Raises:
        ValueError: a mapping without logits, or a tuple.
    """
    if isinstance(output, (tuple, list)):
        raise ValueError(
            f"input: must be logits, or an output that names them, got {type(output).__name__}; "
            "try return_dict=True in the model's config, or passing the logits"
        )
    named = isinstance(output, Mapping)
    if named and "logits" not in output:
        raise ValueError(
            "input: must have 'logits' if it is a mapping, "
            f"got {', '.join(map(repr, output)) or 'an empty one'}; "
            "try returning the logits under that name, or passing them"
        )
    logits: Tensor = output["logits"] if named else getattr(output, "logits", output)
    tensors = isinstance(logits, Tensor) and isinstance(target, Tensor)
    if tensors and logits.ndim == 3 and logits.shape[:2] == target.shape:
        if any("CausalLMOutput" in kind.__name__ for kind in type(output).__mro__):
            logits, target = logits[:, :-1], target[:, 1:]
        logits = logits.movedim(2, 1)
    return logits, target
