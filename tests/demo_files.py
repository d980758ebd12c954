"""Small data sets in the formats that the examples read, written for the tests."""

import gzip
import struct

import numpy as np

PARTS = "train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"


def write_idx(path, array):
    """Write bytes in the layout of MNIST's own page: 0, 0, type 8, dimensions, big-endian sizes."""
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    raw = head + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def write_mnist(folder, x, y, x_test, y_test, end=".gz"):
    """Write the four files of MNIST."""
    for name, array in zip(PARTS, (x, y, x_test, y_test), strict=True):
        write_idx(folder / f"{name}-ubyte{end}", array)
