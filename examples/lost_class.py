"""Does forward correction lose a class for good, and what brings it back?

    python examples/lost_class.py --data DIR

DIR holds the four files of Fashion-MNIST. Classes 0 and 6, and 2 and 4, are taken for each other
at 40 %, so that 16 % of all labels are wrong. A small CNN is trained by forward correction with the
true T, with two epochs of plain cross-entropy before it, or with a tenth of it throughout. Three
minutes on a CPU core. Needs torch and sigua.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import sigua
from sigua_torch import SIGUALoss

T = sigua.mapped_transition({0: 6, 6: 0, 2: 4, 4: 2}, 0.4, num_classes=10)
IMAGES, TEST, EPOCHS, BATCH = 4000, 2000, 8, 64
WAYS = ["forward", "forward after two plain epochs", "forward with a tenth of plain"]
LOST = 1  # of the test images, a class is predicted for so many at most


def load(folder: Path, kind: str, size: int) -> tuple[Tensor, np.ndarray]:
    """Return the first images and their true classes."""
    pixels = gzip.decompress((folder / f"{kind}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / f"{kind}-labels-idx1-ubyte.gz").read_bytes())
    x = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 1, 28, 28)[:size]
    y = np.frombuffer(labels, np.uint8, offset=8)[:size]
    return torch.tensor(x / 255.0, dtype=torch.float32), y


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, 2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def train(way: str, x: Tensor, y: Tensor, x_test: Tensor, seed: int) -> np.ndarray:
    """Return the classes that the network predicts for the test images in the end."""
    torch.manual_seed(seed)
    net, plain, forward = network(), nn.CrossEntropyLoss(), SIGUALoss(sigua.forward_correction(T))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        warm = way == WAYS[1] and epoch < 2
        share = 1.0 if warm else 0.1 if way == WAYS[2] else 0.0  # of plain cross-entropy
        for batch in torch.randperm(len(y)).split(BATCH):
            logits = net(x[batch])
            loss = (1 - share) * forward(logits, y[batch]) + share * plain(logits, y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return net(x_test).argmax(dim=1).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, metavar="DIR", required=True)
    parser.add_argument("--seeds", type=int, metavar="N", default=10, help="default: %(default)s")
    args = parser.parse_args()
    (x, true), (x_test, y_test) = load(args.data, "train", IMAGES), load(args.data, "t10k", TEST)
    for way in WAYS:
        lost, accuracies = 0, []
        for seed in range(args.seeds):
            noisy = torch.tensor(sigua.corrupt_labels(true.astype(np.int64), T, seed=seed))
            predicted = train(way, x, noisy, x_test, seed)
            lost += np.bincount(predicted, minlength=10).min() <= LOST
            accuracies.append(100 * (predicted == y_test).mean())
        mean, spread = np.mean(accuracies), np.std(accuracies)
        print(f"{way}: a class lost with {lost} seeds of {args.seeds}, {mean:.1f} ± {spread:.1f} %")


if __name__ == "__main__":
    main()
