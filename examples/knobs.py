"""What the knobs of SIGUA_SL do: noise rate, delta, gamma and warm-up, each turned alone.

    python examples/knobs.py [--png knobs.png]

Trains the network of digits.py on scikit-learn's digits with half of their labels wrong (symmetric)
and draws the test accuracy against each knob, the others left where they are; about four minutes on
a CPU. The line is the mean over three seeds of the last ten of 60 epochs, the band its deviation.

Needs torch, scikit-learn, matplotlib, rich and sigua.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from digits import LAST, NOISES, load, new_file, positive_integer, train
from matplotlib.figure import Figure
from rich.progress import track

import sigua

USUAL = {"noise_rate": 0.5, "delta": 0.15, "gamma": 0.01, "warmup": 10}
KNOBS = {
    "noise_rate": [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8],
    "delta": [0.0, 0.05, 0.15, 0.3, 0.5],
    "gamma": [0.0, 0.001, 0.01, 0.03, 0.1, 0.3],
    "warmup": [0, 5, 10, 20, 40],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--png", type=new_file, metavar="FILE", default=Path("knobs.png"))
    add("--seeds", type=positive_integer, metavar="N", default=3)
    add("--epochs", type=positive_integer, metavar="N", default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = load(None)
    found: dict[tuple[str, float], list[float]] = {}
    runs = [
        (knob, value, seed) for knob in KNOBS for value in KNOBS[knob] for seed in range(args.seeds)
    ]
    for knob, value, seed in track(runs, "training"):
        noisy = sigua.corrupt_labels(data.y.numpy(), NOISES["sym-50"].T, seed=seed)
        method = sigua.sigua_sl(**USUAL | {knob: value})
        curve = list(train(method, data._replace(y=torch.from_numpy(noisy)), seed, args.epochs))
        found.setdefault((knob, value), []).append(float(np.mean(curve[-LAST:])))
    figure = Figure((12, 3.2), layout="constrained", dpi=110)
    panels = figure.subplots(1, len(KNOBS), sharey=True)
    panels[0].set_ylabel("accuracy on clean test data (%)")
    for panel, (knob, values) in zip(panels, KNOBS.items(), strict=True):
        scores = np.array([found[knob, value] for value in values])
        mean, std = scores.mean(axis=1), scores.std(axis=1)
        places = range(len(values))
        panel.plot(places, mean, "o-", color="#0a4f9e")
        panel.fill_between(places, mean - std, mean + std, color="#0a4f9e", alpha=0.2)
        panel.axvline(values.index(USUAL[knob]), color="grey", linestyle=":")
        panel.set_xticks(places, [f"{value:g}" for value in values])
        panel.set_xlabel(knob)
        panel.grid(alpha=0.3)
    figure.savefig(args.png)
    for (knob, value), scores in found.items():
        print(f"{knob:11} {value:<6g} {np.mean(scores):.1f} ± {np.std(scores):.1f}")


if __name__ == "__main__":
    main()
