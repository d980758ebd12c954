"""Every example starts as its first lines say, and prints what they promise."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def launch(*command, timeout=240):
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=env,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
    )


def test_ddp_starts_under_torchrun_and_beats_what_memorising_gives():
    """Two processes; both kinds of selection get past the half of the labels that is true."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = launch(*torchrun, EXAMPLES / "ddp.py", "--epochs", "15")
    assert done.returncode == 0, done.stderr[-3000:]
    pattern = r"each of 2 processes ranks (.+): (\d+\.\d) % of the test digits right"
    found = dict(re.findall(pattern, done.stdout))
    assert list(found) == ["its own examples", "the examples of all"]
    assert all(float(accuracy) > 75 for accuracy in found.values())


def test_ddp_without_torchrun_says_how_to_start_it():
    done = launch(EXAMPLES / "ddp.py")
    assert done.returncode == 1
    assert done.stderr.strip() == "start it with: torchrun --nproc-per-node 2 examples/ddp.py"


def test_tour_goes_from_a_noisy_data_set_to_pictures_of_suspects(tmp_path):
    """It forgets what plain training memorises, and the worst twenty are wrong."""
    done = launch("-W", "error", EXAMPLES / "tour.py", "--out", tmp_path / "pictures")
    assert done.returncode == 0, done.stderr[-3000:]
    found = dict(re.findall(r"(\w+): (\d+\.\d)% of the test digits right", done.stdout))
    assert float(found["agreement"]) > max(90, float(found["plain"]) + 10)
    (noise,) = re.findall(r"labels, (\d+)% of them wrong", done.stdout)
    (dropped,) = re.findall(r"dropped in the end: (\d+)%", done.stdout)
    assert abs(int(noise) - int(dropped)) < 5
    (right,) = re.findall(r"of the worst twenty (\d+) are wrong", done.stdout)
    assert int(right) >= 18
    pictures = sorted((tmp_path / "pictures").iterdir())
    assert [path.name for path in pictures] == ["tour_suspects.png", "tour_training.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_tour_is_a_notebook_whose_arguments_are_not_ours(tmp_path):
    """Every cell has a title, and a kernel's own arguments leave it alone."""
    text = (EXAMPLES / "tour.py").read_text(encoding="utf-8")
    cells = re.findall(r"^# %%(.*)$", text, re.MULTILINE)
    assert len(cells) > 5
    assert all(title.strip() for title in cells)
    first = text.split("\n# %%")[1]  # as a notebook runs it, without the rest
    code = f"import sys\nsys.argv = ['kernel', '-f', 'kernel.json']\n#{first}\nprint(OUT)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.stdout.splitlines()[-1] == ".", done.stderr[-3000:]


def test_bench_quick_writes_what_was_measured_and_on_what(tmp_path):
    """One part of it: every row has a ratio to the same baseline, in the same run."""
    path = tmp_path / "rows.json"
    only = ["--quick", "--only", "step MLP, SGD", "--json", path]
    done = launch(EXAMPLES / "bench.py", *only)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(path.read_text())
    assert result["machine"]["versions"].keys() >= {"python", "torch", "sigua"}
    rows = {row["name"]: row for row in result["rows"]}
    assert rows.keys() >= {"cross-entropy", "SIGUA_SL", "BC dense", "SIGUA_BC symmetric"}
    assert rows.keys() >= {"[small loss by topk and indexing]", "[Co-teaching, two networks]"}
    assert rows["cross-entropy"]["ratio"] == 1
    assert all(0 < row["low"] <= row["ratio"] <= row["high"] for row in rows.values())


@pytest.mark.skipif(which("g++") is None, reason="torch.compile needs a C++ compiler here")
def test_bench_compiles_every_criterion_in_one_process(tmp_path):
    """PyTorch keeps eight graphs of one piece of code; the criteria and their peers are more."""
    path = tmp_path / "rows.json"
    only = ["--quick", "--only", "loss 128 x 10, compiled", "--json", path]
    done = launch(EXAMPLES / "bench.py", *only)
    assert done.returncode == 0, done.stderr[-3000:]
    names = {row["name"] for row in json.loads(path.read_text())["rows"]}
    assert names >= {"cross-entropy", "SIGUA_AG", "forward symmetric", "[focal]"}


def test_scale_measures_processes_and_examples(tmp_path):
    """Two processes and two sizes: a page with a row for each criterion and each job."""
    path = tmp_path / "scale.md"
    amount = ["--processes", "2", "--rounds", "3", "--examples", "500", "1000"]
    done = launch(EXAMPLES / "scale.py", *amount, "--markdown", path)
    assert done.returncode == 0, done.stderr[-3000:]
    page = path.read_text(encoding="utf-8")
    for row in ("SIGUA_SL, sync=True", "agreement", "`LabelHistory`", "`rank_label_issues`"):
        assert f"\n| {row}" in page
    # Each of 512 processes receives two floats of 128 examples from each of the 511 others.
    assert f"| 512 | {511 * 2 * 128 * 4 / 1e3:.1f} kB |" in page


def test_suspects_compares_lists_and_what_is_gained_without_them(tmp_path):
    """An epoch each: a row for every case that needs no download, and tables of the same rows."""
    path = tmp_path / "rows.jsonl"
    done = launch(EXAMPLES / "suspects.py", "--seeds", "1", "--epochs", "1", "--json", path)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert {row["data"] for row in rows}.isdisjoint({"mnist", "fashion"})
    assert len(rows) > 5
    for row in rows:
        named, right, wrong, n = row["cleanlab"]
        assert 0 <= right <= min(named, wrong) <= n
        assert (row["said"] is None) == (row["untold"][0] == 0)
        ways = [way for way in row if way.split()[0] in ("plain", "without", "forgetting")]
        assert len(ways) == 10
        assert all(0 <= row[way] <= 100 for way in ways)
    again = launch(EXAMPLES / "suspects.py", "--table", path)
    tables = done.stdout[: done.stdout.rindex("|") + 1]
    assert tables.strip() == again.stdout.strip()


def test_lost_class_trains_three_ways_and_counts_the_seeds(tmp_path):
    """On 64 black images each, where one class is predicted for all: nine are lost, each time."""
    for kind in ("train", "t10k"):
        files = {"images-idx3": bytes(16 + 64 * 784), "labels-idx1": bytes(8 + 64)}
        for name, content in files.items():
            (tmp_path / f"{kind}-{name}-ubyte.gz").write_bytes(gzip.compress(content))
    done = launch(EXAMPLES / "lost_class.py", "--data", tmp_path, "--seeds", "2")
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(re.findall(r"a class lost with 2 seeds of 2", done.stdout)) == 3
