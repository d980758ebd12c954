"""The demonstration keeps its promises, seen from outside: judged by what it prints and writes."""

import gzip
import json

import numpy as np
import pytest
from demo_files import EXAMPLES, write_mnist

DIGITS = EXAMPLES / "digits.py"


@pytest.fixture
def rows(example, tmp_path):
    """Run some methods on one noise with one seed; return each one's accuracies."""

    def run(noise, *options):
        example(DIGITS, "--noise", noise, "--seeds", "1", "--json", "rows.json", *options)
        found = json.loads((tmp_path / "rows.json").read_text())
        return {row["method"]: row["accuracy"] for row in found}

    return run


@pytest.fixture
def tiny(tmp_path):
    """4 x 4 images in which the pixel of the class is lit; 1 of the 20 test labels is wrong."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    rng, parts = np.random.default_rng(0), []
    for size in (300, 20):
        labels = rng.permutation(np.arange(size) % 10)
        images = np.zeros((size, 16))
        images[np.arange(size), labels] = 255
        parts += [images.reshape(size, 4, 4), labels]
    parts[3][7] = (parts[3][7] + 1) % 10
    write_mnist(folder, *parts)
    return folder


@pytest.mark.parametrize(
    ("noise", "ahead", "rivals"),
    [
        ("sym-50", {"SIGUA_SL": 8, "SIGUA_AG": 15}, []),
        ("pair-45", {"SIGUA_BC": 25}, ["BC"]),
    ],
)
def test_ours_end_so_many_points_above_standard(rows, noise, ahead, rivals):
    """SIGUA_SL, told the rate, SIGUA_AG, told nothing, and SIGUA_BC, which is above BC, too."""
    found = rows(noise, "--methods", "standard", *rivals, *ahead)
    ends = {method: np.mean(accuracy[-10:]) for method, accuracy in found.items()}
    assert all(ends[method] > ends["standard"] + points for method, points in ahead.items())
    assert all(ends[method] > ends[rival] for method in ahead for rival in rivals)


def test_every_noise_seed_and_method_has_a_row_and_a_picture(example, tmp_path):
    """With an accuracy per epoch; a blank picture of this size takes 3 kB."""
    example(DIGITS, "--epochs", "2", "--seeds", "1", "--json", "rows.json")
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert all(row.keys() == {"noise", "method", "seed", "accuracy"} for row in rows)
    assert len({(row["noise"], row["method"], row["seed"]) for row in rows}) == len(rows) == 27
    assert all(len(row["accuracy"]) == 2 for row in rows)
    raw = (tmp_path / "digits.png").read_bytes()
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(raw) > 8_000


def test_data_reads_idx_files_gzipped_or_not_and_reports_on_the_test_part(rows, tiny):
    """One wrong test label of twenty costs exactly 5 %, where the classes cannot be mistaken."""
    path = tiny / "t10k-images-idx3-ubyte.gz"
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    path.unlink()
    found = rows("sym-20", "--data", tiny, "--methods", "clean-labels", "--epochs", "40")
    assert found["clean-labels"][-10:] == [95.0] * 10


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "must hold t10k-labels-idx1-ubyte or .*gz; put the four idx files of MNIST"),
        (b"<html>404</html>", "t10k-labels-idx1-ubyte does not begin as an idx file"),
    ],
    ids=["missing", "no idx file"],
)
def test_a_file_that_cannot_be_read_is_named_in_one_sentence(example, tiny, content, said):
    (tiny / "t10k-labels-idx1-ubyte.gz").unlink()
    if content is not None:
        (tiny / "t10k-labels-idx1-ubyte").write_bytes(content)
    with pytest.raises(SystemExit, match=said) as caught:
        example(DIGITS, "--data", tiny)
    assert "\n" not in str(caught.value)
    assert str(tiny) in str(caught.value)
