"""The losses that a method optimises: at the label, or corrected by T; a class for each.

Shapes are those of `_measure`.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from torch import Tensor, nn

from sigua import Method
from sigua.conditions import may_read_class_sums
from sigua.requirements import find_correction, find_form
from sigua.transition import require_matrix
from sigua_torch._inverse import INVERSES
from sigua_torch._measure import Measure, class_dim, is_index
from sigua_torch._observed import OBSERVED
from sigua_torch._sparse import along
from sigua_torch._tables import Tables


class Plain(nn.Module):
    """No correction, and the base of those that there are.

    Args:
        method: whose correction it is.
    """

    def __init__(self, method: Method) -> None:
        super().__init__()

    def losses(self, measure: Measure, logits: Tensor, target: Tensor) -> Tensor:
        """Return what is optimised, a loss per example."""
        return measure.at_label(logits, target)

    def class_sums(self, measure: Measure, logits: Tensor) -> Tensor | None:
        """Return 1'T^-1 l per example, the left-hand side of Eq. 11; None if nobody asks."""
        return None


class Backward(Plain):
    """[T^-1 l]_y."""

    def __init__(self, method: Method) -> None:
        super().__init__(method)
        T = require_matrix("T", method.T)
        self.inverse = find_form(T, INVERSES)(T)
        self.sums = ColumnSums(T) if may_read_class_sums(method.condition) else None

    def losses(self, measure: Measure, logits: Tensor, target: Tensor) -> Tensor:
        return self.inverse.corrected(measure, logits, target)

    def class_sums(self, measure: Measure, logits: Tensor) -> Tensor | None:
        return None if self.sums is None else self.sums.times_losses(measure, logits)


class ColumnSums(Tables):
    """1'T^-1, where the condition may ask for class sums."""

    sums: Tensor
    """(k,)."""

    def arrays(self) -> dict[str, NDArray[Any] | None]:
        return {"sums": self.T.inverse_column_sums}

    def times_losses(self, measure: Measure, logits: Tensor) -> Tensor:
        self.match(logits)
        sums = along(self.sums, logits, class_dim(logits))
        return measure.combined(logits, sums.expand_as(logits))


class Forward(Plain):
    """-log [T'p]_y."""

    def __init__(self, method: Method) -> None:
        super().__init__(method)
        T = require_matrix("T", method.T)
        self.observed = find_form(T, OBSERVED)(T)

    def losses(self, measure: Measure, logits: Tensor, target: Tensor) -> Tensor:
        if measure.base is None and not measure.smoothing and is_index(logits, target):
            loss = -self.observed.log_at(logits, target)
            return loss if measure.weight is None else loss * measure.weight[target]
        return measure.of_probabilities(self.observed.log_all(logits), target)


CORRECTIONS: dict[str, type[Plain]] = {"none": Plain, "backward": Backward, "forward": Forward}


def correction_of(method: Method) -> Plain:
    """Return the method's correction, or raise ValueError if there is none of that name here."""
    return find_correction(method, CORRECTIONS)(method)
