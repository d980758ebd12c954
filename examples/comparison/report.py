"""Tables and pictures from the rows: means over seeds of the last five epochs, and deviations."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from studies import AGREEMENTS, KNOW_NOTHING, METHODS, NEEDS_T, NOISES, VARIANTS
from train import Settings

LAST = 5  # epochs whose test accuracy is averaged
Row = dict[str, Any]
FLOORS = ["floor on CE", "floor on forward"]
COLORS = {  # of a method as in the figures of digits.py and paper/
    "standard": "#7a7a7a",
    "GCE": "#d86fa8",
    "ELR": "#17a2a2",
    "agreement": "#6a2c91",
    "counted agreement": "#b07ad6",
    "self-teaching": "#79b4e3",
    "SIGUA_SL": "#0a4f9e",
    "floor on CE": "#9aa23c",
    "BC": "#f2b134",
    "SIGUA_BC label": "#b3122a",
    "SIGUA_BC batch": "#8a2f8f",
    "forward": "#2f9e5b",
    "floor on forward": "#1c4f31",
}


def scores(rows: Iterable[Row]) -> np.ndarray:
    """Return an accuracy for each seed, in %."""
    return np.array([np.mean(row["accuracy"][-LAST:]) for row in rows])


def cell(rows: list[Row]) -> str:
    """Return the mean over the seeds and its deviation if there are several; else a dash."""
    values = scores(rows)
    if not len(values):
        return "-"
    spread = f" ± {values.std():.1f}" if len(values) > 1 else ""
    return f"{values.mean():.1f}{spread}"


def markdown(heads: list[str], body: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def best_bold(cells: list[str]) -> list[str]:
    """Mark the best of a row, ours or not, and what is no worse than a tenth below."""
    means = [float(each.split(" ")[0]) if each != "-" else -1.0 for each in cells]
    high = max(means)
    pairs = zip(cells, means, strict=True)
    return [f"**{each}**" if mean > 0 and mean >= high - 0.049 else each for each, mean in pairs]


def of(rows: list[Row], **wanted: Any) -> list[Row]:
    """Return the rows that have these values, in themselves or in their settings."""
    return [
        row for row in rows if all((row | row["settings"])[name] == v for name, v in wanted.items())
    ]


def networks(rows: list[Row]) -> list[tuple[str, int]]:
    """Return each network, and how many images it was trained on; the first has all studies."""
    found = {(row["settings"]["net"], row["settings"]["images"]) for row in rows}
    return sorted(found, key=lambda pair: (pair[1], pair[0] != "mlp"))


def main_tables(rows: list[Row]) -> str:
    parts = []
    for net, images in networks(rows):
        for data in ("mnist", "fashion"):
            own = of(rows, net=net, images=images, data=data, told="truth", epochs=20, batch=128)
            body = []
            for noise in NOISES:
                here = of(own, noise=noise)
                if here:
                    cells = [cell(of(here, method=method)) for method in METHODS]
                    body.append([noise, *best_bold(cells)])
            if body:
                table = markdown(["noise", *METHODS], body)
                count = len({row["seed"] for row in own})
                parts.append(f"### {data}, {net}, {images:,} images, seeds: {count}\n\n{table}")
    return "\n\n".join(parts)


def estimate_table(rows: list[Row]) -> str:
    usual = of(rows, net="mlp", epochs=20, batch=128)
    informed = [method for method in METHODS if of(usual, told="estimate", method=method)]
    body = []
    for data in ("mnist", "fashion"):
        for noise in NOISES:
            here = of(usual, data=data, noise=noise)
            if of(here, told="estimate"):
                pairs = (
                    f"{cell(of(here, told='truth', method=m))} → "
                    f"{cell(of(here, told='estimate', method=m))}"
                    for m in informed
                )
                body.append([f"{data}, {noise}", *pairs])
    return markdown(["noise", *informed], body)


def batch_table(rows: list[Row]) -> str:
    own = of(rows, data="mnist", noise="sym-50", net="mlp", epochs=20, told="truth")
    names = ["standard", "ELR", "agreement", "counted agreement", "forward"]
    names += [f + v for f in FLOORS for v in ("", ", averaged")]
    body = [
        [str(size), *(cell(of(own, method=name, batch=size)) for name in names)]
        for size in (16, 32, 128, 512)
    ]
    return markdown(["batch size", *names], body)


def held_out_table(rows: list[Row]) -> str:
    names = [*FLOORS[:1], "floor on CE, held-out", "standard", *FLOORS[1:]]
    return side_by_side(rows, [*names, "floor on forward, held-out", "forward", "self-teaching"])


def variant_table(rows: list[Row]) -> str:
    names = [floor + variant for floor in FLOORS for variant in ("", *(f", {v}" for v in VARIANTS))]
    return side_by_side(of(rows, data="mnist"), names)


def side_by_side(rows: list[Row], names: list[str], net: str = "mlp") -> str:
    own = of(rows, net=net, epochs=20, batch=128, told="truth")
    body = [
        [f"{data}, {noise}", *best_bold([cell(of(here, method=name)) for name in names])]
        for data in ("mnist", "fashion")
        for noise in NOISES
        if (here := of(own, data=data, noise=noise))
    ]
    return markdown(["noise", *names], body)


def agreement_table(rows: list[Row]) -> str:
    """Return agreement beside its variants, by the seeds that all of them have; both networks."""
    names = ["agreement", *(f"agreement, {variant}" for variant in AGREEMENTS)]
    tables = []
    for net, beside in (("mlp", []), ("cnn", ["standard", "counted agreement"])):
        own = [row for row in of(rows, net=net) if row["method"] in [*beside, *names]]
        found = [name for name in [*beside, *names] if of(own, method=name)]
        seeds = [{row["seed"] for row in of(own, method=name)} for name in found]
        shared = [row for row in own if all(row["seed"] in some for some in seeds)]
        tables.append(f"### {net}\n\n{side_by_side(shared, found, net)}")
    return "\n\n".join(tables)


def rate_table(rows: list[Row]) -> str:
    """Return the noise rate beside the share that agreement dropped in the last epoch."""
    usual = of(rows, method="agreement", epochs=20, batch=128)
    columns = [(data, *net) for net in networks(usual) for data in ("mnist", "fashion")]
    body = []
    for noise in NOISES:
        kind, _, percent = noise.partition("-")
        # Half of the classes are mistaken under asym.
        rate = int(percent or 0) / (200 if kind == "asym" else 100)
        cells = []
        for data, net, images in columns:
            own = of(usual, noise=noise, data=data, net=net, images=images)
            shares = [row["dropped"][-1] for row in own]
            cells.append(f"{np.mean(shares):.2f}" if shares else "-")
        body.append([noise, f"{rate:.2f}", *cells])
    return markdown(["noise", "rate", *(f"{d}, {n}, {i:,}" for d, n, i in columns)], body)


def draw_nothing_known(rows: list[Row], path: Path) -> None:
    """Draw each method's accuracy by noise: filled marks know nothing, empty ones eps or T."""
    figure = Figure((10, 7), layout="constrained")
    shown = [
        m for m in METHODS if m in KNOW_NOTHING or m in ("self-teaching", "SIGUA_SL", "forward")
    ]
    axes = figure.subplots(2, 1, sharex=True)
    for panel, data in zip(axes, ("mnist", "fashion"), strict=True):
        own = of(rows, data=data, net="mlp", told="truth", epochs=20, batch=128)
        for i, method in enumerate(shown):
            values = [scores(of(own, noise=noise, method=method)) for noise in NOISES]
            places = [n + 0.09 * (i - len(shown) / 2) for n, v in enumerate(values) if len(v)]
            means = [v.mean() for v in values if len(v)]
            spreads = [v.std() for v in values if len(v)]
            told = (
                "" if method in KNOW_NOTHING else " (T)" if method in NEEDS_T else " (noise rate)"
            )
            look = {"color": COLORS[method], "markerfacecolor": "white" if told else COLORS[method]}
            panel.errorbar(places, means, spreads, fmt="o", label=method + told, **look)
        panel.set(ylabel=f"test accuracy (%), {data}", ylim=(55 if data == "fashion" else 50, None))
        panel.set_xticks(range(len(NOISES)), [noise.replace("-", "\n") for noise in NOISES])
        panel.grid(axis="y", alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)
    figure.savefig(path, dpi=120)


