"""Training a run of the paper: the same curve after a break, memory, speed, JSON lines."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from demo_files import EXAMPLES, of_the_paper, read_rows, write_mnist
from torch import nn

PAPER = EXAMPLES / "paper"
NAMES = "experiments", "networks", "robust", "runner", "settings", "store", "tasks", "train"
experiments, networks, robust, runner, settings, stores, tasks, train = of_the_paper(*NAMES)
CPU = experiments.Options(preset="cpu")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder like MNIST's: 600 and 50 images of 8 x 8 noise, the pixel of the class lit."""
    folder, rng, parts = tmp_path_factory.mktemp("mnist"), np.random.default_rng(0), []
    for size in (600, 50):
        labels = np.arange(size) % 10
        images = rng.integers(0, 120, (size, 64))
        images[np.arange(size), labels] = 255
        parts += [images.reshape(size, 8, 8), labels]
    write_mnist(folder, *parts)
    return folder


@pytest.fixture(autouse=True)
def dropout_net(monkeypatch):
    """A small network with batch normalisation and dropout, whose state and dice matter."""

    def make(shape, classes):
        head = nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.25)
        return nn.Sequential(*head, nn.Linear(32, classes))

    monkeypatch.setitem(networks.IMAGES, "dropout", make)


def tiny_run(method="SIGUA_SL", noise="sym-50", epochs=12, **more):
    run = experiments.make_run("mnist", noise, method, 0, CPU)
    return replace(run, epochs=epochs, batch=100, **more)


def figure_1(epochs=16, shift=8, gamma=0.01, **more):
    """StopGrad and SIGUA on the tiny data, quick to memorise."""
    optimizer = settings.Optimizer(lr=0.003)
    more |= {"shift": shift, "memory": True, "optimizer": optimizer}
    return [
        tiny_run(name, "sym-50", epochs, gamma=g, **more)
        for name, g in (("StopGrad", 0.0), ("SIGUA", gamma))
    ]


def run_all(runs, folder, out, **keywords):
    """Train runs into a folder; return their rows in the runs' order."""
    cells = [experiments.Cell("panel", run.method, run) for run in runs]
    store = stores.Store(out)
    runner.run_all("name", cells, store, folder=folder, device="cpu", **keywords)
    rows = store.rows()
    return [rows[run.id] for run in runs if run.id in rows]


OPTIMIZERS = {
    "adam": settings.Optimizer(decay="linear", decay_at=3, late_beta1=0.1),
    "sgd": settings.Optimizer("sgd", lr=0.05, momentum=0.9, decay="step", decay_at=4),
    "adagrad": settings.Optimizer("adagrad", lr=0.01),
}


def interrupted(trainer, train_epoch=train.Trainer.train_epoch):
    """Train an epoch; in the seventh Ctrl-C is pressed."""
    if trainer.epoch == 6:
        signal.raise_signal(signal.SIGINT)
    train_epoch(trainer)


