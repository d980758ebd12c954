"""What a run is trained and judged on: its data with its noise, on the device."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import data
import numpy as np
import torch
from settings import Run
from torch import Tensor

import sigua


class Task(NamedTuple):
    """What a run is trained and judged on, on the device.

    Attributes:
        x: float32, images (n, channels, height, width) in [0, 1]; or tokens, int64, (n, length).
        y: int64, (n,), the labels as given.
        intact: bool, (n,): whose label is right for its input.
    """

    x: Tensor
    y: Tensor
    intact: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: int
    vectors: Tensor | None


@lru_cache(maxsize=2)
def loaded(name: str, folder: Path | None, device: str) -> tuple[data.Arrays, Tensor, Tensor]:
    """Return a data set, and its inputs on the device."""
    arrays = data.load(name, folder)
    return arrays, inputs(arrays.x, device), inputs(arrays.x_test, device)


def inputs(x: np.ndarray, device: str) -> Tensor:
    """Return images as float32 in [0, 1], channels first; tokens as they are."""
    tensor = torch.tensor(x, device=device)  # a copy: what files are read into may be read-only
    if tensor.dtype != torch.uint8:
        return tensor
    tensor = tensor.unsqueeze(1) if tensor.ndim == 3 else tensor.permute(0, 3, 1, 2).contiguous()
    return tensor.float().div_(255)


def prepare(run: Run, folder: Path | None, device: str) -> Task:
    """Return the run's data with its noise, which depends on the seed alone."""
    arrays, x, x_test = loaded(run.data, folder, device)
    y = arrays.y
    if run.noise.startswith("open"):
        replaced, foreign = sigua.replace_inputs(
            arrays.x, data.svhn(folder), run.noise_rate, seed=run.seed
        )
        x, intact = inputs(replaced, device), ~foreign
    else:
        y = y if run.noise == "none" else sigua.corrupt_labels(y, run.T(arrays.classes), run.seed)
        intact = y == arrays.y
    vectors = None if arrays.vectors is None else torch.from_numpy(arrays.vectors).to(device)
    labels = (torch.from_numpy(part)[: run.limit].to(device) for part in (y, intact, arrays.y_test))
    y_given, is_intact, y_test = labels
    x, x_test = x[: run.limit], x_test[: run.limit]
    return Task(x, y_given, is_intact, x_test, y_test, arrays.classes, vectors)
