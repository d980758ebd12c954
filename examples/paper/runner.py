"""Runs in a row: what is done already, checkpoints, stopping, progress, and a line for each."""

import platform
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from experiments import Cell
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from settings import Run
from store import Store
from tasks import prepare
from train import Trainer

import sigua

EVERY = 5  # epochs between checkpoints


class Stop:
    """When to stop: time is up, or the user asked to (Ctrl-C, or a termination signal).

    The first Ctrl-C lets the epoch end and is saved; a second one stops at once.

    Args:
        minutes: until time is up; None for never.
    """

    def __init__(self, minutes: float | None) -> None:
        self.deadline = float("inf") if minutes is None else time.monotonic() + 60 * minutes
        self.asked = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> "Stop":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("\nStopping after this epoch; again to stop at once.", file=sys.stderr)

    def now(self, deadline: float = float("inf")) -> bool:
        return self.asked or time.monotonic() >= min(deadline, self.deadline)

    def left(self) -> float:
        return max(self.deadline - time.monotonic(), 0.0)


def advance(
    trainer: Trainer, store: Store, stop: Stop, until: int, deadline: float, bar: "Bar"
) -> None:
    """Train until an epoch, or until it is time to stop; leave a checkpoint."""
    bar.show(trainer)
    while trainer.epoch < until and not stop.now(deadline):
        trainer.train_epoch()
        bar.show(trainer)
        if trainer.epoch % EVERY == 0:
            store.save(trainer.run, trainer.state())
    store.save(trainer.run, trainer.state())


def train(
    run: Run, task: Any, store: Store, stop: Stop, until: int, deadline: float, bar: "Bar"
) -> Trainer:
    """Return the trained run, begun anew or at its checkpoint.

    What StopGrad and SIGUA have in common is trained by the first of them, under its own name.
    """
    trainer = Trainer(run, task)
    state = store.saved(run)
    if state is None and run.shift is not None:
        trunk = Trainer(run.trunk, task)
        if (state := store.saved(run.trunk)) is not None:
            trunk.load(state)
        advance(trunk, store, stop, min(run.shift, until), deadline, bar)
        state = trunk.state()
    if state is not None:
        trainer.load(state)
    if run.shift is None or trainer.epoch >= run.shift:
        advance(trainer, store, stop, until, deadline, bar)
    return trainer


def row_of(trainer: Trainer) -> dict[str, Any]:
    """Return what is known about a run, as a line of JSON."""
    run, device = trainer.run, trainer.device
    cuda = device.type == "cuda"
    return {
        "id": run.id,
        "run": asdict(run),
        "method": repr(run.make_method(trainer.task.classes)),
        "epochs": trainer.epoch,
        "finished": trainer.epoch >= run.epochs,
        "seconds": round(trainer.seconds, 2),
        "device": torch.cuda.get_device_name(device) if cuda else f"CPU, {platform.machine()}",
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "sigua": sigua.__version__,
        },
        "when": time.time(),
        "curves": trainer.curves,
    }


class Bar:
    """A bar that counts the epochs of all runs."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress = progress
        self.task = progress.add_task("", total=total)
        self.label, self.before = "", 0

    def show(self, trainer: Trainer) -> None:
        accuracies = trainer.curves.get("test", [])
        said = f"epoch {trainer.epoch}"
        said += f" {accuracies[-1]:.2f} %" if accuracies else ""
        done = self.before + trainer.epoch
        self.progress.update(self.task, completed=done, description=f"{self.label} {said}")


def run_all(
    name: str,
    cells: list[Cell],
    store: Store,
    *,
    folder: Path | None,
    device: str,
    resume: bool = False,
    epochs: int | None = None,
    minutes: float | None = None,
    in_turn: bool = True,
) -> bool:
    """Train the runs of some cells and append a line for each; return False if Ctrl-C ended it.

    Args:
        name: of the file that is appended to.
        cells: whose runs are trained, each once.
        store: the folder of results.
        folder: of the data; None for downloads.
        device: "cpu", "cuda", ...
        resume: leave out runs that are finished, and go on with those that have a checkpoint.
        epochs: stop each run there; its schedules stay those of the whole run.
        minutes: stop after the epoch in which they are over.
        in_turn: finish one run after another; else give each the same share of the minutes.
    """
    runs = list(dict.fromkeys(cell.run for cell in cells))
    labels = {cell.run: f"{cell.panel} {cell.method} seed {cell.run.seed}" for cell in cells}
    until = {run: min(epochs or run.epochs, run.epochs) for run in runs}
    if resume:
        done = store.rows()
        runs = [run for run in runs if done.get(run.id, {"epochs": 0})["epochs"] < until[run]]
    else:
        for run in runs:
            store.forget(run)
            if run.shift is not None:
                store.forget(run.trunk)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    times = TimeElapsedColumn(), TimeRemainingColumn()
    with Stop(minutes) as stop, Progress(*columns, *times) as progress:
        bar = Bar(progress, sum(until[run] for run in runs))
        for i, run in enumerate(runs):
            if stop.now():
                break
            bar.label = labels[run]
            share = float("inf") if in_turn else time.monotonic() + stop.left() / (len(runs) - i)
            task = prepare(run, folder, device)
            trainer = train(run, task, store, stop, until[run], share, bar)
            store.append(name, row_of(trainer))
            if trainer.epoch >= run.epochs:
                store.forget(run)
            bar.before += until[run]
    forget_trunks(until, store)
    return not stop.asked


def forget_trunks(runs: Iterable[Run], store: Store) -> None:
    """Forget what runs had in common, where all of them are finished."""
    rows = store.rows()
    shifted = [run for run in runs if run.shift is not None]
    needed = {run.trunk for run in shifted if not rows.get(run.id, {"finished": False})["finished"]}
    for trunk in {run.trunk for run in shifted} - needed:
        store.forget(trunk)
