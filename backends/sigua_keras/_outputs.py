"""Which of a model's outputs is trained with SIGUA, and its part of labels, losses and weights."""

from __future__ import annotations

from typing import Any

from keras import KerasTensor, Sequential, tree


class Output:
    """One place in the structure of predictions: a dict, a list, a tuple, or a lone tensor.

    Args:
        wanted: the name of an output, its index (not in a dict), or None if there is only one.
        y_pred: the model's predictions.
        names: the model's output names, if it has any.

    Raises:
        ValueError: several outputs but no name or index, no such output, or nested outputs.
    """

    def __init__(self, wanted: str | int | None, y_pred: Any, names: list[str] | None) -> None:
        self.mapping = isinstance(y_pred, dict)
        if isinstance(y_pred, dict):
            self.names: list[Any] = sorted(y_pred)  # the order in which Keras flattens a dict
        else:
            count = len(y_pred) if tree.is_nested(y_pred) else 1
            self.names = list(names) if names and len(names) == count else list(range(count))
        self.lone = not tree.is_nested(y_pred)
        self.index = self._find(wanted)
        if tree.is_nested(self.of("y_pred", y_pred)):
            raise ValueError(
                "output: must be one of a flat dict, list or tuple of outputs, got nested outputs; "
                "try flattening the outputs"
            )

    def _find(self, wanted: str | int | None) -> int:
        if wanted is None and len(self.names) == 1:
            return 0
        if wanted in self.names:
            return self.names.index(wanted)
        if isinstance(wanted, int) and not self.mapping and 0 <= wanted < len(self.names):
            return wanted
        listed = ", ".join(repr(name) for name in self.names)
        raise ValueError(
            f"output: must be one of {listed}, got {wanted!r}; try output={self.names[0]!r}"
        )

    def of(self, what: str, structure: Any, index: int | None = None) -> Any:
        """Return this output's part of a structure; a lone value is the same for every output.

        Raises:
            ValueError: a list without an entry for each output.
        """
        index = self.index if index is None else index
        if isinstance(structure, dict):
            return structure.get(self.names[index])
        if isinstance(structure, (list, tuple)):
            if len(structure) != len(self.names):
                raise ValueError(
                    f"{what}: must have an entry per output, got {len(structure)} for "
                    f"{len(self.names)} outputs; try a dict"
                )
            return structure[index]
        return structure

    @property
    def name(self) -> Any:
        return self.names[self.index]

    def is_at(self, path: tuple[Any, ...]) -> bool:
        """Return whether a path in the structure of predictions leads here."""
        return not path if self.lone else path[0] in (self.name, self.index)

    def put(self, structure: Any, part: Any) -> Any:
        """Return the structure with another part for this output."""
        if isinstance(structure, dict):
            return {**structure, self.names[self.index]: part}
        if isinstance(structure, (list, tuple)):
            parts = [part if i == self.index else item for i, item in enumerate(structure)]
            return parts if isinstance(structure, list) else tuple(parts)
        return part

    def parts(self, structure: Any) -> list[Any]:
        """Return each output's part of the sample weights."""
        return [self.of("sample_weight", structure, i) for i in range(len(self.names))]

    def packed(self, parts: list[Any]) -> Any:
        """Return parts, one for each output, in the structure of the predictions."""
        if self.lone:
            return parts[0]
        return dict(zip(self.names, parts, strict=True)) if self.mapping else parts


def predicted(model: Any) -> Any:
    """Return the outputs of a functional or built sequential model, symbolic tensors, or None.

    If a release of Keras keeps them elsewhere, the checks wait for the first step.
    """
    inner = getattr(model, "_functional", None) if isinstance(model, Sequential) else model
    return getattr(inner, "_outputs_struct", None)


def traced(model: Any) -> Any:
    """Return the outputs of any other built model, symbolic tensors, or None."""
    shapes = (model.get_build_config() or {}).get("input_shape")
    if shapes is None:
        return None
    try:
        return model.compute_output_spec(_symbolic(shapes))
    except Exception:  # raised by the model's own code: then its outputs are not known
        return None


def _symbolic(shapes: Any) -> Any:
    if isinstance(shapes, dict):
        return {name: _symbolic(shape) for name, shape in shapes.items()}
    if any(isinstance(part, (dict, list, tuple)) for part in shapes):
        return [_symbolic(shape) for shape in shapes]
    return KerasTensor(tuple(shapes))
