"""A progress bar over all epochs of a fit, for `verbose`."""

from __future__ import annotations

from typing import Any


class Bar:
    """Shows epochs, and what the latest one said; nothing at all unless verbose."""

    def __init__(self, verbose: bool, epochs: int) -> None:
        self._progress: Any = None
        if verbose:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

            columns = "{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
            self._progress = Progress(*columns)
            self._task = self._progress.add_task("", total=epochs)

    def __enter__(self) -> Bar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def tell(self, seen: dict[str, Any]) -> None:
        """Say that an epoch has ended."""
        if self._progress is None:
            return
        name = type(seen["method"]).__name__
        accuracy = seen.get("held_out_accuracy")
        judged = f"{seen['accuracy']:.0%} of the training labels predicted"
        if accuracy is not None:
            judged = f"{accuracy:.0%} of the held-out labels predicted"
        self._progress.update(self._task, description=f"{name}: {judged}", advance=1)
