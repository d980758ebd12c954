"""What users write, for the type checker: nothing here may be an error or of unknown type."""

import torch

import sigua
from sigua_torch import SIGUALoss

T = sigua.TransitionMatrix.pair(0.45, 10)
methods: list[sigua.Method] = [
    sigua.standard(),
    sigua.self_teaching(0.5, warmup=5),
    sigua.sigua_sl(noise_rate=0.5, delta=0.15, gamma=sigua.Knots([(0, 0.0), (10, 0.01)])),
    sigua.sigua_bc(T, over="batch"),
    sigua.stop_grad(sigua.sigua_bc(T)),
    sigua.custom(sigua.Known(), gamma=0.001),
]
criterion = SIGUALoss(methods[0], weight=torch.ones(10), label_smoothing=0.1)
criterion.set_epoch(3)
loss = criterion(torch.zeros(4, 10, requires_grad=True), torch.zeros(4, dtype=torch.long))
loss.backward()
if criterion.split is not None:
    good, bad = criterion.split
