"""The loaders of the paper's data, on tiny files in the real formats, written here."""

import codecs
import os
import pickle
import sys
import types
from functools import partial

import numpy as np
import pytest
from demo_files import of_the_paper, write_mnist
from scipy.io import savemat
from sklearn.utils import Bunch

(data,) = of_the_paper("data")
RNG = np.random.default_rng(0)


def pixels(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def same(found, parts):
    """Assert that a data set holds what was written, labels as int64."""
    for array, expected in zip(found[:4], parts, strict=True):
        np.testing.assert_array_equal(array, expected)
    assert found.y.dtype == found.y_test.dtype == np.int64
    assert found.x.dtype == np.uint8


def write_npz(folder, name, x, y, x_test, y_test):
    """As Keras names the parts; labels may be a column, as it has CIFAR's."""
    parts = {"x_train": x, "y_train": y[:, None], "x_test": x_test, "y_test": y_test[:, None]}
    np.savez(folder / f"{name}.npz", **parts)


def write_batch(path, images, key, labels):
    """Pickle a batch as CIFAR's are: byte strings, rows of 3,072 with the channels first."""
    rows = images.transpose(0, 3, 1, 2).reshape(len(images), 3072)
    path.write_bytes(pickle.dumps({b"data": rows, key: list(map(int, labels))}, protocol=2))


def write_cifar10(folder, x, y, x_test, y_test):
    """Five batches, in their order."""
    for i in range(5):
        write_batch(folder / f"data_batch_{i + 1}", x[2 * i :][:2], b"labels", y[2 * i :][:2])
    write_batch(folder / "test_batch", x_test, b"labels", y_test)


def write_cifar100(folder, x, y, x_test, y_test):
    write_batch(folder / "train", x, b"fine_labels", y)
    write_batch(folder / "test", x_test, b"fine_labels", y_test)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("mnist", write_mnist),
        ("fashion", partial(write_mnist, end="")),
        ("fashion", lambda folder, *parts: write_npz(folder, "fashion-mnist", *parts)),
        ("cifar10", write_cifar10),
        ("cifar100", write_cifar100),
        ("cifar100", lambda folder, *parts: write_npz(folder, "cifar100", *parts)),
    ],
    ids=["idx.gz", "idx", "fashion.npz", "CIFAR-10", "CIFAR-100", "cifar100.npz"],
)
def test_files_are_read_in_their_own_formats(tmp_path, name, write):
    """CIFAR-10 also from the folder that holds the archive's."""
    folder = tmp_path / "cifar-10-batches-py" if name == "cifar10" else tmp_path
    folder.mkdir(exist_ok=True)
    shape = (28, 28) if name in ("mnist", "fashion") else (32, 32, 3)
    parts = pixels(10, *shape), np.arange(10), pixels(2, *shape), np.arange(2)
    if name == "cifar100":
        parts[1][0] = 99
    write(folder, *parts)
    for where in {folder, tmp_path}:
        found = data.load(name, where)
        same(found, parts)
        assert found.classes == (100 if name == "cifar100" else 10)


def test_idx_files_must_be_there_and_whole(tmp_path):
    write_mnist(tmp_path, pixels(6, 5, 4), np.arange(6), pixels(3, 5, 4), np.arange(3), "")
    path = tmp_path / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SystemExit, match="t10k-labels-idx1-ubyte is not a whole idx file"):
        data.load("mnist", tmp_path)
    path.unlink()
    with pytest.raises(SystemExit, match="lacks t10k-labels-idx1-ubyte; put it there"):
        data.load("mnist", tmp_path)


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
        ("cifar10", "holds no cifar10; put there the folder cifar-10-batches-py or cifar10.npz"),
        ("news", r"must hold glove\.6B\.300d\.txt, but .* does not; put it there, from nlp"),
    ],
)
def test_an_empty_folder_is_answered_by_one_sentence_on_what_to_put_there(tmp_path, name, said):
    with pytest.raises(SystemExit, match=said) as caught:
        data.load(name, tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_without_a_folder_keras_is_asked_and_what_it_cannot_give_is_one_sentence(monkeypatch):
    """Because the download fails, or because there is no Keras."""
    parts = pixels(4, 2, 2), np.arange(4), pixels(2, 2, 2), np.arange(2)
    fails = types.SimpleNamespace(load_data=lambda: (_ for _ in ()).throw(Exception("URL failure")))
    fashion = types.SimpleNamespace(load_data=lambda: (parts[:2], parts[2:]))
    sets = types.SimpleNamespace(fashion_mnist=fashion, mnist=fails)
    monkeypatch.setitem(sys.modules, "keras", types.SimpleNamespace(datasets=sets))
    same(data.load("fashion", None), parts)
    with pytest.raises(SystemExit, match=r"the download failed \(URL failure\); give --data"):
        data.load("mnist", None)
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(SystemExit, match=r"^cifar10: keras downloads it.*pip install keras, or"):
        data.load("cifar10", None)
