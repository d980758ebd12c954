"""Lightning trains with a swapped criterion; our callback tells the epoch, resumed or not."""

from itertools import cycle

import numpy as np
import pytest
import pytorch_lightning
import torch
from lightning import pytorch
from lightning.pytorch.loggers import CSVLogger
from test_trainers_streams import line
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import sigua
from sigua import plot
from sigua_torch import SelectionMeter, SIGUALoss
from sigua_torch.lightning import SetEpoch

pytestmark = [
    # Lightning says so of data in memory, which need no workers.
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    # Lightning asks PyTorch's pytree an old question.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]

METHOD = sigua.sigua_sl(0.5, delta=0.2, gamma=0.1, warmup=6)


def loader(n=64, size=16):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 5, generator=generator)
    return DataLoader(TensorDataset(x, torch.arange(n) % 3), batch_size=size)


class Steps:
    """Notes the epoch that its criterion has in each step."""

    def __init__(self, criterion):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(5, 3)
        self.criterion = criterion
        self.epochs = []

    def training_step(self, batch, index):
        x, y = batch
        self.epochs.append(self.criterion.epoch)
        return self.criterion(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class Net(Steps, pytorch.LightningModule):
    pass


def make_trainer(epochs, make=pytorch.Trainer, **options):
    off = ["logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"]
    fixed = {"accelerator": "cpu", "devices": 1, "callbacks": [SetEpoch()], "max_epochs": epochs}
    return make(**dict.fromkeys(off, False) | fixed | options)


@pytest.mark.parametrize("name", [pytorch, pytorch_lightning], ids=lambda name: name.__name__)
def test_the_criterion_has_the_trainers_epoch(name):
    """Whatever is validated in between; under Lightning's other name, too."""

    class Validated(Steps, name.LightningModule):
        def validation_step(self, batch, index):
            self.criterion(self.layer(batch[0]), batch[1])

    net = Validated(SIGUALoss(METHOD))
    make_trainer(3, name.Trainer).fit(net, loader(), loader())
    assert net.epochs == [step / 4 for step in range(12)]


def test_every_criterion_is_told_wherever_it_is():
    net = Net(SIGUALoss(METHOD))
    net.others = nn.ModuleList([nn.Sequential(SIGUALoss(METHOD)), SIGUALoss(METHOD)])
    make_trainer(3).fit(net, loader())
    assert [net.others[0][0].epoch, net.others[1].epoch] == [2.75, 2.75]


def test_a_criterion_that_is_no_module_of_the_net_is_missed_in_one_sentence():
    """Such as one in a plain list, or a global: it would stay at epoch 0 to the end."""
    net = Net(nn.Identity())
    net.criteria = [SIGUALoss(METHOD)]
    with pytest.raises(ValueError, match=r"^SetEpoch: must find a SIGUALoss .*, got none; try"):
        make_trainer(1).fit(net, loader())


def test_a_criterion_that_counts_is_left_alone_and_counts_micro_batches():
    """Accumulation changes the steps of the optimiser, and not the epochs: 4 calls are one."""
    net = Net(SIGUALoss(METHOD, steps_per_epoch=4))
    make_trainer(3, accumulate_grad_batches=4).fit(net, loader())
    assert net.epochs == [step / 4 for step in range(12)]


@pytest.mark.parametrize("steps_per_epoch", [None, 4])
def test_a_resumed_run_is_the_run_that_was_never_interrupted(steps_per_epoch, tmp_path):
    def fresh():
        return Net(SIGUALoss(METHOD, steps_per_epoch=steps_per_epoch))

    whole, first, second = fresh(), fresh(), fresh()
    make_trainer(8).fit(whole, loader())
    trainer = make_trainer(4)
    trainer.fit(first, loader())
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    make_trainer(8).fit(second, loader(), ckpt_path=tmp_path / "last.ckpt", weights_only=True)
    assert first.epochs + second.epochs == whole.epochs
    assert torch.equal(second.layer.weight, whole.layer.weight)


class Stream(IterableDataset):
    """Four mini-batches of 16, whose number nobody is told."""

    def __iter__(self):
        return iter(loader().dataset)


class Forever(IterableDataset):
    def __iter__(self):
        return cycle(loader().dataset)


@pytest.mark.parametrize(
    ("options", "steps_per_epoch", "expected"),
    [
        ({"max_epochs": 1}, None, [0, 0, 0, 0]),  # whole epochs are all that is known
        ({"max_epochs": 2}, None, [0, 0, 0, 0, 1, 1, 1, 1]),
        ({"max_epochs": 1}, 2, [0, 0.5, 1, 1.5]),
        ({"max_steps": 6}, 4, [0, 0.25, 0.5, 0.75, 1, 1.25]),
    ],
)
def test_a_stream_without_a_length_has_epochs_by_steps(options, steps_per_epoch, expected):
    net = Net(SIGUALoss(METHOD))
    callbacks = [SetEpoch(steps_per_epoch)]
    make_trainer(None, callbacks=callbacks, **options).fit(net, DataLoader(Stream(), batch_size=16))
    assert net.epochs == expected


def test_the_line_of_the_guide_for_streams_counts_steps():
    """There an epoch has 500 of them, and here 2."""
    names, net = {"SetEpoch": SetEpoch}, Net(SIGUALoss(sigua.sigua_ag(warmup=10)))
    exec(line("Lightning"), names)
    trainer = make_trainer(None, callbacks=[names["callback"]], max_steps=24)
    trainer.fit(net, DataLoader(Forever(), batch_size=16))
    assert net.epochs == [step / 2 for step in range(24)]


class Metered(Net):
    """Logs what a report says."""

    def training_step(self, batch, index):
        loss = super().training_step(batch, index)
        self.meter.update(self.criterion.split)
        self.log("loss", loss)
        return loss

    def on_train_epoch_end(self):
        self.log_dict(self.meter.report().logs())


def test_lightning_logs_a_report_and_its_csv_is_drawn(tmp_path):
    """Of 64 floor(64 * rho) + 1 are kept once anybody is dropped; rho is 1, .75, .5, .5."""
    net = Metered(SIGUALoss(sigua.sigua_sl(0.5, delta=0.25, warmup=2)))
    net.meter = SelectionMeter()
    make_trainer(4, logger=CSVLogger(tmp_path), log_every_n_steps=1).fit(net, loader(size=64))
    ax = plot.selection(tmp_path / "lightning_logs/version_0/metrics.csv")
    good, _, dropped = (line.get_ydata() / 100 for line in ax.get_lines())
    want = np.array([64, 49, 33, 33]) / 64
    np.testing.assert_allclose(good, want, rtol=1e-6)
    np.testing.assert_allclose(dropped, 1 - want, atol=1e-6)


@pytest.mark.parametrize("steps", [0, 2.5, True])
def test_steps_that_are_no_whole_number_are_refused(steps):
    with pytest.raises(ValueError, match=r"^steps_per_epoch: must be a whole number"):
        SetEpoch(steps_per_epoch=steps)
