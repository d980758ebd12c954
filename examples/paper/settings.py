"""A run: one training, and all that decides its outcome."""

import hashlib
import json
import warnings
from dataclasses import asdict, dataclass, replace
from typing import Any

import sigua

WARMUP = 10  # the paper's T_k


@dataclass(frozen=True)
class Optimizer:
    """An optimiser and how its learning rate falls.

    Attributes:
        name: "adam", "sgd" or "adagrad".
        decay: "none"; "linear", to 0 from epoch `decay_at` to the end; "step", by 10 every
            `decay_at` epochs.
        late_beta1: Adam's beta1 from `decay_at` on; None for no change.
    """

    name: str = "adam"
    lr: float = 0.001
    betas: tuple[float, float] = (0.9, 0.999)
    momentum: float = 0.0
    decay: str = "none"
    decay_at: int = 0
    late_beta1: float | None = None

    def factor(self, epoch: int, epochs: int) -> float:
        """Return what the learning rate is multiplied by in an epoch, counted from 0."""
        if self.decay == "step":
            return 0.1 ** (epoch // self.decay_at)
        if self.decay == "linear" and epoch > self.decay_at:
            return (epochs - epoch) / (epochs - self.decay_at)
        return 1.0


@dataclass(frozen=True)
class Run:
    """One training, and all that decides its outcome.

    Attributes:
        noise: "sym-50", "pair-45", "open-40" or "none", with the share of wrong labels in %.
        epochs: of the whole schedule, whether or not it is trained to the end.
        shift: epoch from which good and bad are known (fig1); None for never.
        memory: measure on the training data, too, what was learnt and what was memorised.
        limit: use only so many training examples, for a first look.
    """

    data: str
    net: str
    noise: str
    method: str
    seed: int
    preset: str
    optimizer: Optimizer
    epochs: int = 200
    batch: int = 128
    gamma: float = 0.0
    delta: float = 0.0
    variant: str = "paper"
    precision: str = "float32"
    shift: int | None = None
    memory: bool = False
    limit: int | None = None

    @property
    def id(self) -> str:
        """A short name of all attributes."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def trunk(self) -> "Run":
        """What StopGrad and SIGUA have in common: everything before the shift."""
        return replace(self, method="standard", gamma=0.0, epochs=self.shift, shift=None)

    @property
    def noise_rate(self) -> float:
        return 0.0 if self.noise == "none" else int(self.noise.split("-")[1]) / 100

    def T(self, classes: int) -> sigua.TransitionMatrix:  # noqa: N802  # as everywhere
        """Return the transition matrix, of open-set noise a stand-in."""
        kind = sigua.TransitionMatrix.pair if self.noise.startswith("pair") else None
        return (kind or sigua.TransitionMatrix.symmetric)(self.noise_rate, classes)

    def make_method(self, classes: int) -> sigua.Method:
        """Return what is trained with (after the shift, if there is one)."""
        if self.method in ("StopGrad", "SIGUA"):
            return sigua.custom(sigua.Known(), self.gamma)
        if self.method in ("standard", "supervised", "Huber", "log-sum"):
            return sigua.standard()
        if self.method == "agreement":
            return sigua.sigua_ag(WARMUP)
        if self.method in ("self-teaching", "SIGUA_SL"):
            warmup = WARMUP - (self.variant == "official")
            told: dict[str, Any] = {"warmup": warmup, "variant": self.variant}
            if self.method == "self-teaching":
                return sigua.self_teaching(self.noise_rate, **told)
            return sigua.sigua_sl(self.noise_rate, self.delta, self.gamma, **told)
        T = self.T(classes)
        name, *over = self.method.split()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # over="classes" is plain BC here, which is the point
            if name == "SIGUA_BC":
                return sigua.sigua_bc(T, self.gamma, *(over or ["label"]))
            return {
                "BC": sigua.backward_correction,
                "nnBC": sigua.nn_backward_correction,
                "forward": sigua.forward_correction,
            }[name](T)
