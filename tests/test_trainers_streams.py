"""The guide's lines for streams: an epoch is 500 steps, and 10 of those are the ramp.

Lightning's is in test_trainers_lightning.py.
Here it is 2 steps, so that the ramp has 20. The lines are read from the guide.
"""

import os
import re
from itertools import count, islice
from pathlib import Path

import pytest
import torch
from test_trainers_transformers import make_trainer
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import TrainerCallback

import sigua
from sigua_torch import SIGUALoss

GUIDE = Path(__file__).parents[1] / "examples" / "guide" / "trainers.md"
METHOD = sigua.sigua_ag(warmup=10)
STEPS = 24
EPOCHS = [step / 2 for step in range(STEPS)]


def line(where):
    """Return the guide's line for a framework, as code, with epochs of 2 steps."""
    text = GUIDE.read_text(encoding="utf-8")
    rows = re.findall(rf"^\| {re.escape(where)} \| `(.+)` \|$", text, re.MULTILINE)
    (code,) = [row for row in rows if "500" in row]
    return compile(code.replace("500", "2"), where, "exec")


class Stream(IterableDataset):
    """Examples without end, as the frameworks take them."""

    def __init__(self, make):
        self.make = make

    def __iter__(self):
        draw = torch.Generator().manual_seed(0)
        for i in count():
            yield self.make(torch.randn(5, generator=draw), i % 3)


class Notes(nn.Module):
    """A criterion that notes its epoch in each call."""

    def __init__(self, criterion):
        super().__init__()
        self.criterion, self.epochs = criterion, []

    def forward(self, *args, **kwargs):
        self.epochs.append(self.criterion.epoch)
        return self.criterion(*args, **kwargs)


def test_pytorch():
    names = {"sigua": sigua, "SIGUALoss": SIGUALoss}
    exec(line("PyTorch, Accelerate"), names)
    noted, net = Notes(names["criterion"]), nn.Linear(5, 3)
    for x, y in islice(DataLoader(Stream(lambda x, y: (x, y)), batch_size=8), STEPS):
        noted(net(x), y).backward()
    assert noted.epochs == EPOCHS


@pytest.mark.parametrize("parts", [1, 2])
def test_hugging_face(parts, tmp_path):
    """Steps of the optimiser: the micro-batches of a step have one epoch."""
    code = line("Hugging Face, TRL")

    class Tell(TrainerCallback):
        def __init__(self, criterion):
            self.criterion = criterion

        def on_step_begin(self, args, state, control, **kwargs):
            exec(code, {"self": self, "state": state})

        def on_step_end(self, args, state, control, **kwargs):
            self.criterion.end_step()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, x, labels=None):
            return {"logits": self.layer(x)}

    noted = Notes(SIGUALoss(METHOD))
    stream, told = Stream(lambda x, y: {"x": x, "labels": y}), Tell(noted.criterion)
    size = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": parts}
    make_trainer(noted, tmp_path, Net(), stream, [told], max_steps=STEPS, **size).train()
    assert noted.epochs == [epoch for epoch in EPOCHS for _ in range(parts)]


# Keras converts its variables in a way that NumPy 2 deprecates.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_keras():
    """At the end of the ramp an example is kept only if the model agrees: the shares move."""
    assert os.environ["KERAS_BACKEND"] == "jax"
    import keras

    from sigua_keras import SIGUA

    names = {"sigua": sigua, "SIGUA": SIGUA}
    exec(line("Keras"), names)

    class Look(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.epochs = []

        def on_train_batch_end(self, batch, logs=None):
            self.epochs.append(names["callback"].epoch)

    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    batches = (
        (x.numpy(), y.numpy()) for x, y in DataLoader(Stream(lambda x, y: (x, y)), batch_size=8)
    )
    look, fixed = Look(), {"epochs": 1, "steps_per_epoch": STEPS, "shuffle": False}
    model.fit(batches, verbose=0, callbacks=[names["callback"], look], **fixed)
    assert look.epochs == [(step + 1) / 2 for step in range(STEPS)]


def test_jax():
    """Compiled for any step, and equal to the loss at the epoch that is given."""
    import jax

    from sigua_jax import init_confidence, sigua_loss

    code, state = line("JAX"), init_confidence(3)
    given = jax.random.normal(jax.random.key(0), (64, 3)), jax.numpy.arange(64) % 3
    fixed = dict(zip(["logits", "labels"], given, strict=True), method=METHOD, confidence=state)

    @jax.jit
    def loss(step):
        names = fixed | {"sigua_loss": sigua_loss, "step": step}
        exec(code, names)
        return names["loss"]

    for step, epoch in enumerate(EPOCHS):
        want = sigua_loss(*given, epoch, METHOD, confidence=state)
        assert loss(step).item() == pytest.approx(want.item(), rel=1e-6)
