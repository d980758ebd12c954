"""What a method costs: an epoch of the cpu preset beside the same epoch with cross-entropy."""

import time
from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from statistics import median

import torch
from experiments import SET1, SET2, Options, make_run
from rich.box import MARKDOWN
from rich.progress import track
from rich.table import Table
from tasks import Task
from train import Trainer

CHUNK = 40  # mini-batches after which the two take turns, so that both see the same machine
EPOCHS = 3
LATE = 12  # an epoch after the warm-up


def random_task(examples: int = 60_000) -> Task:
    """Return data of MNIST's size; what is in them makes no difference to the cost."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(examples, 1, 28, 28, generator=generator)
    y = torch.randint(10, (examples,), generator=generator)
    intact = torch.rand(examples, generator=generator) < 0.5
    return Task(x, y, intact, x[:10_000], y[:10_000], 10, None)


def compare(method: str, noise: str, task: Task) -> tuple[float, float]:
    """Return seconds per epoch, test included, with cross-entropy and with the method.

    What the method costs is the median over chunks of an epoch; each is trained by both, in turn.
    """
    run = make_run("mnist", noise, method, 0, Options(preset="cpu"))
    trainers = [Trainer(run, task, plain=plain) for plain in (True, False)]
    seconds: list[list[float]] = [[], []]
    for _ in range(EPOCHS):
        chunks = []
        for trainer in trainers:
            trainer.epoch = LATE
            chunks.append(trainer.begin().split(CHUNK * run.batch))
        for turn, both in enumerate(zip_longest(*chunks)):
            for which in (0, 1) if turn % 2 else (1, 0):
                seconds[which].append(timed(partial(trainers[which].steps, both[which])))
    ratio = median(own / plain for plain, own in zip(*seconds, strict=True))
    training, test = sum(seconds[0]) / EPOCHS, timed(trainers[0].measure)
    return training + test, ratio * training + test


def timed(work: Callable[[], object]) -> float:
    """Return how many seconds of the processor it takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def table(task: Task, noise: str = "sym-50") -> Table:
    """Return the costs of every method of both sets."""
    title = f"Seconds per epoch, {len(task.y):,} examples, cpu preset, {noise}"
    grid = Table("method", "cross-entropy", "method", "ratio", box=MARKDOWN, title=title)
    for method in track([*SET1, *SET2], "measuring", transient=True):
        plain, own = compare(method, noise, task)
        grid.add_row(method, f"{plain:.2f}", f"{own:.2f}", f"{own / plain:.3f}")
    return grid