def draw_sensitivity(rows: list[Row], path: Path) -> None:
    figure = Figure((6.4, 4), layout="constrained")
    axes = figure.subplots()
    own = of(rows, data="mnist", noise="sym-50", net="mlp", epochs=20, batch=128)
    for method in METHODS:
        if not of(own, method=method, told="0.8"):
            continue
        told = {0.8: "0.8", 0.9: "0.9", 1.0: "truth", 1.1: "1.1", 1.2: "1.2"}
        values = [scores(of(own, method=method, told=name)) for name in told.values()]
        means, spreads = [v.mean() for v in values], [v.std() for v in values]
        axes.errorbar(
            list(told), means, spreads, label=method, color=COLORS[method], marker="o", capsize=3
        )
    axes.set(xlabel="noise rate told / true noise rate", ylabel="test accuracy (%)")
    axes.set_title("MNIST, 50 % symmetric noise, misjudged")
    if axes.lines:
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def draw_long(rows: list[Row], path: Path) -> None:
    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    for method in METHODS:
        own = of(rows, method=method, epochs=100)
        if own:
            curves = np.array([row["accuracy"] for row in own])
            mean, spread = curves.mean(axis=0), curves.std(axis=0)
            epochs = np.arange(1, len(mean) + 1)
            axes.plot(epochs, mean, label=method, color=COLORS[method])
            axes.fill_between(epochs, mean - spread, mean + spread, color=COLORS[method], alpha=0.2)
    axes.set(xlabel="epoch", ylabel="test accuracy (%)", ylim=(40, 100))
    axes.set_title("MNIST, 50 % symmetric noise, 100 epochs without decay")
    if axes.lines:
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


