"""The paper's figures: curves with bands."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from store import Groups, curves, names

COLORS = {
    "supervised": "black",
    "standard": "#7a7a7a",
    "agreement": "#6a2c91",
    "self-teaching": "#79b4e3",
    "SIGUA_SL": "#0a4f9e",
    "BC": "#f2b134",
    "nnBC": "#e8743b",
    "SIGUA_BC": "#b3122a",
    "SIGUA_BC batch": "#8a2f8f",
    "SIGUA_BC classes": "#c9a227",
    "forward": "#2f9e5b",
    "Huber": "#4d7a82",
    "log-sum": "#a3785a",
    "9-layer CNN": "#79b4e3",
    "ResNet-18": "#0a4f9e",
}
MEMORY = {"intact": ("#1f5fbf", "right labels"), "flipped": ("#c23b22", "wrong labels")}
MEMORY |= {"test": ("#7a3b9d", "test data")}


def draw(name: str, groups: Groups) -> Figure:
    """Return the curves: a panel for each noise, or for each net and method in fig1."""
    draw_one: Callable[..., None] = draw_memory if name == "fig1" else draw_accuracy
    panels, methods = names(groups)
    columns = methods if name == "fig1" else panels
    lines = len(panels) if name == "fig1" else 1
    size = (max(4.6 * len(columns), 6.0), 3.9 * lines + 0.7)
    figure = Figure(figsize=size, layout="constrained", dpi=110)
    axes = figure.subplots(lines, len(columns), squeeze=False)
    draw_one(axes, groups, panels, methods)
    for axis in axes.flat:
        axis.set_xlabel("epoch")
        axis.grid(alpha=0.3)
        axis.margins(x=0)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=2 * len(columns), frameon=False
    )
    return figure


def draw_accuracy(axes: Any, groups: Groups, panels: list[str], methods: list[str]) -> None:
    """Draw each method's test accuracy, a panel for each noise."""
    for axis, panel in zip(axes[0], panels, strict=True):
        for method in methods:
            if (panel, method) in groups:
                strong = method.startswith("SIGUA") or method == "ResNet-18"
                rows = groups[panel, method]
                band(axis, curves(rows), COLORS[method], method, 2.2 if strong else 1.4)
        axis.set_title(panel)
    axes[0, 0].set_ylabel("accuracy on clean test data (%)")


def draw_memory(axes: Any, groups: Groups, panels: list[str], methods: list[str]) -> None:
    """Draw Figure 1: nets down, methods across, and what is in memory."""
    for line, net in zip(axes, panels, strict=True):
        for axis, method in zip(line, methods, strict=True):
            rows = groups.get((net, method), [])
            for key, (color, label) in MEMORY.items() if rows else ():
                band(axis, curves(rows, key), color, f"accuracy on {label}", 1.8)
            if rows:
                axis.axvline(rows[0]["run"]["shift"], color="black", linewidth=0.8, dashes=(2, 2))
            axis.set_title(f"{method}, {net} net")
            axis.set_ylim(-2, 102)
        line[0].set_ylabel("%")


def band(axis: Any, values: np.ndarray, color: str, label: str, width: float) -> None:
    """Draw the mean over the seeds, and a band of a standard deviation."""
    epochs, mean, std = np.arange(1, values.shape[1] + 1), values.mean(axis=0), values.std(axis=0)
    axis.plot(epochs, mean, color=color, label=label, linewidth=width)
    axis.fill_between(epochs, mean - std, mean + std, color=color, alpha=0.15, linewidth=0)
