"""The data sets, read once in each process: in a module of its own, for `__main__` is sent anew."""

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from studies import Noise, corrupt


@cache
def load(folder: Path, used: int) -> tuple[np.ndarray, ...]:
    """Return images in [0, 1], (n, 1, 28, 28), and labels: to train on, then to test on."""

    def read(name: str) -> np.ndarray:
        content = gzip.decompress((folder / f"{name}-ubyte.gz").read_bytes())
        sizes = np.frombuffer(content, ">i4", content[3], offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * len(sizes)).reshape(sizes)

    def images(name: str) -> np.ndarray:
        return read(f"{name}-images-idx3")[:, None].astype(np.float32) / 255

    def labels(name: str) -> np.ndarray:
        return read(f"{name}-labels-idx1").astype(np.int64)

    return images("train")[:used], labels("train")[:used], images("t10k"), labels("t10k")


@cache
def corrupted(folder: Path, used: int, data: str, name: str, seed: int) -> Noise:
    x, y, *_ = load(folder, used)
    return corrupt(data, x, y, name, seed)


_on_device: dict[Any, torch.Tensor] = {}


def on(device: torch.device, array: np.ndarray) -> torch.Tensor:
    """Return the array on the device; images are put there once for all who train on them."""
    if array.dtype == np.int64:
        return torch.tensor(array, device=device)
    if id(array) not in _on_device:
        _on_device[id(array)] = torch.tensor(array, device=device)
    return _on_device[id(array)]
