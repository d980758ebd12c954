"""Training a run: epochs on the device, measurements, and a state to go on from."""

import math
import time
from contextlib import nullcontext
from functools import partial
from typing import Any

import networks
import robust
import torch
from settings import Optimizer, Run
from tasks import Task
from torch import Tensor, nn

import sigua
from sigua_torch import SIGUALoss

EVALUATE = 2_000  # examples at a time
DECIMALS = 4  # of a percentage


def use_precision(name: str) -> None:
    """Let float32 products on an NVIDIA GPU be TF32, or keep them exact."""
    tf32 = name == "tf32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True  # the shapes are few


class Trainer:
    """A run in training.

    Args:
        run: what to train.
        task: its data.
        plain: train with `nn.CrossEntropyLoss`, for comparing costs.
    """

    def __init__(self, run: Run, task: Task, *, plain: bool = False) -> None:
        self.run, self.task = run, task
        self.device = task.x.device
        torch.manual_seed(run.seed)
        net = networks.make(run.net, tuple(task.x.shape[1:]), task.classes, task.vectors)
        self.channels_last = self.device.type == "cuda" and task.x.ndim == 4
        layout = torch.channels_last if self.channels_last else torch.preserve_format
        self.net = net.to(self.device, memory_format=layout)
        self.optimizer = make_optimizer(run.optimizer, self.net)
        self.order = torch.Generator().manual_seed(run.seed)  # the same on every device
        self.epoch = 0
        self.seconds = 0.0
        self.curves: dict[str, list[float | None]] = {}
        method = run.make_method(task.classes)
        self.method: Any = nn.CrossEntropyLoss() if plain else criterion(run, method)
        self.method.to(self.device)
        self.before = SIGUALoss(sigua.standard()).to(self.device)
        self.selects = not plain and run.shift is None and method.condition != sigua.AllGood()

    def train_epoch(self) -> None:
        """Train an epoch, measure, and count it."""
        start = time.perf_counter()
        index, split = self.steps(self.begin())
        found = self.measure()
        if self.selects:
            found |= selection(split, self.task.intact[index])
        values = torch.stack(list(found.values())).tolist()  # the epoch's one wait for the device
        for name, value in zip(found, values, strict=True):
            percent = None if math.isnan(value) else round(100 * value, DECIMALS)
            self.curves.setdefault(name, []).append(percent)
        self.seconds += time.perf_counter() - start
        self.epoch += 1

    def begin(self) -> Tensor:
        """Set the epoch's numbers; return the order of its examples."""
        run, factor = self.run, self.run.optimizer.factor(self.epoch, self.run.epochs)
        late = run.optimizer.late_beta1
        for group in self.optimizer.param_groups:
            group["lr"] = run.optimizer.lr * factor
            if late is not None and self.epoch >= run.optimizer.decay_at:
                group["betas"] = (late, run.optimizer.betas[1])
        if isinstance(self.method, SIGUALoss):
            self.method.set_epoch(self.epoch)
        self.net.train()
        return torch.randperm(len(self.task.y), generator=self.order).to(self.device)

    def steps(self, index: Tensor) -> tuple[Tensor, sigua.Split | None]:
        """Train on the examples in this order; return it and who was good and bad."""
        task, known = self.task, self.run.shift is not None and self.epoch >= self.run.shift
        criterion = self.before if self.run.shift is not None and not known else self.method
        splits = []
        for batch in index.split(self.run.batch):
            y = task.y[batch]
            self.optimizer.zero_grad()
            logits = self.forward(task.x[batch])
            marks = {"trusted": task.intact[batch]} if known else {}
            loss = criterion(logits, y, **marks)
            loss.backward()
            self.optimizer.step()
            if self.selects:
                splits.append(criterion.split)
        if not splits:
            return index, None
        good, bad = (torch.cat(masks) for masks in zip(*splits, strict=True))
        return index, sigua.Split(good, bad)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, in float32, or bfloat16 where the run asks for it."""
        if self.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        half = self.run.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16) if half else nullcontext():
            return self.net(x)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Return the predicted classes; dropout is off, batch normalisation uses its averages."""
        self.net.eval()
        return torch.cat([self.forward(part).argmax(1) for part in x.split(EVALUATE)])

    def measure(self) -> dict[str, Tensor]:
        """Return the accuracies: on the test data and, where the run asks, of what is learnt."""
        task = self.task
        found = {"test": (self.predict(task.x_test) == task.y_test).float().mean()}
        if self.run.memory:
            fits = self.predict(task.x) == task.y
            found["intact"] = share(fits, task.intact)
            found["flipped"] = share(fits, ~task.intact)
        return found

    def state(self) -> dict[str, Any]:
        """Return all that a later process needs to go on as if nothing had happened."""
        cuda = self.device.type == "cuda"
        return {
            "epoch": self.epoch,
            "seconds": self.seconds,
            "curves": {name: list(values) for name, values in self.curves.items()},
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "order": self.order.get_state(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(self.device) if cuda else None,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.epoch, self.seconds = state["epoch"], state["seconds"]
        self.curves = {name: list(values) for name, values in state["curves"].items()}
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.order.set_state(state["order"])
        torch.set_rng_state(state["rng"])
        if state["cuda_rng"] is not None and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda_rng"], self.device)


def criterion(run: Run, method: sigua.Method) -> SIGUALoss:
    """Return the criterion, on cross-entropy or on one of the two robust losses."""
    if run.method not in ("Huber", "log-sum"):
        return SIGUALoss(method)
    robust_losses = {"Huber": robust.huber, "log-sum": partial(robust.log_sum, epsilon=1.0)}
    return SIGUALoss(method, robust_losses[run.method])


def make_optimizer(settings: Optimizer, net: nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser for a network's parameters."""
    if settings.name == "adam":
        return torch.optim.Adam(net.parameters(), lr=settings.lr, betas=settings.betas)
    if settings.name == "sgd":
        return torch.optim.SGD(net.parameters(), lr=settings.lr, momentum=settings.momentum)
    return torch.optim.Adagrad(net.parameters(), lr=settings.lr)


def share(mask: Tensor, among: Tensor) -> Tensor:
    """Return how many of some examples a mask has, in [0, 1]; NaN of none."""
    return (mask & among).sum() / among.sum()


def selection(split: sigua.Split | None, intact: Tensor) -> dict[str, Tensor]:
    """Return how many were good and bad, and how rightly (label precision)."""
    assert split is not None
    good, bad = split
    return {
        "good": good.float().mean(),
        "bad": bad.float().mean(),
        "good_precision": share(intact, good),
        "bad_precision": share(~intact, bad),
    }
