"""The paper's methods by name, and `custom` for any other combination of their parts."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property

from sigua._method import Correction, Method
from sigua.conditions import Agreement, AllGood, Condition, NonNegative, SmallLoss
from sigua.schedules import Schedule
from sigua.transition import TransitionMatrix


@dataclass(frozen=True)
class custom(Method):
    """Any condition over any correction.

    Args:
        condition: `Known()`, another of ours, or your own (see `sigua.Condition`).
        gamma: how fast to climb on the bad, in [0, 1]; a number or a function of the epoch.
        correction: "none", "backward" or "forward".
        T: the transition matrix of a correction.
        separate: average good and bad losses apart.

    >>> custom(NonNegative("batch"), 0.5, "backward", TransitionMatrix.symmetric(0.5, 10)).at(0)
    (0.5,)
    """

    condition: Condition
    gamma: Schedule = 0.0
    correction: Correction = "none"
    T: TransitionMatrix | None = None
    separate: bool = False


@dataclass(frozen=True)
class standard(Method):
    """Standard training: everything is good."""

    condition = AllGood()


@dataclass(frozen=True)
class sigua_ag(Method):
    """Train on the labels that the model itself agrees with; nothing to know (ours).

    Everybody is good in the first epoch. The margin that a label needs then rises, for `warmup`
    epochs, until the model must predict the label: see `Agreement`. The share that is dropped in
    the end estimates the noise rate.

    Not for wrong labels that are the likelier ones given x, such as those from keyword rules.

    Args:
        warmup: T_k, epochs until a label must be what the model predicts.
        gamma: how fast to climb on the others, in [0, 1]; a number or a function of the epoch. It
            gains nothing where we measured it.
        by_class: divide probabilities by the class confidence, see `Agreement`.
        threshold: the margin needed in the end, in [-1, 1).
        power: 1 drops a label only if the run's own counts say that it is more probably wrong than
            right, 0 (the default) if the model disagrees; in [0, 1].

    >>> sigua_ag()
    sigua_ag(warmup=10, gamma=0.0, by_class=True, threshold=0.0, power=0.0)
    """

    warmup: float = 10
    gamma: Schedule = 0.0
    by_class: bool = True
    threshold: float = 0.0
    power: float = 0.0

    @cached_property
    def condition(self) -> Agreement:  # type: ignore[override]  # derived, hence read-only
        return Agreement(self.warmup, self.by_class, self.threshold, self.power)


class _OnSmallLoss(Method):
    noise_rate: float
    delta: Schedule
    warmup: float
    variant: str

    @cached_property
    def condition(self) -> SmallLoss:  # type: ignore[override]  # derived, hence read-only
        return SmallLoss(self.noise_rate, self.delta, self.warmup, self.variant)

    @property
    def separate(self) -> bool:  # type: ignore[override]  # derived here, a field there
        return self.variant == "official"


@dataclass(frozen=True)
class self_teaching(_OnSmallLoss):
    """Train on the small losses only (Eq. 5): SIGUA_SL with nobody to climb on.

    The arguments are those of `sigua_sl`.

    >>> self_teaching(0.5)
    self_teaching(noise_rate=0.5, warmup=10, variant='paper')
    """

    noise_rate: float
    warmup: float = 10
    variant: str = "paper"

    delta = 0.0


@dataclass(frozen=True)
class sigua_sl(_OnSmallLoss):
    """SIGUA on small loss: descend on the small, climb on the middle ones (Eqs. 5 and 6).

    Args:
        noise_rate: share of wrong labels, in [0, 1).
        delta: rate of examples to forget; a number in [0, 1] or a function of the epoch. The paper
            gives no values; 0.3 to 0.7 of the noise rate is what the authors' code takes.
        gamma: how fast to climb, in [0, 1]; a number or a function of the epoch. The paper takes
            0.01, and 0.001 for pair noise on MNIST.
        warmup: T_k, epochs until 1 - noise_rate of each mini-batch is kept.
        variant: "paper", or "official" for the authors' released code, where delta is a share of
            what was dropped and good and bad losses are averaged apart.

    >>> sigua_sl(noise_rate=0.5, delta=0.15)
    sigua_sl(noise_rate=0.5, delta=0.15, gamma=0.01, warmup=10, variant='paper')
    """

    noise_rate: float
    delta: Schedule
    gamma: Schedule = 0.01
    warmup: float = 10
    variant: str = "paper"


@dataclass(frozen=True)
class backward_correction(Method):
    """Minimise [T^-1 l]_y, an unbiased estimate of the clean risk (Patrini et al. 2017; Eq. 8).

    Args:
        T: the transition matrix.

    >>> backward_correction(TransitionMatrix.pair(0.45, 10))
    backward_correction(T=TransitionMatrix.pair(0.45, 10))
    """

    T: TransitionMatrix

    condition = AllGood()
    correction = "backward"


@dataclass(frozen=True)
class forward_correction(Method):
    """Minimise -log [T'p]_y: let the model's p predict the noisy label (Patrini et al. 2017).

    Not in the SIGUA paper; a peer that needs the same T.

    Args:
        T: the transition matrix.
    """

    T: TransitionMatrix

    condition = AllGood()
    correction = "forward"


class _OnNonNegative(Method):
    over: str
    correction = "backward"

    @cached_property
    def condition(self) -> NonNegative:  # type: ignore[override]  # derived here, a field there
        return NonNegative(self.over)


@dataclass(frozen=True)
class nn_backward_correction(_OnNonNegative):
    """Backward correction that ignores what went below zero: SIGUA_BC with gamma = 0.

    Arguments and warnings are those of `sigua_bc`.
    """

    T: TransitionMatrix
    over: str = "label"


@dataclass(frozen=True)
class sigua_bc(_OnNonNegative):
    """SIGUA on backward correction: climb where the corrected loss is negative (Eqs. 11 and 12).

    Args:
        T: the transition matrix.
        gamma: how fast to climb, in [0, 1]; the paper takes 1.
        over: what must not be negative: "label", "classes" or "batch" (see `NonNegative`).

    Warns:
        UserWarning: over="classes" with a T for which that sum cannot be negative.

    >>> sigua_bc(TransitionMatrix.symmetric(0.5, 10))
    sigua_bc(T=TransitionMatrix.symmetric(0.5, 10), gamma=1.0, over='label')
    """

    T: TransitionMatrix
    gamma: Schedule = 1.0
    over: str = "label"


def stop_grad(method: Method) -> Method:
    """Return the method with gamma = 0: bad examples are ignored instead of climbed on.

    Raises:
        ValueError: `method` is not a method, or has no `gamma`.

    >>> stop_grad(sigua_sl(0.5, delta=0.15)).gamma
    0.0
    """
    if not isinstance(method, Method) or "gamma" not in method._arguments():
        advice = "it as it is: it climbs on nobody" if isinstance(method, Method) else "a method"
        raise ValueError(f"method: must have a gamma, got {method!r}; try {advice}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whoever made the method has been warned
        return replace(method, gamma=0.0)  # type: ignore[type-var]  # subclasses are dataclasses
