"""The paper's experiments, every table and figure, runnable by name.

    python examples/paper NAME ...          train, and write lines of JSON, tables and figures
    python examples/paper report NAME ...   write the tables and figures again
    python examples/paper cost              what a method costs over plain cross-entropy
    python examples/paper --list            what the names stand for, and what they cost

Needs torch, scikit-learn, matplotlib, rich and sigua; for downloads keras.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import cost
import experiments
import report
import torch
from experiments import EXPERIMENTS, Cell, Options
from rich.console import Console
from runner import run_all
from store import Store
from train import use_precision

HERE = Path(__file__).parent
PARTS = {"panels": "panel", "methods": "method"}
"""Options that choose among the cells, and what of a cell they choose by."""


def number(kind: type, least: float) -> Any:
    """Return a reader of arguments that are at least so much."""

    def positive(text: str) -> Any:
        value = kind(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {text}")
        return value

    return positive


def rate(text: str) -> float:
    """Read an argument such as --delta."""
    if not 0 <= float(text) <= 1:
        raise argparse.ArgumentTypeError(f"must be in [0, 1], got {text}")
    return float(text)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python examples/paper",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    whole = number(int, 1)
    add("names", nargs="*", metavar="NAME", help="see --list; or: report [NAME ...], cost")
    add("--list", action="store_true", help="describe every experiment, and end")
    add("--preset", choices=["paper", "cpu"], default="paper", help="cpu: a smaller net, 25 epochs")
    add(
        "--variant", choices=["paper", "official"], default="paper", help="the authors' code's rule"
    )
    add("--seeds", type=whole, default=5, metavar="N", help="how many; default: %(default)s")
    add("--first-seed", type=number(int, 0), default=0, metavar="N", help="default: %(default)s")
    add("--panels", nargs="+", metavar="NAME", help="only these columns: sym-50, ...; deep, wide")
    add("--methods", nargs="+", metavar="NAME", help='only these rows: SIGUA_SL, "SIGUA_BC batch"')
    add("--data", type=Path, metavar="DIR", help="files at hand; by default they are downloaded")
    add("--device", default="auto", help="auto, cpu, cuda, ...; default: %(default)s")
    add("--precision", choices=["float32", "tf32", "bf16"], default="float32")
    add("--threads", type=whole, metavar="N", help="of the CPU; default: 1 for the cpu preset")
    add("--epochs", type=whole, metavar="N", help="stop there; schedules stay the whole run's")
    add("--max-minutes", type=number(float, 0), metavar="M", help="stop after the epoch then")
    add("--share", action="store_true", help="share the minutes equally among the runs")
    add("--resume", action="store_true", help="leave out what is finished, go on with the rest")
    add("--delta", type=rate, metavar="X", help="of SIGUA_SL, instead of the experiment's")
    add("--gamma", type=rate, metavar="X", help="of what climbs, instead of the experiment's")
    add("--limit", type=whole, metavar="N", help="only so many training examples: a first look")
    add("--out", type=Path, metavar="DIR", default=HERE / "results", help="default: %(default)s")
    args = parser.parse_args()
    if not (args.names or args.list):
        parser.error("give a NAME, or --list")
    for name in args.names[args.names[:1] in (["report"], ["cost"]) :]:
        if name not in EXPERIMENTS:
            parser.error(f"NAME: {name!r} is none of {', '.join(EXPERIMENTS)}, report, cost")
    if args.out.exists() and not args.out.is_dir():
        parser.error(f"--out: must be a folder, but {args.out} is a file")
    return args


def options(args: argparse.Namespace) -> Options:
    """Return what the command line changes in every run."""
    return Options(*(getattr(args, name) for name in Options._fields))


def cells(name: str, args: argparse.Namespace) -> list[Cell]:
    """Return the cells that are asked for, seed by seed."""
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    found = [cell for s in seeds for cell in EXPERIMENTS[name].cells(s, options(args))]
    for option, part in PARTS.items():
        wanted = getattr(args, option)
        found = [cell for cell in found if wanted is None or getattr(cell, part) in wanted]
    return found


def check_parts(args: argparse.Namespace) -> None:
    """Refuse a panel or a method that none of the experiments has."""
    every = [cell for name in args.names for cell in EXPERIMENTS[name].cells(0, options(args))]
    for option, part in PARTS.items():
        names = list(dict.fromkeys(getattr(cell, part) for cell in every))
        for value in getattr(args, option) or []:
            if value not in names:
                known = ", ".join(map(repr, names))
                raise SystemExit(f"--{option}: must be one of {known}, got {value!r}")


def stem(name: str, chosen: Options) -> str:
    """Return the name of an experiment's files."""
    parts = [name, chosen.preset]
    parts += [part for part in (chosen.variant, chosen.precision) if part not in Options()]
    for key in ("delta", "gamma", "limit"):
        value = getattr(chosen, key)
        parts += [] if value is None else [f"{key}{value}"]
    return "-".join(parts)


def device_of(name: str) -> str:
    """Return the device by name; auto is the first GPU, if there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise SystemExit(
            f"--device: {name} cannot be used ({str(error).splitlines()[0]})"
        ) from None
    return name


def train(args: argparse.Namespace) -> bool:
    """Train what is asked for and report it; return False if Ctrl-C ended it."""
    check_parts(args)
    device = device_of(args.device)
    use_precision(args.precision)
    store = Store(args.out)
    limits = {"epochs": args.epochs, "minutes": args.max_minutes, "in_turn": not args.share}
    for name in args.names:
        where = {"folder": args.data, "device": device, "resume": args.resume}
        wanted = cells(name, args)
        going_on = run_all(stem(name, options(args)), wanted, store, **where, **limits)
        write_reports([name], args)
        if not going_on:
            return False
    return True


def write_reports(names: list[str], args: argparse.Namespace) -> None:
    """Write the pages and the figures of all results with these options, whatever their seeds."""
    rows = Store(args.out).rows()
    seeds = sorted({row["run"]["seed"] for row in rows.values()})
    for name in names:
        every = [cell for seed in seeds for cell in EXPERIMENTS[name].cells(seed, options(args))]
        title = stem(name, options(args))
        if report.write(name, title, every, rows, args.out):
            print(f"{args.out / title}.md and .png hold the tables and the curves.")


def main() -> None:
    """Do what the command line says."""
    args = arguments()
    threads = args.threads or (1 if args.preset == "cpu" else None)
    if threads:
        torch.set_num_threads(threads)
    if args.list:
        print(experiments.listing(options(args)))
    elif args.names[0] == "report":
        write_reports(args.names[1:] or list(EXPERIMENTS), args)
    elif args.names[0] == "cost":
        torch.set_num_threads(1)
        Console(width=100).print(cost.table(cost.random_task()))
    else:
        try:
            went_through = train(args)
        except KeyboardInterrupt:
            went_through = False
        if not went_through:
            print("Stopped; --resume goes on.", file=sys.stderr)
            sys.exit(130)


if __name__ == "__main__":
    main()
