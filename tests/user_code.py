"""What users write, for the type checker: nothing here may be an error or of unknown type."""

import torch
from torch import nn

import sigua
from sigua_torch import SIGUALoss, corrected_losses, select

T = sigua.TransitionMatrix.pair(0.45, 10)
methods: list[sigua.Method] = [
    sigua.standard(),
    sigua.self_teaching(0.5, warmup=5),
    sigua.sigua_sl(noise_rate=0.5, delta=0.15, gamma=sigua.Knots([(0, 0.0), (10, 0.01)])),
    sigua.sigua_bc(T, over="batch"),
    sigua.stop_grad(sigua.sigua_bc(T)),
    sigua.custom(sigua.Known(), gamma=0.001),
]
loss = nn.CrossEntropyLoss(torch.ones(10), label_smoothing=0.1)
criterion = SIGUALoss(methods[0], loss, groups="class")
criterion.set_epoch(3)
logits, labels = torch.zeros(4, 10, requires_grad=True), torch.zeros(4, dtype=torch.long)
value = criterion(logits, labels, where=labels == 0, num_items_in_batch=4)
value.backward()
criterion.end_step()
if criterion.split is not None:
    good, bad = criterion.split
losses = corrected_losses(logits, labels, methods[0], loss)
chosen = select(losses, 3, methods[0], logits=logits, labels=labels)
(losses.masked_fill(chosen.silent, 0.0) * chosen.weights).mean().backward()
