"""A value that is made of numbers and NumPy arrays: it cannot be changed, compares and pickles."""

from __future__ import annotations

from typing import Any

import numpy as np


class Kept:
    """Base of a class whose objects set their attributes by `_keep` alone."""

    def _keep(self, **parts: Any) -> None:
        """Set attributes; arrays, and those of tuples, become read-only."""
        for part in parts.values():
            for array in part if isinstance(part, tuple) else (part,):
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)
        vars(self).update(parts)

    def _parts(self) -> tuple[Any, ...]:
        """Return what an object is: two are equal if these are."""
        raise NotImplementedError

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a {type(self).__name__} is immutable; make another")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._keep(**state)  # a copy or a pickle has made arrays writeable

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        mine, others = self._parts(), other._parts()
        return len(mine) == len(others) and all(map(np.array_equal, mine, others))

    def __hash__(self) -> int:
        parts = self._parts()
        return hash(tuple(p.tobytes() if isinstance(p, np.ndarray) else p for p in parts))
