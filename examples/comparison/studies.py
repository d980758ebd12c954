"""What is trained: noises, methods, and the studies, each a list of runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from beyond import AveragedAgreement, OwnWarmup, Softening, ThenForward, TwoNetworks, WithRoom
from elr import EarlyLearning
from torch import Tensor, nn
from train import CLASSES, Settings

import sigua
from sigua import TransitionMatrix
from sigua_torch import SIGUALoss
from sigua_torch.losses import generalized_cross_entropy

# What people mistake for what: in MNIST 7 for 1, 2 for 7, 5 and 6 for each other, 3 for 8; in
# Fashion-MNIST a shirt for a top, a pullover and a coat for each other, a sandal for a sneaker.
MISTAKEN = {
    "mnist": {7: 1, 2: 7, 5: 6, 6: 5, 3: 8},
    "fashion": {6: 0, 2: 4, 4: 2, 5: 7, 9: 7},
}
NOISES = ["sym-20", "sym-50", "sym-70", "pair-45", "random-60", "asym-40"]
NOISES += ["instance-20", "instance-40", "clean"]
PAIR = TransitionMatrix.pair(0.45, CLASSES)
NEEDS_T = ["BC", "SIGUA_BC label", "SIGUA_BC batch", "forward", "floor on forward"]
WARMUP = 10  # epochs in which a floor with a warm-up rises from 0, as rho does in the paper
AGREEMENTS = ["without c", "warmup 5", "warmup 15", "threshold -0.15", "power 0.5"]
AGREEMENTS += ["gamma 0.001", "over GCE"]
AGREEMENTS += ["averaged", "then forward", "own warmup", "two networks", "softening", "room"]
VARIANTS = ["warm-up", "gamma 0.1", "gamma 0"]
CANDIDATES = ["standard", "agreement", "counted agreement"]  # sigua.candidates()
KNOW_NOTHING = ["standard", "GCE", "ELR", "agreement", "counted agreement"]
METHODS = [*KNOW_NOTHING, "self-teaching", "SIGUA_SL", "floor on CE", *NEEDS_T]


class Noise(NamedTuple):
    """Wrong labels, and the truth about them."""

    labels: np.ndarray
    rate: float
    T: TransitionMatrix


class Run(NamedTuple):
    """One training; all of it but the machine."""

    study: str
    data: str
    noise: str
    method: str
    seed: int
    told: str = "truth"  # about the noise: or "estimate", or a factor that the noise rate is off by
    settings: Settings = Settings()


def corrupt(data: str, x: np.ndarray, y: np.ndarray, name: str, seed: int) -> Noise:
    """Return the labels with a noise, its realised rate, and its T (on average, if by instance)."""
    if name == "clean":
        return Noise(y, 0.0, TransitionMatrix(np.eye(CLASSES)))
    kind, _, percent = name.partition("-")
    rate = int(percent) / 100
    if kind == "instance":
        pixels = x.reshape(len(x), -1)
        pixels = (pixels - pixels.mean()) / pixels.std()
        noisy = sigua.corrupt_labels_by_instance(pixels, y, rate, CLASSES, seed=seed)
        counts = np.bincount(y * CLASSES + noisy, minlength=CLASSES**2).reshape(CLASSES, CLASSES)
        T = TransitionMatrix(counts / counts.sum(axis=1, keepdims=True))
    else:
        T = {
            "sym": lambda: TransitionMatrix.symmetric(rate, CLASSES),
            "pair": lambda: TransitionMatrix.pair(rate, CLASSES),
            "random": lambda: sigua.random_transition(CLASSES, noise_rate=rate, seed=seed),
            "asym": lambda: sigua.mapped_transition(MISTAKEN[data], rate, CLASSES),
        }[kind]()
        noisy = sigua.corrupt_labels(y, T, seed=seed)
    return Noise(noisy, float((noisy != y).mean()), T)


def misjudged(noise: Noise, factor: float) -> Noise:
    """Return the noise as someone describes it who is wrong about its rate by a factor."""
    rate = noise.rate * factor
    return noise._replace(rate=rate, T=TransitionMatrix.symmetric(rate, CLASSES))


def make_criterion(
    name: str, noise: Noise, told: Noise, learned: Callable[[float], float] | None = None
) -> nn.Module:
    """Return a criterion that knows what it was told; gamma and delta as in the paper's code.

    Args:
        name: of the method, and after a comma of its variant.
        noise: the truth, which chooses gamma: the paper climbs more slowly under pair noise.
        told: what the method knows.
        learned: a floor that is not computed.
    """
    method, _, variant = name.partition(", ")
    rate, T = told.rate, told.T
    gamma = 0.001 if noise.T == PAIR else 0.01
    if method == "ELR":
        return EarlyLearning(len(noise.labels), CLASSES)
    if method == "agreement":
        return agreement(variant, len(noise.labels))
    if method == "counted agreement":
        return SIGUALoss(sigua.sigua_ag(power=1))
    if method == "GCE":
        return SIGUALoss(sigua.standard(), generalized_cross_entropy)
    if method in ("floor on CE", "floor on forward"):
        on_forward = method == "floor on forward"
        floor = sigua.noise_floor(T) if on_forward else sigua.noise_floor(rate, CLASSES)
        condition = {
            "averaged": lambda: Averaged(floor),
            "held-out": lambda: sigua.NoiseFloor(learned),
            "warm-up": lambda: sigua.NoiseFloor(sigua.Knots([(0, 0.0), (WARMUP, floor)])),
        }.get(variant, lambda: sigua.NoiseFloor(floor))()
        gamma = float(variant.removeprefix("gamma ")) if variant.startswith("gamma") else 1.0
        correction = ("forward", T) if on_forward else ("none", None)
        return SIGUALoss(sigua.custom(condition, gamma, *correction))
    return SIGUALoss(
        {
            "standard": lambda: sigua.standard(),
            "self-teaching": lambda: sigua.self_teaching(rate),
            "SIGUA_SL": lambda: sigua.sigua_sl(rate, delta=0.3 * rate, gamma=gamma),
            "BC": lambda: sigua.backward_correction(T),
            "SIGUA_BC label": lambda: sigua.sigua_bc(T, over="label"),
            "SIGUA_BC batch": lambda: sigua.sigua_bc(T, over="batch"),
            "forward": lambda: sigua.forward_correction(T),
        }[method]()
    )


def agreement(variant: str, examples: int) -> nn.Module:
    """Return agreement's criterion; a variant such as "warmup 5" changes one argument."""
    name, _, value = variant.partition(" ")
    return {
        "over GCE": lambda: SIGUALoss(sigua.sigua_ag(), generalized_cross_entropy),
        "without c": lambda: SIGUALoss(sigua.sigua_ag(by_class=False)),
        "averaged": lambda: AveragedAgreement(examples, CLASSES),
        "then forward": lambda: ThenForward(CLASSES),
        "own warmup": OwnWarmup,
        "two networks": TwoNetworks,
        "softening": Softening,
        "room": lambda: WithRoom(CLASSES),
        "": lambda: SIGUALoss(sigua.sigua_ag()),
    }.get(variant, lambda: SIGUALoss(sigua.sigua_ag(**{name: float(value)})))()


