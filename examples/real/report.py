"""Tables of what was run."""

from collections.abc import Callable
from typing import Any

import numpy as np

Row = dict[str, Any]


def chosen(row: Row, by: str) -> float:
    """Return the test accuracy at the epoch that labels held out choose, or of the last three.

    Accuracies by which an epoch is chosen are averaged over three, for one's is a matter of luck.
    """
    test = np.array(row["test"])
    if by == "last" or len(test) < 3:
        return float(test[-3:].mean())
    smooth = np.convolve(row[by], np.ones(3) / 3, "valid")
    return float(test[1:-1][smooth.argmax()])


def tables(rows: list[Row]) -> str:
    """Return a table for each way of choosing the epoch."""
    return "\n\n".join(
        f"Epoch: {by}\n\n" + table(rows, lambda row, by=by: chosen(row, by))
        for by in ("last", "noisy", "checked")
    )


def table(rows: list[Row], value: Callable[[Row], float]) -> str:
    """Return a Markdown table of means and standard deviations over the seeds."""
    names, recipes = (list(dict.fromkeys(row[key] for row in rows)) for key in ("set", "recipe"))
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for recipe in recipes:
        cells = []
        for name in names:
            values = [value(row) for row in rows if (row["set"], row["recipe"]) == (name, recipe)]
            cells.append(f"{np.mean(values):.1f} ± {np.std(values):.1f}" if values else "-")
        lines.append(f"| {recipe} | {' | '.join(cells)} |")
    return "\n".join(lines)
