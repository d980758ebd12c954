"""Labels by the names of the classes, and probabilities whose columns have names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigua import checks
from sigua._blocks import Probabilities


def probabilities_and_labels(
    probabilities: Any, labels: Any, classes: Any
) -> tuple[Probabilities, NDArray[np.int64], list[Any] | None]:
    """Return probabilities, (n, k), each label's column, (n,), and the names of the columns."""
    p = Probabilities("probabilities", probabilities)
    names = column_names(probabilities, classes, p.shape[1])
    y = checks.labels("labels", columns_of("labels", labels, names), p.shape[1])
    y = np.asarray(y, dtype=np.int64)
    checks.same_length("labels", y, "probabilities", p)
    checks.same_order("labels", labels, probabilities, "probabilities")
    return p, y, names


def column_names(probabilities: Any, classes: Any, num_classes: int) -> list[Any] | None:
    """Return the names of the columns: `classes`, or those of a data frame.

    None if the columns have numbers only.
    """
    counted = list(range(num_classes))
    columns = list(getattr(probabilities, "columns", counted))
    if classes is None:
        return None if columns == counted else columns
    names = checks.array("classes", classes)
    if names.shape != (num_classes,) or len(set(names.tolist())) != num_classes:
        raise ValueError(
            f"classes: must be {num_classes} different names, one for each column, "
            f"got {names.tolist()!r}; try clf.classes_"
        )
    if columns not in (counted, names.tolist()):
        raise ValueError(
            f"classes: must be the columns of probabilities, {columns!r}, in their order, got "
            f"{names.tolist()!r}; try probabilities[list(classes)]"
        )
    return list(names.tolist())


def columns_of(name: str, labels: Any, names: list[Any] | None) -> Any:
    """Return the column of each label; without names, the labels as they are."""
    if names is None:
        return labels
    found = checks.array(name, labels)
    if found.ndim != 1:
        return found  # the caller refuses it, with advice for its shape
    columns = {names[i]: i for i in range(len(names))}
    index = np.array([columns.get(label, -1) for label in found.tolist()], dtype=np.int64)
    if (index < 0).any():
        first = int((index < 0).argmax())
        raise ValueError(
            f"{name}: must be among the classes {names!r}, got {name}[{first}] = "
            f"{found.tolist()[first]!r}; try classes=clf.classes_, or probabilities.to_numpy() "
            "for labels that are numbers of columns"
        )
    return index
