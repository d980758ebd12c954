"""Accelerate prepares the network, and keeps the criterion's epoch in its checkpoints."""

from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from programs import module_of
from test_trainers_transformers import weights

import sigua
from sigua_torch import SIGUALoss

EXAMPLE = Path(__file__).parents[1] / "examples" / "trainers" / "accelerate_fit.py"
METHOD = sigua.sigua_sl(0.5, delta=0.2, gamma=0.1, warmup=6)


@pytest.fixture(scope="module")
def example():
    """The example as a module."""
    return module_of(EXAMPLE)


def test_a_resumed_run_is_the_run_that_was_never_interrupted(example, tmp_path):
    whole = example.Run(METHOD)
    whole.fit(range(6))
    first = example.Run(METHOD)
    first.fit(range(3))
    first.accelerator.save_state(tmp_path)
    second = example.Run(METHOD)
    second.accelerator.load_state(tmp_path)
    assert second.criterion.epoch == 2
    second.fit(range(3, 6))
    assert torch.equal(weights(second.net), weights(whole.net))


def test_a_criterion_that_was_prepared_is_saved_and_loaded_too(tmp_path):
    """Then it is one of the models, whose files are safetensors."""
    accelerator = Accelerator(cpu=True)
    criterion = accelerator.prepare(SIGUALoss(METHOD))
    criterion.set_epoch(3)
    accelerator.save_state(tmp_path)
    criterion.set_epoch(0)
    accelerator.load_state(tmp_path)
    assert criterion.epoch == 3


@pytest.mark.parametrize("parts", [1, 4])
def test_accumulation_has_the_scale_of_one_big_batch(parts):
    """Accelerate divides by itself; each example is judged by itself, so the gradient is the same.

    Expected: autograd's gradient of the whole set, without Accelerate.
    """
    method = sigua.sigua_bc(sigua.TransitionMatrix.pair(0.45, 3))
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=parts)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(64, 5, generator=generator)
    labels = torch.arange(64) % 3
    torch.manual_seed(0)
    net = accelerator.prepare(torch.nn.Linear(5, 3))
    criterion = SIGUALoss(method)
    (want,) = torch.autograd.grad(criterion(net(inputs), labels), net.weight)
    for x, y in zip(inputs.chunk(parts), labels.chunk(parts), strict=True):
        with accelerator.accumulate(net):
            accelerator.backward(criterion(net(x), y))
    torch.testing.assert_close(net.weight.grad, want, rtol=1e-5, atol=1e-7)
