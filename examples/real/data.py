"""Data with wrong labels as they come about: people's votes, rules, and classes that overlap.

Each set is a `Data`: standardised features, labels as given and as they should be, clean test data.
"""

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split

import sigua


class Data(NamedTuple):
    """Features (n, d) float32, labels (n,) int64; what is for testing has clean labels."""

    x: np.ndarray
    given: np.ndarray
    true: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @property
    def classes(self) -> int:
        return int(self.true.max()) + 1


Make = Callable[[int], Data]


def music(folder: Path, seed: int, majority: bool) -> Data:
    """Return 700 songs by genre, 10 of them, with one random vote each or the majority's.

    Crowd workers' votes of Rodrigues, Pereira and Ribeiro (2013), features of Marsyas on GTZAN.
    """
    gold, votes, test = (
        _rows(folder / f"music_genre_{name}.csv") for name in ("gold", "mturk", "test")
    )
    names = sorted({row[-1] for row in gold})
    places = {row[0]: i for i, row in enumerate(gold)}
    by_song = [[] for _ in gold]
    for row in votes:
        by_song[places[row[0]]].append(names.index(row[-1]))
    rng = np.random.default_rng(seed)
    if majority:
        counts = np.array([np.bincount(song, minlength=len(names)) for song in by_song])
        given = (counts + rng.random(counts.shape) / 2).argmax(axis=1)  # ties at random
    else:
        given = np.array([rng.choice(song) for song in by_song])
    (x, true), (x_test, y_test) = (
        (np.array([row[1:-1] for row in rows], float), np.array([names.index(r[-1]) for r in rows]))
        for rows in (gold, test)
    )
    return standardised(x, given, true, x_test, y_test)


def rules(seed: int, misleading: float, classes: int = 8, size: int = 1500) -> Data:
    """Return made-up texts on topics, labelled by keywords, some of which mislead.

    A text is 30 words, drawn from its topic's frequencies of 300. Each topic has a rule of three
    keywords; the rule that a text meets most often labels it, and texts that meet none are left
    out, as is usual. A share `misleading` of a rule's occurrences is in texts of the next topic.
    """
    rng = np.random.default_rng(seed)
    words, length, total = 300, 30, 6 * size
    common = rng.dirichlet(np.full(words, 0.5))
    topics = 0.82 * common + 0.18 * rng.dirichlet(np.full(words, 0.2), classes)
    keywords = np.arange(3 * classes).reshape(classes, 3)
    topics[:, keywords.ravel()] = 0.002
    for topic in range(classes):
        topics[topic, keywords[topic]] = 0.025 * (1 - misleading)
        topics[(topic + 1) % classes, keywords[topic]] = 0.025 * misleading
    topics /= topics.sum(axis=1, keepdims=True)
    true = rng.integers(0, classes, total)
    counts = np.stack([rng.multinomial(length, topics[topic]) for topic in true])
    hits = np.stack([counts[:, words].sum(axis=1) for words in keywords], axis=1)
    given = (hits + rng.random(hits.shape) / 2).argmax(axis=1)
    met = hits.max(axis=1) > 0
    x, true_met = np.sqrt(counts[met]), true[met]
    train, test = slice(0, size), slice(size, size + 2000)
    return standardised(x[train], given[met][train], true_met[train], x[test], true_met[test])


def fashion(folder: Path, seed: int, size: int = 2000) -> Data:
    """Return five classes of Fashion-MNIST that overlap, three of them mistaken for another.

    T-shirt, pullover, dress, coat, shirt; a quarter of the T-shirts are labelled shirts, of the
    pullovers coats, and of the shirts T-shirts. Pixels are averaged in fours, to 14 x 14.
    """
    rng, kept = np.random.default_rng(seed), [0, 2, 3, 4, 6]
    parts = []
    for name in ("train", "t10k"):
        x = _idx(folder / f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 14, 2, 14, 2)
        y = _idx(folder / f"{name}-labels-idx1-ubyte.gz", 8)
        mine = np.flatnonzero(np.isin(y, kept))
        mine = rng.permutation(mine)[:size] if name == "train" else mine
        small = x[mine].astype(np.float32).mean(axis=(2, 4)).reshape(len(mine), -1)
        parts += [small, np.searchsorted(kept, y[mine])]
    x, true, x_test, y_test = parts
    T = sigua.mapped_transition({0: 4, 1: 3, 4: 0}, 0.25, 5)
    return standardised(x, sigua.corrupt_labels(true, T, seed=rng), true, x_test, y_test)


def sets(music_folder: Path | None, fashion_folder: Path | None) -> dict[str, Make]:
    """Return by name what makes a set from a seed; those without a folder are left out."""
    found: dict[str, Make] = {}
    if music_folder is not None:
        found["music, one vote"] = lambda seed: music(music_folder, seed, majority=False)
        found["music, majority"] = lambda seed: music(music_folder, seed, majority=True)
    found["rules, a third"] = lambda seed: rules(seed, misleading=0.2)
    found["rules, half"] = lambda seed: rules(seed, misleading=0.36)
    if fashion_folder is not None:
        found["overlapping fashion"] = lambda seed: fashion(fashion_folder, seed)
    return found