@pytest.mark.parametrize("by", ["Ctrl-C", "--epochs"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_that_was_stopped_goes_on_to_the_same_curve_and_weights_bit_for_bit(
    name, by, tiny, tmp_path, monkeypatch, capsys
):
    """Stopped after 7 of 12 epochs, by another process as far as the state is concerned.

    The first Ctrl-C ends after the epoch and loses nothing.
    """
    run = tiny_run(net="dropout", optimizer=OPTIMIZERS[name])
    task = tasks.prepare(run, tiny, "cpu")
    whole = train.Trainer(run, task)
    for _ in range(12):
        whole.train_epoch()
    if by == "Ctrl-C":
        with monkeypatch.context() as patch:
            patch.setattr(train.Trainer, "train_epoch", interrupted)
            (part,) = run_all([run], tiny, tmp_path)
        assert "Stopping after this epoch" in capsys.readouterr().err
    else:
        (part,) = run_all([run], tiny, tmp_path, epochs=7)
    assert (part["epochs"], part["finished"]) == (7, False)
    assert part["curves"]["test"] == whole.curves["test"][:7]
    state = stores.Store(tmp_path).saved(run)
    torch.manual_seed(99)  # whatever came in between
    again = train.Trainer(run, task)
    again.load(state)
    for _ in range(5):
        again.train_epoch()
    assert again.curves == whole.curves
    assert len(again.curves["test"]) == 12
    states = again.net.state_dict(), whole.net.state_dict()
    for own, other in zip(*(state.values() for state in states), strict=True):
        assert torch.equal(own, other)
    (row,) = run_all([run], tiny, tmp_path, resume=True)
    assert row["curves"] == whole.curves
    assert (row["epochs"], row["finished"]) == (12, True)


def test_stopgrad_and_sigua_share_what_is_before_the_shift(tiny, tmp_path, monkeypatch):
    """Each is what it would be if trained alone; the common epochs are trained once."""
    trained, train_epoch = [], train.Trainer.train_epoch

    def noted(self):
        trained.append(self.run.method)
        train_epoch(self)

    monkeypatch.setattr(train.Trainer, "train_epoch", noted)
    runs = figure_1()
    run_all(runs, tiny, tmp_path, epochs=5)  # within the common part
    rows = run_all(runs, tiny, tmp_path, resume=True)
    run_all(runs, tiny, tmp_path, resume=True)  # when nothing is left to do
    assert trained == ["standard"] * 8 + ["StopGrad"] * 8 + ["SIGUA"] * 8
    task = tasks.prepare(runs[0], tiny, "cpu")
    for run, row in zip(runs, rows, strict=True):
        alone = train.Trainer(run, task)
        for _ in range(run.epochs):
            alone.train_epoch()
        assert row["curves"] == alone.curves
        assert row["finished"]
    assert not list((tmp_path / "checkpoints").iterdir())


def test_sigua_forgets_the_wrong_labels_that_stopgrad_keeps_and_both_keep_the_right_ones(
    tiny, tmp_path
):
    stop_grad, ours = run_all(figure_1(epochs=120, shift=80, gamma=0.1, limit=200), tiny, tmp_path)
    assert min(stop_grad["curves"]["intact"][79], stop_grad["curves"]["flipped"][79]) > 95
    assert stop_grad["curves"]["flipped"][-1] > 80
    assert ours["curves"]["flipped"][-1] < 20
    assert min(row["curves"]["intact"][-1] for row in (stop_grad, ours)) > 95


def test_what_is_measured_is_counted_by_right_and_wrong_labels(tiny):
    """A criterion that calls examples of class 0 and 1 good, of 2 bad; a network that says 3."""
    run = tiny_run("SIGUA_SL", memory=True)
    trainer = train.Trainer(run, tasks.prepare(run, tiny, "cpu"))

    class Criterion(nn.CrossEntropyLoss):
        def forward(self, logits, target):
            self.split = train.sigua.Split(target < 2, target == 2)
            return super().forward(logits, target)

    trainer.method = Criterion()
    trainer.predict = lambda x: torch.full((len(x),), 3)
    trainer.train_epoch()
    y, intact = trainer.task.y.numpy(), trainer.task.intact.numpy()
    expected = {
        "good": (y < 2).mean(),
        "bad": (y == 2).mean(),
        "good_precision": intact[y < 2].mean(),
        "bad_precision": (~intact)[y == 2].mean(),
        "intact": np.mean(y[intact] == 3),
        "flipped": np.mean(y[~intact] == 3),
        "test": 0.1,
    }
    for name, value in expected.items():
        assert trainer.curves[name] == pytest.approx([100 * value], abs=1e-4)


METHODS = [*experiments.SET1, *experiments.SET2, "supervised", "Huber", "log-sum"]


@pytest.mark.parametrize("method", [*METHODS, "SIGUA"])
def test_steps_and_measurements_read_nothing_off_the_device(method):
    """On the meta device, where reading a number raises: a GPU never waits within an epoch.

    SIGUA is that of Figure 1, after the shift.
    """
    run = figure_1()[1] if method == "SIGUA" else replace(tiny_run(method), net="dropout")
    x = torch.rand(200, 1, 8, 8, device="meta")
    y = torch.zeros(200, dtype=torch.long, device="meta")
    trainer = train.Trainer(run, tasks.Task(x, y, y == 0, x, y, 10, None))
    trainer.epoch = 8 if method == "SIGUA" else 0
    index, split = trainer.steps(trainer.begin())
    found = trainer.measure()
    assert all(value.device.type == "meta" for value in found.values())
    assert found.keys() == {"test", *(["intact", "flipped"] if method == "SIGUA" else [])}
    assert (split is not None) == trainer.selects
    if split is not None:
        train.selection(split, trainer.task.intact[index])


def test_robust_losses_are_sums_over_the_residuals_of_the_scores():
    """By hand: residuals 2, 1/2, -1/4 cost 3/2, 1/8, 1/32; and -1, 3 over 1/2: log 3 + log 7."""
    scores, other = torch.tensor([[3.0, 0.5, -0.25]]), torch.tensor([[3.0, 0.0]])
    assert robust.huber(scores, torch.tensor([0])).tolist() == [1.5 + 1 / 8 + 1 / 32]
    # With delta = 1/4: 1/4 * (2 - 1/8), 1/4 * (1/2 - 1/8), and (1/4)^2 / 2 at the seam.
    quarter = robust.huber(scores, torch.tensor([0]), delta=0.25)
    assert quarter.tolist() == [15 / 32 + 3 / 32 + 1 / 32]
    found = robust.log_sum(other, torch.tensor([1]), epsilon=0.5)
    assert found.item() == pytest.approx(np.log(3) + np.log(7), rel=1e-6)
    for loss in (robust.huber, robust.log_sum):
        assert loss(torch.eye(3), torch.arange(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_on_the_cpu_preset_in_float32_and_bfloat16(method, tiny):
    for precision in ("float32", "bf16"):
        run = tiny_run(method, "none" if method == "supervised" else "sym-20", precision=precision)
        trainer = train.Trainer(run, tasks.prepare(run, tiny, "cpu"))
        trainer.train_epoch()
        assert len(trainer.curves["test"]) == 1
        assert all(parameter.isfinite().all() for parameter in trainer.net.parameters())


def test_two_commands_may_write_to_one_folder_at_once(tiny, tmp_path):
    """Different seeds, started together: a row for each run, tables and figures at the end."""
    shared = f"set1-mnist --preset cpu --seeds 1 --epochs 2 --data {tiny} --out {tmp_path}".split()
    shared += ["--panels", "sym-50", "pair-45", "--first-seed"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([sys.executable, PAPER, *shared, seed], env=env, stderr=subprocess.PIPE)
        for seed in ("0", "1")
    ]
    done = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0, 0], done
    rows = read_rows(tmp_path / "set1-mnist-cpu.jsonl")
    found = {(r["run"]["noise"], r["run"]["method"], r["run"]["seed"]) for r in rows}
    assert len(rows) == len(found) == 2 * 2 * 4
    assert all(len(row["curves"]["test"]) == row["epochs"] == 2 for row in rows)
    assert (tmp_path / "set1-mnist-cpu.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "| pair-45 | paper |" in (tmp_path / "set1-mnist-cpu.md").read_text()


@pytest.fixture
def main(example):
    """Run the command line in this process; return what it printed."""
    return partial(example, PAPER / "__main__.py")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give a NAME, or --list"),
        (["fig7"], "'fig7' is none of fig1, set1-mnist"),
        (["fig1", "--epochs", "0"], "must be at least 1, got 0"),
        (["fig1", "--delta", "2"], r"must be in \[0, 1\], got 2"),
    ],
)
def test_an_argument_that_cannot_be_used_is_refused(main, arguments, said, capsys):
    with pytest.raises(SystemExit):
        main(*arguments)
    assert re.search(said, capsys.readouterr().err)
