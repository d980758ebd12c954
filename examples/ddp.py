"""Who is good, among whom? Selection in each process, or over all of them, on real digits.

    torchrun --nproc-per-node 2 examples/ddp.py

trains a small network on scikit-learn's 1,797 digits, half of whose training labels are wrong, with
DistributedDataParallel; once each process ranks its own 8 examples, once `sync=True` makes one
mini-batch of everybody's. On CPUs, in about a minute. Needs torch, scikit-learn and sigua.
"""

import argparse
import gc
import os
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import sigua
from sigua_torch import SIGUALoss

METHOD = sigua.sigua_sl(noise_rate=0.5, delta=0.15, gamma=0.01)


def load() -> tuple[TensorDataset, TensorDataset]:
    """Return the training part, with noisy labels, and the test part, with true ones."""
    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x / 16, y, test_size=0.25, random_state=0, stratify=y)
    y = sigua.corrupt_labels(y, sigua.TransitionMatrix.symmetric(0.5, 10), seed=0)
    pairs = [(x, y), (x_test, y_test)]
    train, test = (TensorDataset(torch.tensor(a).float(), torch.tensor(b)) for a, b in pairs)
    return train, test


def train(data: TensorDataset, test: TensorDataset, criterion: SIGUALoss, args: Any) -> float:
    """Train in every process at once; return the accuracy in %, the mean of the last ten epochs.

    It is an everyday loop, with one line more and one changed.
    """
    torch.manual_seed(args.seed)
    hidden = nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
    net = DistributedDataParallel(nn.Sequential(*hidden, nn.Linear(128, 10)))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    sampler = DistributedSampler(data, seed=args.seed)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True)
    accuracies = []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        criterion.set_epoch(epoch)  # the line more
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = criterion(net(inputs), labels)
            loss.backward()
            optimizer.step()
        inputs, labels = test.tensors
        with torch.no_grad():
            right = net(inputs).argmax(dim=1) == labels
        accuracies.append(100 * right.double().mean().item())
    return fmean(accuracies[-10:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=8, help="in each process")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if "RANK" not in os.environ:
        raise SystemExit("start it with: torchrun --nproc-per-node 2 examples/ddp.py")
    dist.init_process_group("gloo")
    data, test = load()
    for name, sync in [("its own examples", None), ("the examples of all", True)]:
        criterion = SIGUALoss(METHOD, sync=sync)  # was: nn.CrossEntropyLoss()
        accuracy = train(data, test, criterion, args)
        if dist.get_rank() == 0:
            result = f"{accuracy:.1f} % of the test digits right"
            print(f"each of {dist.get_world_size()} processes ranks {name}: {result}", flush=True)
    gc.collect()  # DDP's reducers live in cycles, and abort the process if they outlive the group
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
