"""SIGUA under Accelerate, on real handwritten digits of which half the labels are wrong.

    python examples/trainers/accelerate_fit.py

An everyday loop of Accelerate: `prepare`, `backward`, `save_state`. The criterion was swapped, is
told the epoch, and is registered for checkpoints, so that a resumed run continues its ramp; it is
not prepared, for it has nothing to train. Needs torch, accelerate, scikit-learn and sigua.
"""

import accelerate
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sigua
from sigua_torch import SIGUALoss

EPOCHS = 60
METHOD = sigua.sigua_sl(noise_rate=0.5, delta=0.15, gamma=0.01)


class Run:
    """What a checkpoint holds: network, optimiser, mini-batches and criterion."""

    def __init__(self, method: sigua.Method) -> None:
        accelerate.utils.set_seed(0)
        self.accelerator = Accelerator(cpu=True)
        hidden = nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
        net = nn.Sequential(*hidden, nn.Linear(128, 10))
        optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
        train, self.test = load()
        self.net, self.optimizer, self.train = self.accelerator.prepare(net, optimizer, train)
        self.criterion = SIGUALoss(method).to(self.accelerator.device)  # was: nn.CrossEntropyLoss()
        self.accelerator.register_for_checkpointing(self.criterion)  # its epoch

    def fit(self, epochs: range) -> None:
        for epoch in epochs:
            self.criterion.set_epoch(epoch)  # the one line more
            for x, y in self.train:
                self.optimizer.zero_grad()
                self.accelerator.backward(self.criterion(self.net(x), y))
                self.optimizer.step()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Return the accuracy on digits that were held out."""
        x, y = (part.to(self.accelerator.device) for part in self.test)
        return (self.net(x).argmax(dim=1) == y).float().mean().item()


def load() -> tuple[DataLoader, tuple[torch.Tensor, torch.Tensor]]:
    """Return mini-batches to train on, half of their labels wrong, and clean digits to report."""
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x / 16, y, test_size=0.25, random_state=0, stratify=y)
    y = sigua.corrupt_labels(y, sigua.TransitionMatrix.symmetric(0.5, 10), seed=0)
    pairs = (x, y), (x_test, y_test)
    train, test = ((torch.tensor(a).float(), torch.tensor(b)) for a, b in pairs)
    return DataLoader(TensorDataset(*train), batch_size=128, shuffle=True), test


def main() -> None:
    print(f"Accelerate {accelerate.__version__}, half of the training labels wrong")
    for name, method in {"plain": sigua.standard(), "SIGUA": METHOD}.items():
        run = Run(method)
        run.fit(range(EPOCHS))
        print(f"{name}: {run.accuracy():.1%} of the test digits right")


if __name__ == "__main__":
    main()
