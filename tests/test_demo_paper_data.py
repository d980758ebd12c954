"""The loaders of the paper's data, on tiny files in the real formats, written here."""

import codecs
import importlib
import os
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from demo_files import write_mnist
from scipy.io import savemat
from sklearn.utils import Bunch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "paper"))
data = importlib.import_module("data")

RNG = np.random.default_rng(0)


def pixels(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def mnist(folder, end=""):
    """Write the four files; return what is in them."""
    parts = pixels(6, 5, 4), np.arange(6) % 10, pixels(3, 5, 4), np.arange(3)
    write_mnist(folder, *parts, end)
    return parts


def same(found, parts):
    """Assert that a data set holds what was written, labels as int64."""
    for array, expected in zip(found[:4], parts, strict=True):
        np.testing.assert_array_equal(array, expected)
    assert found.y.dtype == found.y_test.dtype == np.int64
    assert found.x.dtype == np.uint8


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("name", ["mnist", "fashion"])
def test_idx_files_are_read_gzipped_or_not(tmp_path, name, end):
    parts = mnist(tmp_path, end)
    found = data.load(name, tmp_path)
    same(found, parts)
    assert found.classes == 10


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (slice(-1), "t10k-labels-idx1-ubyte is not a whole idx file"),
        (None, "lacks t10k-labels-idx1-ubyte; put it there"),
    ],
    ids=["cut off", "missing"],
)
def test_an_idx_file_that_is_not_whole_or_not_there_is_named(tmp_path, kept, said):
    mnist(tmp_path)
    path = tmp_path / "t10k-labels-idx1-ubyte"
    content = path.read_bytes()
    path.unlink()
    if kept is not None:
        path.write_bytes(content[kept])
    with pytest.raises(SystemExit, match=said):
        data.load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("name", "file", "classes"),
    [
        ("mnist", "mnist.npz", 10),
        ("fashion", "fashion-mnist.npz", 10),
        ("cifar10", "cifar10.npz", 10),
        ("cifar100", "cifar100.npz", 100),
    ],
)
def test_npz_files_are_read_with_the_names_that_keras_gives_its_parts(
    tmp_path, name, file, classes
):
    """Labels may be a column, as Keras has CIFAR's."""
    parts = pixels(4, 2, 2, 3), np.arange(4)[:, None], pixels(2, 2, 2, 3), np.arange(2)[:, None]
    names = "x_train", "y_train", "x_test", "y_test"
    np.savez(tmp_path / file, **dict(zip(names, parts, strict=True)))
    found = data.load(name, tmp_path)
    same(found, (parts[0], np.arange(4), parts[2], np.arange(2)))
    assert found.classes == classes


def write_batch(path, images, key, labels):
    """Pickle a batch as CIFAR's are: byte strings, rows of 3,072 with the channels first."""
    rows = images.transpose(0, 3, 1, 2).reshape(len(images), 3072)
    path.write_bytes(pickle.dumps({b"data": rows, key: list(map(int, labels))}, protocol=2))


