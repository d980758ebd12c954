"""PyTorch's criterion keeps the contract: eager in two precisions, by torch's names, compiled."""

from functools import partial

import numpy as np
import pytest
import torch
from contract import COMPOSED, METHODS, OPTIONS, Contract, Step, name
from torch import nn

from sigua_torch import SIGUALoss, _ops


def make(method, options):
    """Return a criterion, and the tensors for its call, from the contract's options."""
    weight = options.pop("weight", None)
    weight = None if weight is None else torch.tensor(weight)
    loss = nn.CrossEntropyLoss(weight, label_smoothing=options.pop("smoothing", 0.0))
    groups = options.pop("groups", None)
    if isinstance(groups, np.ndarray):
        groups = partial(constant, torch.tensor(groups))
    rest = {name: torch.tensor(value) for name, value in options.items() if value is not None}
    return SIGUALoss(method, loss, groups=groups), rest


def constant(groups, input, target):
    return groups


class Torch(Contract):
    dtype = torch.float32

    def step(self, criterion):
        return criterion

    def run(self, method, logits, labels, epoch=0, **options):
        criterion, rest = make(method, options)
        criterion.to(self.dtype)
        logits = torch.tensor(np.asarray(logits), dtype=self.dtype, requires_grad=True)
        criterion.set_epoch(epoch)
        value = self.step(criterion)(logits, torch.tensor(np.asarray(labels)), **rest)
        value.backward()
        masks = (mask.numpy() for mask in criterion.split)
        return Step(value.item(), logits.grad.numpy(), *masks)


class TestEager(Torch):
    pass


class TestDouble(Torch):
    dtype, eps = torch.float64, float(np.finfo(np.float64).eps)


class TestNames(Torch):
    """As on an accelerator: the step over torch's names."""

    @pytest.fixture(autouse=True)
    def _not_plain(self, monkeypatch):
        monkeypatch.setattr(_ops, "is_viewable", lambda x: False)


class TestCompiled(Torch):
    every = 40

    @pytest.mark.parametrize("method", METHODS, ids=name)
    def test_equals_the_reference(self, method):
        """In one epoch; that a graph serves all is another test's."""
        super().test_equals_the_reference(method, 4)

    @pytest.mark.parametrize("case", OPTIONS, ids=lambda case: "-".join(case))
    @pytest.mark.parametrize("method", COMPOSED[1::3], ids=name)
    def test_options_compose(self, method, case):
        super().test_options_compose(method, case)

    def step(self, criterion):
        torch.compiler.reset()
        return torch.compile(criterion, backend="aot_eager", fullgraph=True)
