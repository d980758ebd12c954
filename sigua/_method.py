"""What a method is: a value that prints, compares, pickles and goes through JSON."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import fields, is_dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sigua import checks, conditions
from sigua.conditions import Condition, NonNegative
from sigua.objective import Array
from sigua.schedules import Knots, Schedule, epoch_number, horizon, values_at
from sigua.transition import TransitionMatrix, require_matrix
from sigua.transition.matrix import MAX_DENSE

Correction = Literal["none", "backward", "forward"]
CORRECTIONS: tuple[Correction, ...] = get_args(Correction)


class Method:
    """What to measure (the correction), who is good or bad (the condition), how to climb (gamma).

    The methods of `sigua.methods` are its subclasses; `sigua.custom` takes the parts.
    """

    condition: Condition
    gamma: Schedule = 0.0
    correction: Correction = "none"
    T: TransitionMatrix | None = None
    separate: bool = False
    """Average good and bad losses apart, as the authors' released code does."""

    _by_name: ClassVar[dict[str, type[Method]]] = {}

    def __init_subclass__(cls) -> None:
        if not cls.__name__.startswith("_"):
            Method._by_name[cls.__name__] = cls

    def __post_init__(self) -> None:
        checks.plain_numbers(self)
        checks.choice("correction", self.correction, CORRECTIONS)
        checks.flag("separate", self.separate)
        checks.schedule("gamma", self.gamma, 0, 1, "try 0, which ignores bad examples, or 0.01")
        self._check_condition()
        if self.correction == "none" and self.T is not None:
            raise ValueError(
                "T: must come with a correction, got correction='none'; "
                "try correction='backward' or 'forward'"
            )
        if self.correction != "none":
            T = require_matrix("T", self.T)
            if self.correction == "backward" and T.csr is not None and T.num_classes > MAX_DENSE:
                raise ValueError(
                    f"T: must have at most {MAX_DENSE} classes for backward correction if sparse, "
                    f"got {T.num_classes}, whose inverse is not; try forward_correction(T)"
                )
        if isinstance(self.condition, NonNegative):
            self._check_non_negative(self.condition)

    def _check_condition(self) -> None:
        condition: Any = self.condition
        rule = "condition: must be an object with the methods at and split"
        if isinstance(condition, type):
            call = "(...)" if is_dataclass(condition) and fields(condition) else "()"
            name = condition.__name__
            raise ValueError(f"{rule}, got the class {name}; try {name}{call}")
        if not all(callable(getattr(condition, name, None)) for name in ("at", "split")):
            got = type(condition).__name__
            raise ValueError(f"{rule}, got a {got}; try help(sigua.Condition), which shows one")
        if not checks.takes(condition.at, 0):
            raise ValueError(
                "condition: must have an at that takes the epoch, got one that does not; "
                "try def at(self, epoch)"
            )
        numbers = _numbers_at(condition, 0)
        if not checks.takes(condition.split, None, *numbers):
            raise ValueError(
                "condition: must have a split that takes the batch and the numbers that at "
                f"returns, {len(numbers)} of them, got one that does not; "
                "try a parameter for each"
            )
        if not isinstance(getattr(condition, "horizon", 0.0), Real):
            raise ValueError(
                f"condition: must have an epoch as its horizon, got {condition.horizon!r}; "
                "try 0, for no schedule"
            )

    def _check_non_negative(self, condition: NonNegative) -> None:
        if self.T is None or self.correction != "backward":
            raise ValueError(
                "condition: must have a backward-corrected loss to judge, as NonNegative does, "
                f"got correction={self.correction!r}; try correction='backward' and T=..."
            )
        if condition.over == "classes" and (self.T.inverse_column_sums >= 0).all():
            warnings.warn(
                "over='classes': with this T the sum of the corrected losses can never be "
                "negative, so no example is ever bad and this is plain backward correction; "
                "use over='label' or over='batch'",
                stacklevel=4,
            )

    def _arguments(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # subclasses are dataclasses

    @property
    def horizon(self) -> float:
        """The epoch from which nothing changes any more; 0 without a schedule, inf if unknown."""
        unknown = float("inf") if self.condition.at(0) else 0.0
        return max(horizon(self.gamma), getattr(self.condition, "horizon", unknown))

    def at(self, epoch: float) -> tuple[float, ...]:
        """Return the epoch's numbers: gamma, then the condition's own.

        Raises:
            ValueError: `epoch` is negative, a schedule left its range, or a rule of one's own does
                not return as many numbers as at epoch 0.
        """
        gammas = values_at("gamma", self.gamma, np.array([epoch_number(epoch)]))
        return gammas[0].item(), *_numbers_at(self.condition, float(epoch))

    def at_each(self, epochs: NDArray[np.float64]) -> list[Array]:
        """Return `at` for many epochs, an array per number; integers stay integers.

        A rule without an `at_each` of its own is asked epoch by epoch.
        """
        rule: Any = self.condition
        gammas = values_at("gamma", self.gamma, epochs)
        if "at_each" in vars(type(rule)):
            return [gammas, *rule.at_each(epochs)]
        each = [_numbers_at(rule, epoch) for epoch in epochs.tolist()]
        return [gammas, *map(np.array, zip(*each, strict=True))]

    def to_dict(self) -> dict[str, Any]:
        """Return the method as a dict of strings, numbers and lists, for JSON.

        Raises:
            ValueError: a schedule is a function, or the condition is your own: neither is data.

        >>> import sigua
        >>> sigua.self_teaching(noise_rate=0.5, warmup=5).to_dict()
        {'method': 'self_teaching', 'noise_rate': 0.5, 'warmup': 5, 'variant': 'paper'}
        """
        encoded = {name: _encode(name, value) for name, value in self._arguments().items()}
        return {"method": type(self).__name__} | encoded

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as data where it is data, which PyTorch loads with weights_only=True."""
        if type(self).__module__ == "sigua.methods":  # a class of your own may not be imported yet
            with suppress(ValueError):
                return method_from_dict, (self.to_dict(),)
        return super().__reduce_ex__(protocol)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Method:
        """Return the method that `to_dict` described, or raise ValueError for any other dict."""
        if not isinstance(data, dict):
            got = type(data).__name__
            raise ValueError(f"data: must be what to_dict returned, got a {got}; try a dict")
        name = data.get("method")
        checks.choice("method", name, Method._by_name)
        try:
            arguments = {name: _decode(value) for name, value in data.items() if name != "method"}
            return Method._by_name[data["method"]](**arguments)
        except TypeError as error:  # an argument is missing or unknown
            raise ValueError(
                f"data: must be complete, with nothing else, got {error}; "
                "try what to_dict() returns"
            ) from None


def _numbers_at(condition: Any, epoch: float) -> tuple[float, ...]:
    """Return a rule's numbers at an epoch; those of a user's rule are checked."""
    numbers: tuple[float, ...] = condition.at(epoch)
    if conditions.is_built_in(condition):
        return numbers
    rule = "condition: must have an at that returns"
    at_epoch = f"got {numbers!r} at epoch {epoch:g}"
    if not (isinstance(numbers, tuple) and all(isinstance(each, Real) for each in numbers)):
        raise ValueError(f"{rule} a tuple of numbers, {at_epoch}; try (x,) for one, () for none")
    if any(number != number for number in numbers):
        raise ValueError(f"{rule} no NaN, {at_epoch}; try another number there")
    width = len(condition.at(0))
    if len(numbers) != width:
        raise ValueError(
            f"{rule} as many numbers in each epoch, {at_epoch}, and {width} at epoch 0; "
            "try a number that changes nothing, such as 0"
        )
    return numbers


def method_from_dict(data: dict[str, Any]) -> Method:
    """Return `Method.from_dict(data)`: what a pickle of a method calls, by a plain name."""
    return Method.from_dict(data)


_CONDITIONS: dict[str, Any] = {
    name: rule for name, rule in vars(conditions).items() if is_dataclass(rule)
}


def _encode(name: str, value: Any) -> Any:
    if isinstance(value, Knots):
        return {"knots": [list(point) for point in value.points]}
    if isinstance(value, TransitionMatrix):
        return value.to_dict()
    if type(value) in _CONDITIONS.values():
        arguments = {field.name: getattr(value, field.name) for field in fields(value)}
        encoded = {key: _encode(key, item) for key, item in arguments.items()}
        return {"condition": type(value).__name__} | encoded
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(
        f"{name}: must be data, got {value!r}; "
        "try sigua.Knots or a number, or keep a condition of your own in code"
    )


def _decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "knots" in value:
        others = {name: item for name, item in value.items() if name != "knots"}
        return Knots(value["knots"], **others)  # which takes no others
    if "condition" in value:
        checks.choice("condition", value["condition"], _CONDITIONS)
        arguments = {name: _decode(item) for name, item in value.items() if name != "condition"}
        return _CONDITIONS[value["condition"]](**arguments)
    return TransitionMatrix.from_dict(value)
