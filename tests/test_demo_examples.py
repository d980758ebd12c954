"""Every example starts as its first lines say, and prints what they promise."""

import json
import os
import re
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from demo_files import EXAMPLES, read_rows, write_mnist
from programs import launch


def test_ddp_starts_under_torchrun_and_beats_what_memorising_gives():
    """Two processes; both kinds of selection get past the half of the labels that is true."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    said = launch(*torchrun, EXAMPLES / "ddp.py", "--epochs", "12")
    pattern = r"each of 2 processes ranks (.+): (\d+\.\d) % of the test digits right"
    found = dict(re.findall(pattern, said))
    assert list(found) == ["its own examples", "the examples of all"]
    assert all(float(accuracy) > 75 for accuracy in found.values())


def test_tour_goes_from_a_noisy_data_set_to_pictures_of_suspects(example, tmp_path):
    """It forgets what plain training memorises, and the worst twenty are wrong."""
    (tmp_path / "pictures").mkdir()
    said = example(EXAMPLES / "tour.py", "--out", "pictures")
    found = dict(re.findall(r"(\w+): (\d+\.\d)% of the test digits right", said))
    assert float(found["agreement"]) > max(90, float(found["plain"]) + 10)
    (noise,) = re.findall(r"labels, (\d+)% of them wrong", said)
    (dropped,) = re.findall(r"dropped in the end: (\d+)%", said)
    assert abs(int(noise) - int(dropped)) < 5
    (right,) = re.findall(r"of the worst twenty (\d+) are wrong", said)
    assert int(right) >= 18
    names = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert names == ["tour_suspects.png", "tour_training.png"]


def test_tour_is_a_notebook_whose_arguments_are_not_ours(monkeypatch):
    """Every cell has a title, and a kernel's own arguments leave it alone."""
    text = (EXAMPLES / "tour.py").read_text(encoding="utf-8")
    cells = re.findall(r"^# %%(.*)$", text, re.MULTILINE)
    assert len(cells) > 5
    assert all(title.strip() for title in cells)
    monkeypatch.setattr(sys, "argv", ["kernel", "-f", "kernel.json"])
    names = {}
    exec("#" + text.split("\n# %%")[1], names)  # the first cell, as a notebook runs it
    assert names["OUT"] == Path()


@pytest.fixture
def bench(monkeypatch):
    """The benchmark as a module that leaves this process's memory as it is."""
    monkeypatch.syspath_prepend(EXAMPLES)
    module = import_module("bench")
    monkeypatch.setattr(module, "keep_memory", lambda: None)
    monkeypatch.setattr(module.os, "environ", dict(os.environ))
    return module


def test_bench_quick_writes_what_was_measured_and_on_what(bench, monkeypatch, tmp_path):
    """One part of it: every row has a ratio to the same baseline, and what that was in 0.2."""
    files = ["--json", str(tmp_path / "rows.json"), "--markdown", str(tmp_path / "page.md")]
    quick = ["bench.py", "--quick", "--only", "step MLP, SGD", "--max-seconds", "0"]
    monkeypatch.setattr(sys, "argv", quick + files)
    monkeypatch.setattr(bench.time, "monotonic", lambda: 0.0)
    bench.main()
    result = json.loads((tmp_path / "rows.json").read_text())
    rows = {row["name"]: row for row in result["rows"]}
    assert rows.keys() >= {"cross-entropy", "SIGUA_SL", "BC dense", "SIGUA_BC symmetric"}
    assert rows["cross-entropy"]["ratio"] == 1
    published = json.loads((EXAMPLES / "results" / "bench_0.2.json").read_text())
    before = published["step MLP, SGD"]["SIGUA_SL"]
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("| SIGUA_SL |")]
    assert f"| {rows['SIGUA_SL']['ratio']:.3f} | {before:.3f} |" in line


