"""Small data sets in the formats that the examples read, and the modules of the paper's."""

import gzip
import importlib
import json
import struct
import sys
from pathlib import Path

import numpy as np

PARTS = "train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"
EXAMPLES = Path(__file__).parents[1] / "examples"


def write_idx(path, array):
    """Write bytes in the layout of MNIST's own page: 0, 0, type 8, dimensions, big-endian sizes."""
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    raw = head + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def write_mnist(folder, x, y, x_test, y_test, end=".gz"):
    """Write the four files of MNIST."""
    for name, array in zip(PARTS, (x, y, x_test, y_test), strict=True):
        write_idx(folder / f"{name}-ubyte{end}", array)


def read_rows(path):
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def of_the_paper(*names):
    """Import modules of the paper's experiments."""
    if str(EXAMPLES / "paper") not in sys.path:
        sys.path.insert(0, str(EXAMPLES / "paper"))
    return [importlib.import_module(name) for name in names]
