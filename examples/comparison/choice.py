"""What the choice by held-out labels costs: the kept method beside plain training and the best."""

from base64 import b64decode
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple
from zlib import decompress

import numpy as np
from report import LAST, Row, markdown
from studies import CANDIDATES, NOISES

import sigua


class Kept(NamedTuple):
    """One choice; test accuracies in %."""

    method: str
    accuracy: float
    plain: float
    best: float


def accuracy(row: Row) -> float:
    """Return the mean test accuracy of the last epochs, in %."""
    return float(np.mean(row["accuracy"][-LAST:]))


def unpacked(text: str) -> np.ndarray:
    """Return the classes that `train.packed` made a text of."""
    return np.frombuffer(decompress(b64decode(text)), np.uint8).astype(int)


def kept(runs: dict[str, Row], candidates: list[str]) -> Kept:
    """Return what `sigua.choose` keeps of one seed's runs, by method."""
    made = {name: unpacked(runs[name]["predicted"]) for name in candidates}
    found = sigua.choose(made, unpacked(runs["standard"]["given"]))
    scores = {name: accuracy(runs[name]) for name in candidates}
    best = max(scores.values())
    return Kept(found.kept, scores[found.kept], scores["standard"], best)


def seeds(rows: list[Row], candidates: list[str]) -> dict[tuple[str, ...], list[dict[str, Row]]]:
    """Return each seed's runs by method, by (network, data, noise); seeds that have all of them."""
    found: dict[Any, Any] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        place = row["settings"]["net"], row["data"], row["noise"]
        found[place][row["seed"]][row["method"].removesuffix(", held-out")] = row
    order = sorted(found, key=lambda p: (p[0] != "mlp", p[1] != "mnist", NOISES.index(p[2])))
    whole = {
        place: [runs for runs in found[place].values() if {*candidates} <= {*runs}]
        for place in order
    }
    return {place: each for place, each in whole.items() if each}


def choice_table(rows: list[Row]) -> str:
    """Return each candidate's accuracy, which were kept, and how far the kept one is from two."""
    body = []
    for place, each in seeds(rows, CANDIDATES).items():
        means = [f"{np.mean([accuracy(runs[name]) for runs in each]):.1f}" for name in CANDIDATES]
        made = [kept(runs, CANDIDATES) for runs in each]
        names = ", ".join(one.method for one in made)
        cells = [
            f"{np.mean([one.accuracy for one in made]):.1f}",
            f"{np.mean([one.accuracy - one.plain for one in made]):+.1f}",
            f"{np.mean([one.accuracy - one.best for one in made]):+.1f}",
        ]
        body.append([", ".join(place), *means, names, *cells])
    heads = ["network, data, noise", *CANDIDATES, "kept", "its accuracy", "less plain", "less best"]
    return markdown(heads, body)


def regret_table(rows: list[Row]) -> str:
    """Return the worst and the median distance of the kept method, for some sets of candidates.

    The last column is how much better it is, on average, than what is kept of the three.
    """
    sets = [CANDIDATES[:2], CANDIDATES, [*CANDIDATES, "GCE"], [*CANDIDATES, "ELR"]]
    body = []
    for names in sets:
        every = seeds(rows, [*{*names, *CANDIDATES}]).values()
        found, three = (
            [kept(runs, each) for all_runs in every for runs in all_runs]
            for each in (names, CANDIDATES)
        )
        if not found:
            continue
        gain = np.mean([one.accuracy for one in found]) - np.mean([one.accuracy for one in three])
        plain = np.array([one.accuracy - one.plain for one in found])
        best = np.array([one.accuracy - one.best for one in found])
        cells = [f"{plain.min():+.1f}", f"{np.median(plain):+.1f}", f"{best.min():+.1f}"]
        near = f"{100 * np.mean(best >= -1):.0f} %"
        cells += [f"{np.median(best):+.1f}", near, f"{gain:+.1f}"]
        body.append([", ".join(names), str(len(found)), *cells])
    heads = ["candidates", "choices", "less plain: worst", "less plain: median"]
    heads += ["less best: worst", "less best: median", "within a point of the best"]
    return markdown([*heads, "mean, less that of the three"], body)


def report_choice(rows: list[Row], folder: Path) -> None:
    """Write choice.md."""
    machines = sorted({f"{row['machine']}, torch {row['torch']}" for row in rows})
    text = f"""# The choice by held-out labels

Each candidate is trained on 18,000 images with wrong labels; `sigua.choose` keeps one by
2,000 others, whose labels are as wrong. Test accuracy in %, mean of the last {LAST} epochs
and over the seeds; "kept" has an entry for each seed. Trained on: {"; ".join(machines)}.

{regret_table(rows)}

{choice_table(rows)}
"""
    (folder / "choice.md").write_text(text, encoding="utf-8")