def test_cifar_10s_python_batches_are_read_in_their_order(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    images, labels = pixels(12, 32, 32, 3), np.arange(12) % 10
    for i in range(5):
        write_batch(
            folder / f"data_batch_{i + 1}", images[2 * i :][:2], b"labels", labels[2 * i :][:2]
        )
    write_batch(folder / "test_batch", images[10:], b"labels", labels[10:])
    for where in (tmp_path, folder):  # the folder that holds the archive's, or that itself
        same(data.load("cifar10", where), (images[:10], labels[:10], images[10:], labels[10:]))


def test_cifar_100s_fine_labels_are_read(tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    images, labels = pixels(5, 32, 32, 3), np.array([99, 3, 7, 50, 0])
    write_batch(folder / "train", images[:3], b"fine_labels", labels[:3])
    write_batch(folder / "test", images[3:], b"fine_labels", labels[3:])
    found = data.load("cifar100", tmp_path)
    same(found, (images[:3], labels[:3], images[3:], labels[3:]))
    assert found.classes == 100


class Runs:
    """An object whose pickle calls a function when it is read."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_a_pickle_that_would_run_something_is_refused_and_does_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("train", "test"):
        (tmp_path / name).write_bytes(pickle.dumps({b"data": Runs(), b"fine_labels": [1]}))
    with pytest.raises(SystemExit, match="not one of CIFAR's python batches"):
        data.load("cifar100", tmp_path)
    assert not (tmp_path / "ran").exists()


def test_svhns_mat_file_is_read_with_the_images_first(tmp_path):
    images = pixels(4, 32, 32, 3)
    columns = {"X": images.transpose(1, 2, 3, 0), "y": np.full((4, 1), 10, np.uint8)}
    savemat(tmp_path / "train_32x32.mat", columns)
    np.testing.assert_array_equal(data.svhn(tmp_path), images)


def write_news(folder):
    """Write scikit-learn's cache of 20 Newsgroups and a GloVe file, in their formats, tiny."""
    names = ["alt.atheism", "comp.graphics", "comp.windows.x", "sci.space"]

    def bunch(texts, target, files):
        arrays = {"target": np.array(target), "filenames": np.array(files)}
        return Bunch(data=texts, **arrays, target_names=names, DESCR="")

    train = bunch(["The cat, the dog!", "dog unknown", ""], [3, 1, 2], ["a", "b", "c"])
    parts = {"train": train, "test": bunch(["a cat"], [0], ["d"])}
    (folder / "20news-bydate_py3.pkz").write_bytes(codecs.encode(pickle.dumps(parts), "zlib_codec"))
    text = "the 0.5 1\ncat 2 -3e-1\nbird 9 9\ndog 4 5\n"
    (folder / "glove.6B.300d.txt").write_text(text, encoding="utf-8")


def test_news_comes_as_tokens_of_glove_words_in_top_level_classes(tmp_path):
    """By hand: rows in the file's order, less the words that no text has; the text with none is 0.

    scikit-learn shuffles the texts, always in the same way; labels tell them apart.
    """
    write_news(tmp_path)
    found = data.load("news", tmp_path)
    expected = np.array([[0, 0], [0.5, 1], [2, -0.3], [4, 5]], dtype=np.float32)
    np.testing.assert_array_equal(found.vectors, expected)
    assert found.classes == 3  # alt, comp, sci
    texts = {
        tuple(row[:5].tolist()): int(label) for row, label in zip(found.x, found.y, strict=True)
    }
    assert texts == {(1, 2, 1, 3, 0): 2, (3, 0, 0, 0, 0): 1, (0, 0, 0, 0, 0): 1}
    assert not found.x[:, 5:].any()
    assert found.x_test[0, :2].tolist() == [2, 0]
    assert found.y_test.tolist() == [0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mnist", r"holds no mnist; put there the four idx files .* or mnist\.npz"),
        ("fashion", r"holds no fashion; put there the four idx files .* or fashion-mnist\.npz"),
        ("cifar10", "holds no cifar10; put there the folder cifar-10-batches-py or cifar10.npz"),
        ("cifar100", "holds no cifar100; put there the folder cifar-100-python or cifar100.npz"),
        ("news", r"must hold glove\.6B\.300d\.txt, but .* does not; put it there, from nlp"),
    ],
)
def test_an_empty_folder_is_answered_by_one_sentence_on_what_to_put_there(tmp_path, name, said):
    with pytest.raises(SystemExit, match=said) as caught:
        data.load(name, tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def keras(monkeypatch, **loaders):
    """Put a Keras in place that loads data sets by these functions."""
    sets = {name: types.SimpleNamespace(load_data=load) for name, load in loaders.items()}
    module = types.SimpleNamespace(datasets=types.SimpleNamespace(**sets))
    monkeypatch.setitem(sys.modules, "keras", module)


def test_without_a_folder_keras_is_asked_by_its_own_name_of_the_data_set(monkeypatch):
    parts = pixels(4, 2, 2), np.arange(4), pixels(2, 2, 2), np.arange(2)
    keras(monkeypatch, fashion_mnist=lambda: (parts[:2], parts[2:]))
    same(data.load("fashion", None), parts)


def test_what_keras_cannot_give_is_one_sentence(monkeypatch):
    """Because the download fails, or because there is no Keras."""
    keras(monkeypatch, mnist=lambda: (_ for _ in ()).throw(Exception("URL fetch failure")))
    with pytest.raises(SystemExit, match=r"the download failed \(URL fetch failure\); give --data"):
        data.load("mnist", None)
    monkeypatch.setitem(sys.modules, "keras", None)
    advice = "give --data DIR with the folder cifar-10-batches-py or cifar10.npz$"
    with pytest.raises(
        SystemExit, match=f"^cifar10: keras downloads it.*pip install keras, or {advice}"
    ):
        data.load("cifar10", None)
