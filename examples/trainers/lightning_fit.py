"""SIGUA under Lightning, on real handwritten digits of which half the labels are wrong.

    python examples/trainers/lightning_fit.py

The LightningModule is an everyday one: its criterion was swapped, and the trainer has a callback
that says which epoch it is. Needs torch, lightning, scikit-learn and sigua.
"""

import logging
import warnings

import lightning
import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sigua
from sigua_torch import SIGUALoss
from sigua_torch.lightning import SetEpoch

EPOCHS = 60
METHOD = sigua.sigua_sl(noise_rate=0.5, delta=0.15, gamma=0.01)


class Digits(LightningModule):
    def __init__(self, method: sigua.Method) -> None:
        super().__init__()
        hidden = nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
        self.net = nn.Sequential(*hidden, nn.Linear(128, 10))
        self.criterion = SIGUALoss(method)  # was: nn.CrossEntropyLoss()

    def training_step(self, batch, index):
        x, y = batch
        return self.criterion(self.net(x), y)

    def validation_step(self, batch, index):
        x, y = batch
        logits = self.net(x)
        self.log("val_loss", self.criterion(logits, y))  # the plain loss
        self.log("val_accuracy", (logits.argmax(dim=1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def load() -> tuple[DataLoader, DataLoader]:
    """Return mini-batches to train on, half of their labels wrong, and clean ones to report."""
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x / 16, y, test_size=0.25, random_state=0, stratify=y)
    y = sigua.corrupt_labels(y, sigua.TransitionMatrix.symmetric(0.5, 10), seed=0)
    pairs = (x, y), (x_test, y_test)
    train, test = (TensorDataset(torch.tensor(a).float(), torch.tensor(b)) for a, b in pairs)
    return DataLoader(train, batch_size=128, shuffle=True), DataLoader(test, batch_size=450)


def make_trainer(**options) -> Trainer:
    """Return a quiet trainer on the CPU."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return Trainer(accelerator="cpu", devices=1, callbacks=[SetEpoch()], **quiet | options)


def main() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning")  # data in memory need no workers
    print(f"Lightning {lightning.__version__}, half of the training labels wrong")
    for name, method in {"plain": sigua.standard(), "SIGUA": METHOD}.items():
        torch.manual_seed(0)
        trainer = make_trainer(max_epochs=EPOCHS, enable_checkpointing=False)
        trainer.fit(Digits(method), *load())
        accuracy = trainer.callback_metrics["val_accuracy"]
        print(f"{name}: {accuracy:.1%} of the test digits right")


if __name__ == "__main__":
    main()
