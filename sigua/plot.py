"""Pictures of a run, for `pip install 'sigua[plot]'`. Each function returns the axes it drew on.

    from sigua import plot
    plot.accuracy_curves({"standard": a, "SIGUA_SL": b}).figure.savefig("curves.png")

Pass `ax` to draw into a figure of your own; without it a new one is made, apart from pyplot's.
Without matplotlib each raises ModuleNotFoundError, with what to install.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sigua import checks
from sigua.diagnosis import Diagnosis
from sigua.diagnostics import EpochReport
from sigua.transition import TransitionMatrix

Axes = Any
"""`matplotlib.axes.Axes`; matplotlib is imported when something is drawn."""

COLORS = ("#0a4f9e", "#b3122a", "#7a7a7a", "#2f9e5b", "#f2b134", "#79b4e3", "#e8743b", "#6b3fa0")


def accuracy_curves(
    curves: Mapping[str, ArrayLike], *, ax: Axes | None = None, label: str = "test accuracy (%)"
) -> Axes:
    """Draw the mean over the seeds, with a band of one standard deviation, as in the paper.

    Curves are by name, in percent, of shape (epochs,) or (seeds, epochs); `label` is that of the
    vertical axis. Another shape raises ValueError.
    """
    tables = {name: _table(name, values) for name, values in curves.items()}
    ax = _axes(ax)
    for i, (name, table) in enumerate(tables.items()):
        mean, spread, epochs = table.mean(axis=0), table.std(axis=0), np.arange(table.shape[1])
        color = COLORS[i % len(COLORS)]
        ax.plot(epochs, mean, color=color, linewidth=2, label=name)
        ax.fill_between(epochs, mean - spread, mean + spread, color=color, alpha=0.2, linewidth=0)
    return _finish(ax, "epoch", label)


def memorisation(
    *, intact: ArrayLike, flipped: ArrayLike, test: ArrayLike, ax: Axes | None = None
) -> Axes:
    """Draw Figure 1's three curves: right labels learnt, wrong labels memorised, test accuracy.

    Each is a fraction, of shape (epochs,) or (seeds, epochs): the accuracy on the intact training
    examples, on the flipped ones, with respect to their wrong labels, and on clean test data (see
    `sigua.diagnostics.EpochReport`). Another shape, or a percentage, raises ValueError.
    """
    percent = {
        "intact labels learnt": 100 * _fractions("intact", intact),
        "flipped labels memorised": 100 * _fractions("flipped", flipped),
        "test": 100 * _fractions("test", test),
    }
    ax = accuracy_curves(percent, ax=ax, label="accuracy (%)")
    ax.set_ylim(-2, 102)
    return ax


def transition(T: TransitionMatrix, *, ax: Axes | None = None, names: Any = None) -> Axes:
    """Draw T as a heat map: a row for each true class, a column for each observed one.

    With up to 20 classes, each entry is also written into its square, in percent. `names` are those
    of the classes, such as `diagnosis.classes`, or else numbers; another number of them than k
    raises ValueError.
    """
    k = T.num_classes
    names = range(k) if names is None else list(names)
    if len(names) != k:
        raise ValueError(
            f"names: must name each class, got {len(names)} for {k} classes; try one for each"
        )
    ax = _axes(ax)
    image = ax.imshow(T.rows, cmap="Blues", vmin=0, vmax=1)
    ax.figure.colorbar(image, ax=ax, label="p(observed | true)")
    if k <= 20:
        ax.set_xticks(range(k), names)
        ax.set_yticks(range(k), names)
        for (i, j), entry in np.ndenumerate(T.rows):
            color = "white" if entry > 0.5 else "black"
            ax.text(j, i, f"{100 * entry:.0f}", ha="center", va="center", color=color, fontsize=9)
    ax.set_xlabel("observed class")
    ax.set_ylabel("true class")
    return ax


def loss_histogram(
    losses: ArrayLike, flipped: ArrayLike | None = None, *, ax: Axes | None = None, bins: int = 50
) -> Axes:
    """Draw a histogram of the losses: if it has two hills, the one on the right is forgotten.

    Losses are at least 0, in nats, of shape (n,); infinite ones are left out. `flipped`, bool,
    (n,), says which labels are wrong, if that is known. Others raise ValueError.
    """
    losses = np.concatenate(list(checks.epochs("losses", losses)))
    groups = {"examples": np.ones(len(losses), dtype=bool)}
    if flipped is not None:
        flipped = np.asarray(flipped, dtype=bool)
        checks.same_length("flipped", flipped, "losses", losses)
        groups = {"intact": ~flipped, "flipped": flipped}
    ax = _axes(ax)
    edges = np.histogram_bin_edges(losses[np.isfinite(losses)], bins)
    for color, (name, mask) in zip(COLORS, groups.items(), strict=False):
        ax.hist(losses[mask], edges, color=color, alpha=0.6, label=name)
    return _finish(ax, "cross-entropy at the given label (nats)", "examples")


def diagnosis(found: Diagnosis, *, ax: Axes | None = None) -> Axes:
    """Draw what `sigua.diagnose` found: each share in percent, with its 95 % interval.

    A dashed line marks the share of right labels: a model that predicts more of the labels than
    that has learnt their errors.
    """
    shares = {
        "wrong labels": found.noise_rate,
        "labels that the most confident predictions reject": found.surest,
        "labels predicted, out of fold": found.agreement,
        "true labels predicted": found.accuracy,
        "of wrong labels, predicted as given": found.reproduced,
        "of wrong labels, the truth predicted": found.corrected,
    }
    known = {name: share for name, share in shares.items() if share is not None}
    ax = _axes(ax)
    for place, (name, share) in enumerate(known.items()):
        color = COLORS[1] if "wrong" in name else COLORS[0]
        ends = [[100 * (share.value - share.low)], [100 * (share.high - share.value)]]
        ax.errorbar(100 * share.value, place, xerr=ends, fmt="o", color=color, capsize=4)
    limit = 100 * (1 - found.noise_rate.value)
    ax.axvline(limit, color=COLORS[2], linestyle="--", label="labels that are right")
    ax.set_yticks(range(len(known)), list(known))
    ax.invert_yaxis()
    ax.set_xlim(0, 100)
    return _finish(ax, "share of the labels (%)", "")


def selection(history: Any, *, ax: Axes | None = None) -> Axes:
    """Draw, epoch by epoch, who was descended on, climbed on and dropped, in percent.

    Under `sigua_ag`, once it is warm, the share dropped estimates the noise rate. The history is
    what a run recorded: Keras's History, or its dictionary, with `sigua_good` and `sigua_bad` (of
    several outputs give one, under these names); what Lightning's CSVLogger wrote of
    `EpochReport.logs`, as the path of `metrics.csv` or a data frame; or a list of `EpochReport`, as
    `SelectionMeter` makes them. Without these shares it raises ValueError.
    """
    epochs, good, bad = _shares(history)
    ax = _axes(ax)
    drawn = {"descended on": good, "climbed on, or bad": bad, "dropped": 1 - good}
    for color, (name, share) in zip(COLORS, drawn.items(), strict=False):
        line = "--" if name == "dropped" else "-"  # may lie on another
        ax.plot(epochs, 100 * share, line, color=color, linewidth=2, label=name)
    ax.set_ylim(-2, 102)
    return _finish(ax, "epoch", "share of the examples (%)")


def _shares(history: Any) -> tuple[Any, Any, Any]:
    """Return the epochs, and the shares good and bad in each."""
    table = _columns(history)
    for names in (("sigua/good", "sigua/bad"), ("sigua_good", "sigua_bad")):
        if set(names) <= table.keys():
            break
    else:
        got = ", ".join(map(str, table)) or f"{type(history).__name__} without names"
        raise ValueError(
            "history: must have sigua/good and sigua/bad, or Keras's sigua_good and sigua_bad, "
            f"got {got}; try Keras's History, Lightning's metrics.csv or a list of EpochReport"
        )
    good, bad = (np.asarray(table[name], dtype=float) for name in names)
    if "epoch" not in table:
        return np.arange(len(good)), good, bad
    here = ~np.isnan(good)  # a CSV has rows for what else was logged
    return np.asarray(table["epoch"], dtype=float)[here], good[here], bad[here]


def _columns(history: Any) -> dict[str, Any]:
    """Return what a history recorded, by name."""
    if isinstance(history, str | os.PathLike):
        with open(history, newline="", encoding="utf-8") as file:
            rows: list[Any] = list(csv.DictReader(file))
    elif isinstance(history, list | tuple):
        rows = [each.logs() for each in history if isinstance(each, EpochReport)]
    else:
        table = getattr(history, "history", history)  # Keras's History has it
        return {name: table[name] for name in table} if hasattr(table, "keys") else {}
    return {name: ["nan" if r[name] == "" else r[name] for r in rows] for name in (rows or [{}])[0]}


def _table(name: str, values: ArrayLike) -> Any:
    array = checks.floats(name, values)
    table = np.atleast_2d(array)
    if table.ndim != 2 or table.size == 0:
        raise ValueError(
            f"{name}: must have shape (epochs,) or (seeds, epochs), got shape {array.shape}; "
            "try a row per seed"
        )
    return table


def _fractions(name: str, values: ArrayLike) -> Any:
    table = _table(name, values)
    if (table > 1).any():
        rule = f"{name}: must be fractions in [0, 1], got {table.max():g}"
        raise ValueError(f"{rule}; try dividing percentages by 100")
    return table


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        message = "sigua.plot needs matplotlib, which is not installed: pip install 'sigua[plot]'"
        raise ModuleNotFoundError(message, name="matplotlib") from error
    return Figure(figsize=(6.4, 4.4), layout="constrained", dpi=120).subplots()


def _finish(ax: Axes, x: str, y: str) -> Axes:
    ax.set_xlabel(x, fontsize=12)
    ax.set_ylabel(y, fontsize=12)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax
