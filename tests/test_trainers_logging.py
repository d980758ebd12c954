"""Loggers take a report's `logs()` as they are, and what they leave behind is drawn."""

import keras
import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sigua
from sigua import plot
from sigua_keras import SIGUA
from sigua_torch import SelectionMeter, SIGUALoss
from sigua_torch.lightning import SetEpoch

pytestmark = [
    # Lightning says so of data in memory, which need no workers.
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    # Lightning asks PyTorch's pytree an old question.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    # Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]
METHOD = sigua.sigua_sl(0.5, delta=0.25, warmup=2)
# Of 64 examples floor(64 * rho) + 1 are kept once anybody is dropped; rho is 1, .75, .5, .5.
GOOD = np.array([64, 49, 33, 33]) / 64


def drawn(ax):
    return [line.get_ydata() / 100 for line in ax.get_lines()]


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.criterion, self.meter = (
            nn.Linear(5, 3),
            SIGUALoss(METHOD),
            SelectionMeter(),
        )

    def training_step(self, batch, index):
        x, y = batch
        loss = self.criterion(self.layer(x), y)
        self.meter.update(self.criterion.split)
        self.log("loss", loss)
        return loss

    def on_train_epoch_end(self):
        self.log_dict(self.meter.report().logs())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(64, 5, generator=generator), torch.arange(64) % 3


def test_lightning_logs_it_and_its_csv_is_drawn(data, tmp_path):
    options = {"enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 4}
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        logger=CSVLogger(tmp_path),
        enable_checkpointing=False,
        callbacks=[SetEpoch()],
        log_every_n_steps=1,
        **options,
    )
    trainer.fit(Net(), DataLoader(TensorDataset(*data), batch_size=64))
    good, _, dropped = drawn(plot.selection(tmp_path / "lightning_logs/version_0/metrics.csv"))
    np.testing.assert_allclose(good, GOOD, rtol=1e-6)
    np.testing.assert_allclose(dropped, 1 - GOOD, atol=1e-6)


def test_the_history_of_keras_is_drawn(data):
    x, y = (part.numpy() for part in data)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    history = model.fit(x, y, batch_size=64, epochs=4, verbose=0, callbacks=[SIGUA(METHOD)])
    for recorded in (history, history.history):
        good, bad, _ = drawn(plot.selection(recorded))
        np.testing.assert_allclose(good, GOOD, rtol=1e-6)
        np.testing.assert_allclose(bad, history.history["sigua_bad"], rtol=1e-6)
