"""PyTorch's criterion keeps the contract: eager in two precisions and compiled."""

from functools import partial

import numpy as np
import torch
from contract import Contract, Step

from sigua_torch import SIGUALoss


def trained(
    criterion, logits, labels, epoch, dtype=torch.float32, step=lambda criterion: criterion
):
    logits = torch.tensor(np.asarray(logits), dtype=dtype, requires_grad=True)
    criterion.set_epoch(epoch)
    value = step(criterion)(logits, torch.tensor(np.asarray(labels)))
    value.backward()
    masks = (mask.numpy() for mask in criterion.split)
    return Step(value.item(), logits.grad.numpy(), *masks)


class TestEager(Contract):
    def run(self, method, logits, labels, epoch=0):
        return trained(SIGUALoss(method), logits, labels, epoch)


class TestDouble(Contract):
    eps = float(np.finfo(np.float64).eps)

    def run(self, method, logits, labels, epoch=0):
        return trained(SIGUALoss(method).double(), logits, labels, epoch, torch.float64)


class TestCompiled(Contract):
    every = 12

    def run(self, method, logits, labels, epoch=0):
        torch.compiler.reset()
        step = partial(torch.compile, backend="aot_eager", fullgraph=True)
        return trained(SIGUALoss(method), logits, labels, epoch, step=step)
