"""Tables of what was run: means and standard deviations over the seeds."""

from itertools import product
from typing import Any

import numpy as np

import sigua

Row = dict[str, Any]
Key = tuple[int, str, int, str]
ADVICE = "advice"
NOTHING = [
    "plain",
    "GCE",
    "sigua_ag",
    "sigua_ag, counted",
    "sigua_sl",
    "forward",
    "prune",
    "CleanLearning",
]
CHECKED = [
    "plain",
    "sigua_ag",
    "sigua_ag, counted",
    "forward, counted T",
    "alone",
    "together",
    "together, sigua_ag",
]
CHECKED += ["together, forward"]
ORACLE = ["forward, true T", "gold labels"]
LAST = 5
EPOCH_BY = {"nothing": "noisy", "checked": "checked", "all": "checked"}


def key(row: Row) -> Key:
    """Return what makes a run the same as another."""
    return row["size"], row["set"], row["seed"], row["recipe"]


def chosen_epoch(curve: list[float]) -> int:
    """Return the epoch that accuracies on held-out labels choose, or the last of one or two.

    They are averaged over three epochs, for one's is a matter of luck.
    """
    if len(curve) < 3:
        return len(curve) - 1
    return 1 + int(np.convolve(curve, np.ones(3), "valid").argmax())


def chosen(row: Row, by: str) -> float:
    """Return the test accuracy at the epoch that held-out labels choose."""
    return float(row["test"][chosen_epoch(row[by])])


def last(row: Row) -> float:
    """Return the mean test accuracy of the last epochs."""
    return float(np.mean(row["test"][-LAST:]))


def judged(row: Row, by: str) -> float:
    """Return the test accuracy: agreement's at the end, the others' where held-out labels say."""
    return last(row) if "sigua_ag" in row["recipe"] else chosen(row, by)


def kept(rows: list[Row], by: str, labels: dict[str, str]) -> Row:
    """Return the recipe that `sigua.choose` keeps: the first unless another is clearly better.

    Those that train on half of the checked examples hold out every other one, so all go by these.
    """
    if len(rows) == 1:
        return rows[0]
    texts = [row["predicted"]["last" if "sigua_ag" in row["recipe"] else by] for row in rows]
    size = min(map(len, texts))
    made = {i: classes(text, size) for i, text in enumerate(texts)}
    choice = sigua.choose(made, classes(labels[by], size), checked=by == "checked")
    return rows[choice.kept]


def classes(digits: str, size: int) -> np.ndarray:
    """Return the classes that are written as digits, of all examples or of every other one."""
    return np.array([int(digit) for digit in (digits if len(digits) == size else digits[1::2])])


def head(*names: str) -> list[str]:
    """Return the first two lines of a Markdown table."""
    return [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]


class Results:
    """Accuracies by set, seed and recipe, and what was advised."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = {(row["set"], row["seed"], row["recipe"]): row for row in rows}
        self.sets = list(dict.fromkeys(row["set"] for row in rows))

    def values(self, name: str, recipe: str, knows: str) -> list[float]:
        """Return a recipe's accuracies on a set, one for each seed that has it."""
        if recipe == ADVICE:
            return self.advised(name, knows)
        return [
            judged(row, EPOCH_BY[knows])
            for (other, _, label), row in self.rows.items()
            if (other, label) == (name, recipe)
        ]

    def advised(self, name: str, knows: str) -> list[float]:
        """Return the accuracies of what is kept of the recipes advised, of seeds that have all."""
        found = []
        for (other, seed, label), advice in self.rows.items():
            if (other, label) != (name, ADVICE):
                continue
            rows = [self.rows.get((name, seed, recipe)) for recipe in advice[knows]]
            if all(rows):
                by = advice["by"][list(EPOCH_BY).index(knows)]
                found.append(judged(kept(rows, by, advice["labels"]), by))
        return found

    def table(self) -> str:
        """Return a Markdown table: what each recipe knows, and its accuracy on each set."""
        lines = head("knows", "recipe", *self.sets)
        parts = {"nothing": [ADVICE, *NOTHING], "checked": [ADVICE, *CHECKED], "all": ORACLE}
        for knows, recipes in parts.items():
            for recipe in recipes:
                groups = [self.values(name, recipe, knows) for name in self.sets]
                if not any(groups):
                    continue
                cells = [f"{np.mean(g):.1f} ± {np.std(g):.1f}" if g else "-" for g in groups]
                lines.append(f"| {knows} | {recipe} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def epochs(self) -> str:
        """Return a Markdown table: at which epoch plain training and agreement are best judged."""
        lines = head("recipe", "epoch", *self.sets)
        ways = {
            "by held-out noisy labels": lambda row: chosen(row, "noisy"),
            "by the checked": lambda row: chosen(row, "checked"),
            "the last": last,
        }
        for recipe, (way, judge) in product(["plain", "sigua_ag"], ways.items()):
            cells = []
            for name in self.sets:
                rows = [r for (s, _, label), r in self.rows.items() if (s, label) == (name, recipe)]
                cells.append(f"{np.mean([judge(row) for row in rows]):.1f}" if rows else "-")
            lines.append(f"| {recipe} | {way} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def verdict(self) -> str:
        """Return how the advice compares, by set: with plain training, and with the best."""
        lines = head("set", "knows", "advised", "above plain", "below the best")
        for knows, recipes in {"nothing": NOTHING, "checked": CHECKED}.items():
            for name in self.sets:
                advice, plain = self.values(name, ADVICE, knows), self.values(name, "plain", knows)
                if not advice:
                    continue
                what = "; ".join(
                    dict.fromkeys(
                        " or ".join(row[knows])
                        for (other, _, recipe), row in self.rows.items()
                        if (other, recipe) == (name, ADVICE)
                    )
                )
                means = [np.mean(self.values(name, r, knows) or [0]) for r in recipes]
                up, down = np.mean(advice) - np.mean(plain), max(means) - np.mean(advice)
                lines.append(f"| {name} | {knows} | {what} | {up:+.1f} | {down:.1f} |")
        return "\n".join(lines)


def tables(rows: list[Row]) -> str:
    """Return both tables for each number of checked labels, and one by that number."""
    sizes = sorted({row["size"] for row in rows})
    by_size = {size: Results([row for row in rows if row["size"] == size]) for size in sizes}
    parts = []
    for size, results in by_size.items():
        heading = f"{size} checked labels, or held out:"
        parts += [heading, results.table(), results.verdict(), results.epochs()]
    return "\n\n".join([*parts, sizes_table(by_size)])


def sizes_table(by_size: dict[int, Results]) -> str:
    """Return a Markdown table: accuracy by set and recipe, and by the number of checked labels."""
    lines = head("set", "recipe", *map(str, by_size))
    names = dict.fromkeys(name for results in by_size.values() for name in results.sets)
    for name, recipe in product(names, [ADVICE, *CHECKED]):
        groups = [results.values(name, recipe, "checked") for results in by_size.values()]
        cells = [f"{np.mean(g):.1f} ± {np.std(g):.1f}" if g else "-" for g in groups]
        if any(groups):
            lines.append(f"| {name} | {recipe} | {' | '.join(cells)} |")
    return "\n".join(lines)
