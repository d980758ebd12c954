"""The example keeps its promises, seen from outside: run as a user runs it, judged by its files."""

import gzip
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "digits.py"


@pytest.fixture
def demo(tmp_path):
    """Run the example in an empty folder; return the finished process."""

    def run(*arguments):
        command = [sys.executable, "-W", "error", EXAMPLE, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", timeout=300
        )

    return run


@pytest.fixture
def last_ten(demo, tmp_path):
    """Run some methods on one noise with two seeds; return each one's accuracies at the end."""

    def run(noise, *methods):
        done = demo("--noise", noise, "--seeds", "2", "--json", "rows.json", "--methods", *methods)
        assert done.returncode == 0, done.stderr
        ends = {method: [] for method in methods}
        for row in json.loads((tmp_path / "rows.json").read_text()):
            ends[row["method"]].append(np.mean(row["accuracy"][-10:]))
        return {method: np.array(values) for method, values in ends.items()}

    return run


def write_idx(path, array):
    """Write bytes in the layout of MNIST's own page: 0, 0, type 8, dimensions, big-endian sizes."""
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    raw = head + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


@pytest.fixture
def tiny(tmp_path):
    """4 x 4 images in which the pixel of the class is lit; 1 of the 20 test labels is wrong."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for part, size, end in [("train", 300, ".gz"), ("t10k", 20, "")]:
        labels = rng.permutation(np.arange(size) % 10)
        images = np.zeros((size, 16))
        images[np.arange(size), labels] = 255
        if part == "t10k":
            labels[7] = (labels[7] + 1) % 10
        write_idx(folder / f"{part}-images-idx3-ubyte{end}", images.reshape(size, 4, 4))
        write_idx(folder / f"{part}-labels-idx1-ubyte{end}", labels)
    return folder


def test_half_of_the_labels_wrong_and_sigua_sl_ends_eight_points_above_standard(last_ten):
    ends = last_ten("sym-50", "standard", "SIGUA_SL")
    assert ends["standard"].shape == (2,)
    assert (ends["SIGUA_SL"] >= ends["standard"] + 8).all()


def test_told_nothing_sigua_ag_ends_fifteen_points_above_standard(last_ten):
    accuracy = last_ten("sym-50", "standard", "SIGUA_AG")
    assert (accuracy["SIGUA_AG"] > accuracy["standard"] + 15).all()


def test_under_pair_noise_sigua_bc_ends_25_points_above_standard_and_above_bc(last_ten):
    ends = last_ten("pair-45", "standard", "BC", "SIGUA_BC")
    assert ends["standard"].shape == (2,)
    assert (ends["SIGUA_BC"] >= ends["standard"] + 25).all()
    assert (ends["SIGUA_BC"] > ends["BC"]).all()


def test_json_has_a_row_for_every_noise_seed_and_method_with_an_accuracy_per_epoch(demo, tmp_path):
    done = demo("--epochs", "2", "--seeds", "1", "--json", "rows.json")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert all(row.keys() == {"noise", "method", "seed", "accuracy"} for row in rows)
    assert len({(row["noise"], row["method"], row["seed"]) for row in rows}) == len(rows) == 27
    assert {row["noise"] for row in rows} == {"sym-50", "pair-45", "sym-20"}
    assert all(len(row["accuracy"]) == 2 for row in rows)
    assert all(0 <= value <= 100 for row in rows for value in row["accuracy"])


def test_picture_is_a_png_large_enough_to_read(demo, tmp_path):
    done = demo("--epochs", "1", "--seeds", "1", "--methods", "standard", "--noise", "sym-20")
    assert done.returncode == 0, done.stderr
    raw = (tmp_path / "digits.png").read_bytes()
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", raw[16:24])
    assert 500 <= width <= 3000
    assert 400 <= height <= 1500
    assert len(raw) > 8_000  # a blank picture of this size takes 3 kB


def test_data_reads_idx_files_gzipped_or_not_and_reports_on_the_test_part(demo, tiny, tmp_path):
    """One wrong test label of twenty costs exactly 5 %, where the classes cannot be mistaken."""
    run = ["--noise", "sym-20", "--methods", "clean-labels", "--seeds", "1", "--epochs", "40"]
    done = demo("--data", tiny, "--json", "rows.json", *run)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["accuracy"][-10:] == [95.0] * 10


def test_missing_data_file_is_named_in_one_sentence_that_says_what_to_put_where(demo, tiny):
    (tiny / "t10k-labels-idx1-ubyte").unlink()
    done = demo("--data", tiny)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "t10k-labels-idx1-ubyte.gz" in done.stderr
    assert str(tiny) in done.stderr
    assert "put the four idx files of MNIST" in done.stderr


def test_file_that_is_no_idx_file_is_named_in_one_sentence(demo, tiny):
    (tiny / "t10k-labels-idx1-ubyte").write_text("<html>404</html>")
    done = demo("--data", tiny)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "t10k-labels-idx1-ubyte does not begin as an idx file" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--json", "nowhere/rows.json"], "must be a file in a folder that exists"),
        (["--png", "."], "must be a file in a folder that exists"),
        (["--epochs", "0"], "invalid positive_integer value: '0'"),
        (["--methods", "magic"], "invalid choice: 'magic'"),
    ],
)
def test_argument_that_cannot_be_used_is_refused_before_the_training(demo, arguments, said):
    done = demo(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
