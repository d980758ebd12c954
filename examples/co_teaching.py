"""Two networks that teach each other, and forget what the other one calls wrong.

    python examples/co_teaching.py

In co-teaching (Han et al., NeurIPS 2018) each of two networks picks the small losses of a
mini-batch for the other to learn from. SIGUA adds what it adds to self-teaching: the other's middle
losses are climbed on. The schedule, the counts and the masks are the core's; the loop is `train`.
Data, noise, network and optimiser are those of digits.py, `--data DIR` is MNIST. About three
minutes on a CPU; a row for each method, its accuracy that of the first network.

Needs torch, scikit-learn, matplotlib, rich and sigua.
"""

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import torch
from digits import CLASSES, LAST, NOISES, Data, load, make_method, positive_integer
from digits import train as train_alone
from rich.progress import track
from torch import nn

import sigua
from sigua_torch import SIGUALoss

ALONE = ["standard", "self-teaching", "SIGUA_SL"]
TOGETHER = {"co-teaching": "self-teaching", "co-teaching + SIGUA": "SIGUA_SL"}


def train(method: sigua.Method, data: Data, seed: int, epochs: int) -> Iterator[float]:
    """Train two networks, and yield the first one's test accuracy in % after each epoch."""
    torch.manual_seed(seed)

    def make_net() -> nn.Module:
        hidden = nn.Linear(data.x.shape[1], 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
        return nn.Sequential(*hidden, nn.Linear(128, CLASSES))

    one, other = make_net(), make_net()
    optimizer = torch.optim.Adam([*one.parameters(), *other.parameters()], lr=3e-3)
    judge = SIGUALoss(method)  # says who is good and bad by a network's own losses
    learn = SIGUALoss(sigua.custom(sigua.Known(), gamma=method.gamma))  # takes another's word
    for epoch in range(epochs):
        judge.set_epoch(epoch)
        for batch in torch.randperm(len(data.x)).split(128):
            x, y = data.x[batch], data.y[batch]
            logits = one(x), other(x)
            splits = []
            for own in logits:
                judge(own, y)
                splits.append(judge.split)
            loss = learn(logits[0], y, trusted=splits[1]) + learn(logits[1], y, trusted=splits[0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = one(data.x_test).argmax(dim=1) == data.y_test
        yield 100 * right.double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="a folder with MNIST's four files")
    add("--noise", nargs="+", choices=NOISES, default=list(NOISES), metavar="NAME")
    add("--seeds", type=positive_integer, default=3, metavar="N")
    add("--epochs", type=positive_integer, default=60, metavar="N")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = load(args.data)
    found: dict[tuple[str, str], list[float]] = {}
    runs = list(product(args.noise, [*ALONE, *TOGETHER], range(args.seeds)))
    for noise, name, seed in track(runs, "training"):
        noisy = sigua.corrupt_labels(data.y.numpy(), NOISES[noise].T, seed=seed)
        given = data._replace(y=torch.from_numpy(noisy))
        method = make_method(TOGETHER.get(name, name), NOISES[noise])
        loop = train if name in TOGETHER else train_alone
        curve = list(loop(method, given, seed, args.epochs))
        found.setdefault((noise, name), []).append(float(np.mean(curve[-LAST:])))
    print(f"| method | {' | '.join(args.noise)} |")
    print("|---" * (len(args.noise) + 1) + "|")
    for name in [*ALONE, *TOGETHER]:
        values = (found[noise, name] for noise in args.noise)
        cells = (f"{np.mean(each):.1f} ± {np.std(each):.1f}" for each in values)
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
