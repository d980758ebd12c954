"""The data sets: from files at hand (`--data DIR`), or downloaded and cached by well-kept loaders.

mnist, fashion    keras.datasets; idx or idx.gz files; mnist.npz, fashion-mnist.npz
cifar10, cifar100 keras.datasets; cifar-10-batches-py/, cifar-100-python/; cifar10.npz, ...
svhn              train_32x32.mat, no download
news              sklearn.datasets.fetch_20newsgroups; word vectors as GloVe's text file
"""

import gzip
import os
import pickle
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

LENGTH = 400  # words of a text that are read; the paper gives none
WANTED = {
    "mnist": "the four idx files (train-images-idx3-ubyte, gzipped or not, ...) or mnist.npz",
    "fashion": "the four idx files (train-images-idx3-ubyte, gzipped or not, ...) or "
    "fashion-mnist.npz",
    "cifar10": "the folder cifar-10-batches-py or cifar10.npz",
    "cifar100": "the folder cifar-100-python or cifar100.npz",
}
KERAS = {"fashion": "fashion_mnist"}
NPZ = {"fashion": "fashion-mnist"}
PARTS = "x_train", "y_train", "x_test", "y_test"


class Arrays(NamedTuple):
    """A data set with right labels.

    Attributes:
        x: uint8, (n, height, width) or (n, height, width, 3); tokens, int64, (n, length).
        y: int64, (n,).
        vectors: float32, (words + 1, size), row 0 zero: the words of tokens; None for images.
    """

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
    vectors: np.ndarray | None = None


def load(name: str, folder: Path | None) -> Arrays:
    """Return a data set by name, from `folder`, or downloaded where that is None.

    Raises:
        SystemExit: one sentence on what is missing and what to put where.
    """
    if name == "news":
        return news(folder)
    parts = from_keras(name) if folder is None else from_folder(name, folder)
    x, y, x_test, y_test = map(np.asarray, parts)
    classes = 100 if name == "cifar100" else 10
    return Arrays(x, _labels(y), x_test, _labels(y_test), classes)


def _labels(y: np.ndarray) -> np.ndarray:
    return y.reshape(-1).astype(np.int64)


def from_keras(name: str) -> tuple[Any, ...]:
    """Return x, y, x_test, y_test as `keras.datasets` downloads and caches them."""
    advice = f"give --data DIR with {WANTED[name]}"
    os.environ.setdefault("KERAS_BACKEND", "torch")  # any does, and this one is here
    try:
        import keras
    except ImportError as error:
        how = "pip install keras, or " + advice
        raise SystemExit(f"{name}: keras downloads it ({error}); {how}") from None
    try:
        train, test = getattr(keras.datasets, KERAS.get(name, name)).load_data()
    except Exception as error:  # keras raises just that when a download fails
        raise SystemExit(f"{name}: the download failed ({error}); {advice}") from None
    return *train, *test


def from_folder(name: str, folder: Path) -> tuple[Any, ...]:
    """Return x, y, x_test, y_test from any of the formats that the folder may hold."""
    archive = folder / f"{NPZ.get(name, name)}.npz"
    if archive.is_file():
        with np.load(archive, allow_pickle=False) as arrays:
            return tuple(arrays[part] for part in PARTS)
    if name in ("mnist", "fashion"):
        if _idx_path(folder, "train-images-idx3") is not None:
            return tuple(
                read_idx(folder, f"{part}-{kind}")
                for part in ("train", "t10k")
                for kind in ("images-idx3", "labels-idx1")
            )
    else:
        found = _cifar(name, folder)
        if found is not None:
            return found
    raise SystemExit(f"--data: {folder} holds no {name}; put there {WANTED[name]}")


def _idx_path(folder: Path, name: str) -> Path | None:
    paths = folder / f"{name}-ubyte", folder / f"{name}-ubyte.gz"
    return next((path for path in paths if path.is_file()), None)


def read_idx(folder: Path, name: str) -> np.ndarray:
    """Return the bytes in an idx file, gzipped or not: 4 bytes, big-endian sizes, then bytes."""
    path = _idx_path(folder, name)
    if path is None:
        raise SystemExit(f"--data: {folder} lacks {name}-ubyte; put it there, gzipped or not")
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    dimensions = int(name[-1])
    shape = np.frombuffer(raw[4 : 4 + 4 * dimensions], ">u4")
    if raw[:4] != bytes([0, 0, 8, dimensions]) or len(raw) != 4 + 4 * dimensions + shape.prod():
        raise SystemExit(f"--data: {path} is not a whole idx file; download it again")
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _cifar(name: str, folder: Path) -> tuple[Any, ...] | None:
    inner = folder / ("cifar-10-batches-py" if name == "cifar10" else "cifar-100-python")
    folder = inner if inner.is_dir() else folder
    if name == "cifar10":
        train, test = [f"data_batch_{i}" for i in range(1, 6)], "test_batch"
    else:
        train, test = ["train"], "test"
    missing = [part for part in [*train, test] if not (folder / part).is_file()]
    if len(missing) == len(train) + 1:
        return None
    if missing:
        raise SystemExit(f"--data: {folder} lacks {missing[0]}; unpack the archive there again")
    batches = [read_cifar(folder / part) for part in train]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return images, labels, *read_cifar(folder / test)