def test_bench_compiles_every_criterion_in_one_process(bench, monkeypatch):
    """PyTorch keeps eight graphs of one piece of code; the criteria and their peers are more."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    rows = bench.loss_rows(bench.Bench(torch.device("cpu"), 0.0), 128, 10, compiled=True)
    names = {row.name for row in rows}
    assert names >= {"cross-entropy", "SIGUA_AG", "forward symmetric", "[focal]"}


def test_scale_measures_processes_and_examples(tmp_path):
    """Two processes and two sizes: a page with a row for each criterion and each job."""
    path = tmp_path / "scale.md"
    amount = ["--processes", "2", "--rounds", "3", "--examples", "500", "1000"]
    launch(EXAMPLES / "scale.py", *amount, "--markdown", path)
    page = path.read_text(encoding="utf-8")
    for row in ("SIGUA_SL, sync=True", "agreement", "`LabelHistory`", "`rank_label_issues`"):
        assert f"\n| {row}" in page
    # Each of 512 processes receives two floats of 128 examples from each of the 511 others.
    assert f"| 512 | {511 * 2 * 128 * 4 / 1e3:.1f} kB |" in page


@pytest.mark.filterwarnings("ignore:labels are hardly more probable:UserWarning")  # after an epoch
def test_rare_classes_compares_two_shares(example):
    out = example(EXAMPLES / "rare_classes.py", "--seeds", "1", "--epochs", "2")
    lines = [line for line in out.splitlines() if line.startswith(("| 0%", "| 30%"))]
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in lines]
    assert len(rows) == 2
    for row in rows:
        found = [[float(number) for number in cell.split(",")] for cell in row]
        assert len(found) == 4
        assert all(9 < balanced <= plain + 9 < 110 for plain, balanced in found)
    assert rows[0][0] == rows[0][3]  # no label is wrong: the last is the plain training again


@pytest.mark.filterwarnings("ignore:labels are hardly more probable:UserWarning")  # after an epoch
def test_suspects_compares_lists_and_what_is_gained_without_them(example, tmp_path):
    """An epoch each: a row for every case that needs no download, and tables of the same rows."""
    path = EXAMPLES / "suspects.py"
    said = example(path, "--seeds", "1", "--epochs", "1", "--json", "rows.jsonl")
    rows = read_rows(tmp_path / "rows.jsonl")
    assert {row["data"] for row in rows}.isdisjoint({"mnist", "fashion"})
    assert len(rows) > 5
    for row in rows:
        named, right, wrong, n = row["cleanlab"]
        assert 0 <= right <= min(named, wrong) <= n
        assert all(0 < accuracy <= 100 for accuracy in row["plain"])  # of all, and balanced
    again = example(path, "--table", "rows.jsonl")
    assert said[: said.rindex("|") + 1].strip() == again.strip()


def test_lost_class_trains_three_ways_and_counts_the_seeds(example, tmp_path):
    """On 64 black images each, where one class is predicted for all: nine are lost, each time."""
    black = np.zeros((64, 28, 28)), np.zeros(64)
    write_mnist(tmp_path, *black, *black)
    said = example(EXAMPLES / "lost_class.py", "--data", ".", "--seeds", "2")
    assert len(re.findall(r"a class lost with 2 seeds of 2", said)) == 3


@pytest.mark.filterwarnings("ignore:class .* was never predicted")  # so early
@pytest.mark.parametrize(
    ("name", "arguments", "lines"),
    [
        ("co_teaching.py", [], ["standard", "self-teaching", "SIGUA_SL", "co-teaching"]),
        ("estimates.py", [], ["sym-50 | the truth", "sym-50 | surest", "sym-50 | counted, 200"]),
        ("find_and_forget.py", ["--forget", "1"], ["suspects ", "test accuracy after forg", "mar"]),
    ],
)
def test_tables_have_a_row_for_each_method(example, name, arguments, lines):
    """After an epoch with a seed."""
    small = "--noise", "sym-50", "--seeds", "1", "--epochs", "1"
    said = example(EXAMPLES / name, *small, *arguments)
    assert all(f"\n| {line}" in f"\n{said}" for line in lines)