Load = Callable[..., tuple[np.ndarray, np.ndarray]]


def corrupted(
    seed: int, load: Load, corrupt: Callable[[np.ndarray, np.ndarray, int], np.ndarray]
) -> Data:
    """Return one of scikit-learn's data sets; `corrupt` makes labels from x, labels and k."""
    x, true = load(return_X_y=True)
    x, x_test, true, y_test = train_test_split(
        x, true, test_size=0.3, random_state=seed, stratify=true
    )
    return standardised(x, corrupt(x, true, int(true.max()) + 1), true, x_test, y_test)


def digits(seed: int, noise: str) -> Data:
    """Return scikit-learn's digits with labels corrupted in one of nine ways."""

    def corrupt(x: np.ndarray, true: np.ndarray, k: int) -> np.ndarray:
        if noise == "instance-40":
            unit = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-3) / 8
            return sigua.corrupt_labels_by_instance(unit, true, 0.4, k, seed)
        T = {
            "clean": sigua.TransitionMatrix.symmetric(0.0, k),
            "sym-20": sigua.TransitionMatrix.symmetric(0.2, k),
            "sym-50": sigua.TransitionMatrix.symmetric(0.5, k),
            "sym-70": sigua.TransitionMatrix.symmetric(0.7, k),
            "pair-20": sigua.TransitionMatrix.pair(0.2, k),
            "pair-45": sigua.TransitionMatrix.pair(0.45, k),
            "asym-40": sigua.mapped_transition({2: 7, 3: 8, 5: 6, 6: 5, 7: 1}, 0.4, k),
            "random-40": sigua.random_transition(k, noise_rate=0.4, seed=seed),
        }[noise]
        return sigua.corrupt_labels(true, T, seed=seed)

    return corrupted(seed, load_digits, corrupt)


def overlapping(seed: int, noise_rate: float) -> Data:
    """Return five normal classes in 20 dimensions that overlap, with symmetric noise or none."""
    rng, k = np.random.default_rng(seed), 5
    true = rng.integers(0, k, 3200)
    x = 1.5 * np.eye(k, 20)[true] + 0.8 * rng.standard_normal((len(true), 20))
    given = sigua.corrupt_labels(true, sigua.TransitionMatrix.symmetric(noise_rate, k), seed=rng)
    return standardised(x[:1200], given[:1200], true[:1200], x[1200:], true[1200:])


NOISES = ["clean", "sym-20", "sym-50", "sym-70", "pair-20", "pair-45"]
NOISES += ["asym-40", "random-40", "instance-40"]


def made_up() -> dict[str, Make]:
    """Return by name what makes digits with each noise, and classes that overlap."""
    found: dict[str, Make] = {
        f"digits, {noise}": lambda seed, noise=noise: digits(seed, noise) for noise in NOISES
    }
    found["overlap, clean"] = lambda seed: overlapping(seed, 0.0)
    found["overlap, sym-20"] = lambda seed: overlapping(seed, 0.2)
    found["overlap, sym-40"] = lambda seed: overlapping(seed, 0.4)
    return found


def unseen(seed: int, load: Load, noise: str) -> Data:
    """Return one of scikit-learn's data sets; "by class" is 45 % of every other class, else 15 %.

    A wrong label is then the next class.
    """

    def corrupt(x: np.ndarray, true: np.ndarray, k: int) -> np.ndarray:
        T = sigua.TransitionMatrix.symmetric(0.3, k)
        if noise == "by class":
            rates = np.where(np.arange(k) % 2, 0.15, 0.45)
            T = sigua.TransitionMatrix(np.diag(1 - rates) + np.roll(np.diag(rates), 1, axis=1))
        return sigua.corrupt_labels(true, T, seed=seed)

    return corrupted(seed, load, corrupt)


UNSEEN = {"breast cancer": load_breast_cancer, "wine": load_wine, "digits": load_digits}


def not_used() -> dict[str, Make]:
    """Return by name sets that were not used to write the advice."""
    return {
        f"{name}, {noise}": lambda seed, load=load, noise=noise: unseen(seed, load, noise)
        for name, load in UNSEEN.items()
        for noise in ("sym-30", "by class")
    }


def standardised(
    x: np.ndarray, given: np.ndarray, true: np.ndarray, x_test: np.ndarray, y_test: np.ndarray
) -> Data:
    mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-3
    x, x_test = (((part - mean) / deviation).astype(np.float32) for part in (x, x_test))
    given, true, y_test = (part.astype(np.int64) for part in (given, true, y_test))
    return Data(x, given, true, x_test, y_test)


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def _idx(path: Path, head: int) -> np.ndarray:
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=head)