class _ArraysOnly(pickle.Unpickler):
    """Reads pickled arrays and nothing that could run, whichever NumPy wrote them."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return super().find_class(module, name)
        if module.startswith("numpy") and name in ("_reconstruct", "_frombuffer"):
            module = "numpy._core." + module.rpartition(".")[2]
        elif (module, name) not in (("numpy", "ndarray"), ("numpy", "dtype")):
            raise pickle.UnpicklingError(f"{module}.{name} is no array")
        return super().find_class(module, name)


def read_cifar(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return images (n, 32, 32, 3) and labels (n,) of one of CIFAR's python batches."""
    try:
        with path.open("rb") as file:
            batch = _ArraysOnly(file, encoding="bytes").load()
        rows = np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32)
        labels = batch[b"labels"] if b"labels" in batch else batch[b"fine_labels"]
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        came = f"{path} is not one of CIFAR's python batches ({error})"
        raise SystemExit(f"--data: {came}; unpack the archive again") from None
    return rows.transpose(0, 2, 3, 1), np.asarray(labels, np.int64)


def svhn(folder: Path | None) -> np.ndarray:
    """Return SVHN's training images, uint8, (n, 32, 32, 3)."""
    path = None if folder is None else folder / "train_32x32.mat"
    if path is None or not path.is_file():
        came = "got none" if folder is None else f"but {folder} does not"
        advice = "put it there from ufldl.stanford.edu/housenumbers"
        raise SystemExit(f"--data: a folder must hold SVHN's train_32x32.mat, {came}; {advice}")
    from scipy.io import loadmat

    return np.ascontiguousarray(loadmat(path)["X"].transpose(3, 0, 1, 2))


def news(folder: Path | None) -> Arrays:
    """Return 20 Newsgroups in its 7 top-level classes, as the first words of each text."""
    paths = [] if folder is None else sorted(folder.glob("glove*300d*.txt"))
    if not paths:
        came = "got none" if folder is None else f"but {folder} does not"
        advice = "put it there, from nlp.stanford.edu/projects/glove"
        raise SystemExit(f"--data: a folder must hold glove.6B.300d.txt, {came}; {advice}")
    from sklearn.datasets import fetch_20newsgroups

    try:
        train, test = (fetch_20newsgroups(data_home=folder, subset=s) for s in ("train", "test"))
    except OSError as error:
        advice = f"put sklearn's cache into {folder}"
        raise SystemExit(f"news: the download failed ({error}); {advice}") from None
    tops = [name.split(".")[0] for name in train.target_names]
    names = sorted(set(tops))
    classes = np.array([names.index(top) for top in tops])
    texts = [[re.findall(r"[a-z0-9]+", text.lower()) for text in p.data] for p in (train, test)]
    words, vectors = read_glove(
        paths[0], {word for part in texts for text in part for word in text}
    )
    x, x_test = (_tokens(part, words) for part in texts)
    y, y_test = (classes[part.target] for part in (train, test))
    return Arrays(x, y, x_test, y_test, len(names), vectors)


def read_glove(path: Path, wanted: set[str]) -> tuple[dict[str, int], np.ndarray]:
    """Return the row of each wanted word, and the rows; row 0 is zero, for no word."""
    words: dict[str, int] = {}
    rows: list[np.ndarray] = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            word, _, numbers = line.partition(" ")
            if word in wanted and word not in words:
                rows.append(np.array(numbers.split(), dtype=np.float32))
                words[word] = len(rows)
    if not rows:
        raise SystemExit(f"--data: {path} knows none of the texts' words; is it GloVe's text file?")
    return words, np.stack([np.zeros_like(rows[0]), *rows])


def _tokens(texts: list[list[str]], words: dict[str, int]) -> np.ndarray:
    """Return the first words of each text that have a vector, padded with 0."""
    tokens = np.zeros((len(texts), LENGTH), np.int64)
    for row, text in zip(tokens, texts, strict=True):
        known = [words[word] for word in text if word in words][:LENGTH]
        row[: len(known)] = known
    return tokens
