"""The study of the noise floor runs from end to end on small files in MNIST's format."""

import gzip
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

STUDY = Path(__file__).parents[1] / "examples" / "comparison"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write scikit-learn's digits, padded to 28 x 28, as the four files of MNIST."""
    folder = tmp_path_factory.mktemp("mnist")
    x, y = load_digits(return_X_y=True)
    x = np.zeros((len(x), 28, 28), np.uint8) + np.pad(
        (x.reshape(-1, 8, 8) * 15).astype(np.uint8), [(0, 0), (10, 10), (10, 10)]
    )
    for name, part in {"train": slice(0, 300), "t10k": slice(1400, 1797)}.items():
        for kind, array in {
            "images-idx3": x[part],
            "labels-idx1": y[part].astype(np.uint8),
        }.items():
            head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))
    return folder


def study(task, folder, out, *options):
    command = [sys.executable, STUDY, task, "--data", f"mnist={folder}", "--out", out, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]


def test_every_method_trains_and_a_second_run_has_nothing_to_do(folder, tmp_path):
    """Each learns the digits from labels of which a fifth is wrong; done runs are not repeated."""
    options = "--study", "table", "--noise", "sym-20", "--seeds", "1"
    rows = study("run", folder, tmp_path, *options)
    assert len(rows) == len({row["method"] for row in rows}) == 12
    for row in rows:
        assert len(row["accuracy"]) == 20
        assert max(row["accuracy"]) > 30  # a tenth by chance
    assert study("run", folder, tmp_path, *options) == rows
    study("report", folder, tmp_path, *options)
    assert "| sym-20 |" in (tmp_path / "tables.md").read_text()


def test_runs_on_more_images_have_a_table_of_their_own(folder, tmp_path):
    """Their accuracies, 90 %, are in no mean with those of the other runs, 50 %."""
    rows = [
        {"study": "table", "data": "mnist", "noise": "sym-50", "method": method, "seed": 0}
        | {"told": "truth", "accuracy": [accuracy] * 20, "machine": "any", "torch": "any"}
        | {"settings": {"net": "mlp", "epochs": 20, "batch": 128, "decay": True, "images": images}}
        for images, accuracy in [(20_000, 50.0), (60_000, 90.0)]
        for method in ["standard", "forward", "floor on CE", "floor on forward"]
    ]
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    study("report", folder, tmp_path)
    _, few, more = (tmp_path / "tables.md").read_text().split("### mnist, mlp, ")
    many, _, others = more.partition("## Told")
    means = [("50.0" in part, "90.0" in part) for part in (few, many, others)]
    assert means == [(True, False), (False, True), (True, False)]