@dataclass(eq=False)
class Averaged:
    """The floor's rule on an exponential average of the batch means, instead of the last one."""

    floor: float
    keep: float = 0.9
    horizon = 0.0

    def __post_init__(self) -> None:
        self.average: Any = None

    def at(self, epoch: float) -> tuple[float, ...]:
        return (self.floor,)

    def split(self, batch: Any, floor: Any) -> sigua.Split:
        mean = batch.mean()
        if self.average is None:
            self.average = 1 * mean
        self.average *= self.keep  # in its place, where a graph on a GPU looks for it
        self.average += (1 - self.keep) * mean
        return sigua.Split(self.average >= floor, self.average < floor)


class HeldOut:
    """A floor that is learned: the lowest mean loss so far of labels that are not trained on.

    Args:
        T: for the loss of forward correction; None for cross-entropy.
    """

    def __init__(self, T: TransitionMatrix | None) -> None:
        self.T, self.value = T, 0.0

    def __call__(self, epoch: float) -> float:
        return self.value

    def update(self, logits: Tensor, labels: Tensor) -> None:
        log_p = logits.log_softmax(1)
        if self.T is not None:
            rows = torch.tensor(self.T.rows, dtype=logits.dtype, device=logits.device)
            log_p = (log_p.exp() @ rows).clamp_min(1e-30).log()
        loss = nn.functional.nll_loss(log_p, labels).item()
        self.value = min(self.value, loss) if self.value else loss


