"""The label transition matrix T, T[i, j] = p(observed class j | true class i), and its families."""

from sigua.transition._families import mapped_transition, random_transition
from sigua.transition.matrix import TransitionMatrix, require_matrix

__all__ = ["TransitionMatrix", "mapped_transition", "random_transition", "require_matrix"]
