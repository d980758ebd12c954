"""Every block of Python in README and guide runs; those for PyTorch and the core here."""

import numpy as np
import torch
from torch import nn

import sigua


def names():
    """Return what the blocks take for granted: a model, data, a loop's parts."""
    torch.manual_seed(0)
    inputs, labels = torch.rand(64, 5), torch.arange(64) % 10
    y = np.arange(200) % 3
    given = np.where(np.arange(200) % 10, y, (y + 1) % 3)
    model = nn.Linear(5, 10)
    return {
        "train": lambda method: nn.Linear(5, 10),
        "x_held_out": inputs,
        "y_held_out": labels,
        "model": model,
        "inputs": inputs,
        "labels": labels,
        "x_train": inputs,
        "y_train": labels,
        "loader": [(inputs, labels)],
        "optimizer": torch.optim.SGD(model.parameters(), 0.1),
        "epochs": 2,
        "x": np.random.default_rng(0).random((200, 5)) + 0.6 * np.eye(3, 5)[y],
        "y": y,
        "issues": sigua.rank_label_issues(np.arange(64.0), noise_rate=0.2),
        "diagnosis": sigua.diagnose(0.8 * np.eye(3)[y] + 0.2 / 3, given),
    }


def test_the_blocks_run(documented):
    """One after the other, each with fresh names."""
    blocks = documented("demo")
    assert len(blocks) > 10
    for place, block in blocks.items():
        exec(compile(block, place, "exec"), names())