EXPLAINED = f"""Accuracy on clean test data in %,
mean of the last {LAST} epochs; ± is the standard deviation over the seeds, and where there is none,
one was run. Bold: the best of a row, ours or not."""


def report(rows: list[Row], folder: Path) -> None:
    """Write tables.md and the pictures; the page that reads them is written by hand."""
    tables: dict[str, Callable[[list[Row]], str]] = {
        "Told the truth → told the estimate": estimate_table,
        "Batch sizes, MNIST, sym-50": batch_table,
        "The noise rate, and the share that agreement dropped": lambda _: rate_table(rows),
        "Agreement and its variants": agreement_table,
        "A floor with a warm-up, or with a smaller gamma": variant_table,
        "A floor learned from labels that are not trained on": held_out_table,
    }
    studied = of(rows, images=Settings().images)
    texts = [f"## Every method on every noise\n\n{main_tables(rows)}"]
    texts += [f"## {title}\n\n{make(studied)}" for title, make in tables.items()]
    machines = sorted({f"{row['machine']}, torch {row['torch']}" for row in rows})
    made = f"Trained on: {'; '.join(machines)}."
    head = f"# Tables\n\n{made} {EXPLAINED}\n\n"
    (folder / "tables.md").write_text(head + "\n\n".join(texts) + "\n", encoding="utf-8")
    draw_nothing_known(studied, folder / "nothing_known.png")
    draw_sensitivity(studied, folder / "sensitivity.png")
    draw_long(studied, folder / "long.png")
