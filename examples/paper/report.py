"""From lines of JSON to tables in the paper's form, the paper's own numbers beside, and figures."""

from pathlib import Path

import numpy as np
from experiments import EXPERIMENTS, Cell
from figures import draw
from published import BESIDE, PAPER, PAPER_FIG1
from store import Groups, Row, curves, grouped, names

LAST = 10  # the paper reports the mean of the last ten epochs
PERFECT = 99.9  # % of the labels, right and wrong, from which memorisation is called perfect


def last(rows: list[Row], key: str = "test") -> np.ndarray:
    """Return each seed's mean over the last epochs."""
    return curves(rows, key)[:, -LAST:].mean(axis=1)


def with_deviation(values: np.ndarray) -> str:
    """Return mean and standard deviation over the seeds, as the paper prints them."""
    deviation = f" ({values.std(ddof=1):.2f})" if len(values) > 1 else ""
    return f"{values.mean():.2f}{deviation}"


def markdown(head: list[str], body: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def printed(name: str, method: str, panel: str) -> str:
    """Return what the paper prints for a cell."""
    if method in BESIDE:
        return "none"
    value = PAPER.get(name, {}).get(method, {}).get(panel)
    if value is None:
        return "figure only"
    return f"{value[0]:.2f}" + (f" ({value[1]:.2f})" if len(value) > 1 else "")


def accuracy_table(name: str, groups: Groups) -> str:
    """Return the test accuracies, the paper's beside."""
    panels, methods = names(groups)
    head = ["method", *(part for panel in panels for part in (panel, "paper"))]
    body = []
    for method in methods:
        line = [method]
        for panel in panels:
            rows = groups.get((panel, method))
            line += [with_deviation(last(rows)) if rows else "", printed(name, method, panel)]
        body.append(line)
    return markdown(head, body)


def selection_table(groups: Groups) -> str:
    """Return how rightly was selected; nothing if no method selects."""
    body = []
    for (panel, method), rows in groups.items():
        if "good_precision" in rows[0]["curves"]:
            keys = "good", "good_precision", "bad", "bad_precision"
            shares = [last(rows, key).mean() for key in keys]
            body.append([panel, method, *("" if np.isnan(v) else f"{v:.1f}" for v in shares)])
    head = ["noise", "method", "good", "of them right", "bad", "of them wrong"]
    return markdown(head, body) if body else ""


def memory_table(groups: Groups) -> str:
    """Return Figure 1 in numbers: before the shift, and at the end."""
    head = ["net", "method", "test at the shift", "test", "wrong labels in memory at the shift"]
    head += ["wrong labels in memory", "right labels", "perfect memorisation at epoch"]
    body = []
    for (net, method), rows in groups.items():
        shift = rows[0]["run"]["shift"]
        at_shift = [curves(rows, key)[:, :shift][:, -1] for key in ("test", "flipped")]
        ends = [with_deviation(last(rows, key)) for key in ("test", "flipped", "intact")]
        before, memorised = (with_deviation(values) for values in at_shift)
        body.append([net, method, before, ends[0], memorised, *ends[1:], perfect(rows)])
        body.append([net, f"{method}, the paper's", *PAPER_FIG1[net, method]])
    return markdown(head, body)


def perfect(rows: list[Row]) -> str:
    """Return the first epoch, from 1, at which all labels are memorised, for each seed."""
    both = np.minimum(curves(rows, "intact"), curves(rows, "flipped")) >= PERFECT
    found = [str(int(seed.argmax()) + 1) if seed.any() else "never" for seed in both]
    return ", ".join(dict.fromkeys(found))


def provenance(groups: Groups) -> str:
    """Return what was run: seeds, epochs, machine, versions."""
    rows = list({row["id"]: row for group in groups.values() for row in group}.values())
    run = rows[0]["run"]
    seeds = sorted({row["run"]["seed"] for row in rows})
    lines = [f"Seeds {', '.join(map(str, seeds))}; precision {run['precision']}."]
    if run["preset"] == "cpu":
        lines.append(
            "This is the cpu preset, with a smaller net or fewer epochs than the paper's: it does "
            "not claim to be the paper's experiment; compare its rows, not its numbers."
        )
    if run["limit"]:
        lines.append(f"Only the first {run['limit']} training examples were used.")
    short = [row for row in rows if not row["finished"]]
    if short:
        fewest, most = (f(row["epochs"] for row in short) for f in (min, max))
        trained = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        lines.append(
            f"{len(short)} of {len(rows)} runs are not finished: they end after {trained} of "
            f"{run['epochs']} epochs, and the last {LAST} epochs are the last of those."
        )
    for where in sorted(
        {(row["device"], row["threads"], row["versions"]["torch"]) for row in rows}
    ):
        here = [r for r in rows if (r["device"], r["threads"], r["versions"]["torch"]) == where]
        each = np.median([row["seconds"] / row["epochs"] for row in here])
        lines.append(
            f"{len(here)} runs on {where[0]} ({where[1]} threads, torch {where[2]}), "
            f"{each:.2f} s an epoch."
        )
    return "\n".join(f"- {line}" for line in lines)


def page(name: str, title: str, groups: Groups) -> str:
    """Return an experiment's tables as a page."""
    is_memory = name == "fig1"
    table = memory_table(groups) if is_memory else accuracy_table(name, groups)
    what = (
        f"In %; where no epoch is named, mean of the last {LAST} epochs; in brackets the standard "
        "deviation over the seeds."
    )
    parts = [f"# {title}", EXPERIMENTS[name].what + ".", what, table]
    selected = "" if is_memory else selection_table(groups)
    if selected:
        parts += [f"What was selected, in %, mean of the last {LAST} epochs:", selected]
    return "\n\n".join([*parts, provenance(groups), f"![Curves]({title}.png)"]) + "\n"


def write(name: str, title: str, cells: list[Cell], rows: dict[str, Row], folder: Path) -> bool:
    """Write an experiment's page and figure; return whether there was anything to write."""
    groups = grouped(cells, rows)
    if groups:
        (folder / f"{title}.md").write_text(page(name, title, groups), encoding="utf-8")
        draw(name, groups).savefig(folder / f"{title}.png", format="png")
    return bool(groups)
