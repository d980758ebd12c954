"""Real noise: votes, rules, and classes that overlap. Who is right when nobody knows T?

    python examples/real run --music DIR --fashion DIR --out FILE
    python examples/real run --made-up --out FILE      (digits, and overlapping classes)
    python examples/real run --unseen --out FILE       (sets that the advice was not written on)
    python examples/real report --out FILE

trains small networks on labels that are wrong in ways people's labels are, five seeds each, and
prints tables. Without `--music` and `--fashion` it does the made-up texts alone. About ten minutes
on a CPU. Needs torch, scikit-learn, cleanlab and sigua.
"""

import argparse
import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch
from data import made_up, not_used, sets
from recipes import KNOWS, advised, runs
from report import ADVICE, Key, chosen_epoch, key, tables

ACCURACIES = "test", "noisy", "checked"


def main() -> None:
    """Read the command line, and run or report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("task", choices=["run", "report"])
    add("--music", type=Path, metavar="DIR", help="a folder with music_genre_*.csv")
    add("--fashion", type=Path, metavar="DIR", help="a folder with Fashion-MNIST's four files")
    add("--made-up", action="store_true", help="digits and overlapping classes, instead")
    add("--unseen", action="store_true", help="sets the advice was not written on, instead")
    add("--out", type=Path, metavar="FILE", default="real.jsonl", help="%(default)s")
    add("--seeds", type=int, nargs="+", metavar="N", default=[0, 1, 2, 3, 4], help="%(default)s")
    add("--only", nargs="+", choices=list(KNOWS), default=list(KNOWS), metavar="RECIPE")
    help = "labels checked, or only held out; default: %(default)s"
    add("--checked", type=int, nargs="+", metavar="N", default=[200], help=help)
    add("--epochs", type=int, metavar="N", default=40, help="default: %(default)s")
    add("--sets", nargs="+", metavar="SET", help="some of them; all by default")
    args = parser.parse_args()
    if args.task == "run":
        run(args)
    lines = args.out.read_text(encoding="utf-8").splitlines()
    print(tables([json.loads(line) for line in lines]))


def run(args: argparse.Namespace) -> None:
    """Append a line per set, seed, recipe and number of checked labels, but for those it has."""
    torch.set_num_threads(1)
    done: set[Key] = set()
    if args.out.exists():
        lines = args.out.read_text(encoding="utf-8").splitlines()
        done = {key(json.loads(line)) for line in lines}
    if args.unseen:
        makers = not_used()
    else:
        makers = made_up() if args.made_up else sets(args.music, args.fashion)
    names = [name for name in makers if args.sets is None or name in args.sets]
    for seed, name, size in product(args.seeds, names, args.checked):
        wanted = [ADVICE, *args.only]
        missing = [recipe for recipe in wanted if (size, name, seed, recipe) not in done]
        if not missing:
            continue
        place = {"set": name, "seed": seed, "size": size}
        data, start = makers[name](seed), time.process_time()
        if size >= len(data.x):  # too many for this set
            continue
        if ADVICE in missing:
            write(args.out, place | {"recipe": ADVICE} | advised(data, seed, size))
        for recipe, curves in runs(data, seed, missing, size, args.epochs):
            row = place | {"recipe": recipe}
            row["noise_rate"] = round(float((data.given != data.true).mean()), 4)
            texts = curves.predicted
            row |= {name: [round(v, 2) for v in getattr(curves, name)] for name in ACCURACIES}
            row["predicted"] = {by: texts[chosen_epoch(row[by])] for by in ("noisy", "checked")}
            row["predicted"]["last"] = texts[-1]
            row["seconds"] = round(time.process_time() - start, 1)
            start = time.process_time()
            write(args.out, row)


def write(path: Path, row: dict[str, Any]) -> None:
    """Append a line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
