"""Half precision in a real training loop: autocast, gradient scaling, real digits, wrong labels."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import sigua
from sigua_torch import SIGUALoss

SYMMETRIC = sigua.TransitionMatrix.symmetric(0.5, 10)
PAIR = sigua.TransitionMatrix.pair(0.45, 10)
METHODS = {
    "sl": (sigua.sigua_sl(0.5, delta=0.15, gamma=0.01), SYMMETRIC),
    "bc": (sigua.sigua_bc(PAIR), PAIR),
    "forward": (sigua.forward_correction(PAIR), PAIR),
}
MARGIN = 1.0  # points of accuracy; seeds differ by more
SEEDS = 2


def final_accuracy(method, T, dtype, seed, epochs=30):
    """Return the test accuracy in %, the mean of the last ten epochs."""
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x / 16, y, test_size=0.25, random_state=0, stratify=y)
    y = sigua.corrupt_labels(y, T, seed=seed)
    x, x_test = (torch.tensor(pixels).float() for pixels in (x, x_test))
    y, y_test = torch.tensor(y), torch.tensor(y_test)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    half = dtype != torch.float32
    scaler = torch.amp.GradScaler("cpu", enabled=half, init_scale=2.0**12)
    criterion, accuracies = SIGUALoss(method), []
    for epoch in range(epochs):
        criterion.set_epoch(epoch)
        for batch in torch.randperm(len(x)).split(128):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype if half else torch.bfloat16, enabled=half):
                logits = net(x[batch])
                loss = criterion(logits, y[batch])
            assert logits.dtype == dtype
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        with torch.no_grad():
            accuracies.append((net(x_test).argmax(1) == y_test).double().mean().item())
    return 100 * np.mean(accuracies[-10:])


@pytest.mark.parametrize("name", METHODS)
def test_half_precision_ends_within_a_point_of_float32(name):
    """On the mean of two seeds, and float32 itself has learnt the digits."""
    means = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        runs = [final_accuracy(*METHODS[name], dtype, seed) for seed in range(SEEDS)]
        means[dtype] = np.mean(runs)
    assert means[torch.float32] > 85
    assert abs(means[torch.bfloat16] - means[torch.float32]) < MARGIN, means
    assert abs(means[torch.float16] - means[torch.float32]) < MARGIN, means