def studies(seeds: int) -> dict[str, Callable[[], Iterator[Run]]]:
    """Return every study by name: the runs it needs beyond those of `table`."""
    both = ["floor on CE", "floor on forward"]
    plain = Settings()

    def over(study: str, *axes: Any) -> Iterator[Run]:
        for *fields, seed in product(*axes, range(seeds)):
            data, noise, method, told, settings = fields
            yield Run(study, data, noise, method, seed, told, settings)

    def table(settings: Settings) -> Iterator[Run]:
        runs = over("table", ["mnist", "fashion"], NOISES, METHODS, ["truth"], [settings])
        # Told that no label is wrong, whoever can be told something is standard training.
        return (run for run in runs if run.noise != "clean" or run.method in KNOW_NOTHING)

    def estimates() -> Iterator[Run]:
        informed = [method for method in METHODS if method not in KNOW_NOTHING]
        noises = [noise for noise in NOISES if noise not in ("sym-70", "clean")]
        return over("estimates", ["mnist", "fashion"], noises, informed, ["estimate"], [plain])

    def sensitivity() -> Iterator[Run]:
        informed = [m for m in METHODS if m not in (*KNOW_NOTHING, "SIGUA_BC label")]
        factors = ["0.8", "0.9", "1.1", "1.2"]
        return over("sensitivity", ["mnist"], ["sym-50"], informed, factors, [plain])

    def batches() -> Iterator[Run]:
        sizes = [Settings(batch=size) for size in (16, 32, 512)]
        methods = [*KNOW_NOTHING, "forward", *both]
        yield from over("batches", ["mnist"], ["sym-50"], methods, ["truth"], sizes)
        alone = [Settings(batch=1, epochs=5)]
        yield from over("batches", ["mnist"], ["sym-50"], ["agreement"], ["truth"], alone)
        averaged = [f"{method}, averaged" for method in both]
        sizes = [Settings(batch=size) for size in (16, 32, 128)]
        yield from over("batches", ["mnist"], ["sym-50"], averaged, ["truth"], sizes)

    def agreements() -> Iterator[Run]:
        methods = [f"agreement, {variant}" for variant in AGREEMENTS]
        yield from over("agreements", ["mnist", "fashion"], NOISES, methods, ["truth"], [plain])
        methods = ["agreement, softening", "agreement, room"]
        settings = [Settings("cnn")]
        yield from over("agreements", ["mnist", "fashion"], NOISES, methods, ["truth"], settings)

    def variants() -> Iterator[Run]:
        methods = [f"{method}, {variant}" for method in both for variant in VARIANTS]
        noises = [noise for noise in NOISES if noise != "clean"]
        return over("variants", ["mnist"], noises, methods, ["truth"], [plain])

    def long() -> Iterator[Run]:
        settings = [Settings(epochs=100, decay=False)]
        return over("long", ["mnist"], ["sym-50"], METHODS, ["truth"], settings)

    def held_out() -> Iterator[Run]:
        methods = [f"{method}, held-out" for method in both]
        noises = [noise for noise in NOISES if noise != "clean"]
        return over("held-out", ["mnist", "fashion"], noises, methods, ["truth"], [plain])

    def choice() -> Iterator[Run]:
        methods = [f"{method}, held-out" for method in [*CANDIDATES, "GCE", "ELR"]]
        for settings in (plain, Settings("cnn")):
            yield from over("choice", ["mnist", "fashion"], NOISES, methods, ["truth"], [settings])

    return {
        "table": lambda: table(plain),
        "cnn": lambda: table(Settings("cnn")),
        "all-images": lambda: table(Settings(images=60_000)),
        "estimates": estimates,
        "sensitivity": sensitivity,
        "batches": batches,
        "agreements": agreements,
        "variants": variants,
        "long": long,
        "held-out": held_out,
        "choice": choice,
    }
