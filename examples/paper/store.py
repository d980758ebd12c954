"""The folder of results: lines of JSON and checkpoints, and the rows of an experiment in it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments import Cell
from settings import Run

Row = dict[str, Any]
Groups = dict[tuple[str, str], list[Row]]
"""The rows of a panel and a method, one for each seed."""


class Store:
    """The folder of results: lines of JSON that are only ever appended to, and checkpoints.

    Two commands may write to it at once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints = folder / "checkpoints"

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the row of each run by its id: a finished one if there is, else the newest."""
        found: dict[str, dict[str, Any]] = {}
        for row in self._all_rows():
            before = found.get(row["id"])
            if before is None or _rank(row) >= _rank(before):
                found[row["id"]] = row
        return found

    def _all_rows(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self.folder.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)

    def append(self, name: str, row: dict[str, Any]) -> None:
        """Write a line, in one piece."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = (json.dumps(row) + "\n").encode()
        with (self.folder / f"{name}.jsonl").open("ab", buffering=0) as file:
            file.write(line)

    def save(self, run: Run, state: dict[str, Any]) -> None:
        """Write a checkpoint; a reader finds the old one or the new one, never half of it."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        part = self.checkpoints / f"{run.id}.{os.getpid()}"
        torch.save(state, part)
        part.replace(self._path(run))

    def saved(self, run: Run) -> dict[str, Any] | None:
        path = self._path(run)
        return torch.load(path, map_location="cpu", weights_only=True) if path.is_file() else None

    def forget(self, run: Run) -> None:
        self._path(run).unlink(missing_ok=True)

    def _path(self, run: Run) -> Path:
        return self.checkpoints / f"{run.id}.pt"


def _rank(row: dict[str, Any]) -> tuple[bool, float]:
    return row["finished"], row["when"]


def grouped(cells: list[Cell], rows: dict[str, Row]) -> Groups:
    """Return what was trained of the cells."""
    groups: Groups = {}
    for panel, method, run in cells:
        if run.id in rows and rows[run.id]["curves"]:
            groups.setdefault((panel, method), []).append(rows[run.id])
    return groups


def curves(rows: list[Row], key: str = "test") -> np.ndarray:
    """Return a curve for each row, (seeds, epochs); as long as the shortest."""
    found = [np.array(row["curves"][key], dtype=float) for row in rows]
    return np.array([curve[: min(map(len, found))] for curve in found])


def names(groups: Groups) -> tuple[list[str], list[str]]:
    """Return panels and methods in their order."""
    panels, methods = zip(*groups, strict=True)
    return list(dict.fromkeys(panels)), list(dict.fromkeys(methods))
