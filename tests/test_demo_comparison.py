"""The studies of the noise floor and of real noise run by their commands, and repeat nothing."""

import json
import sys

import numpy as np
import pytest
import torch
from demo_files import EXAMPLES, read_rows, write_mnist
from sklearn.datasets import load_digits

import sigua

STUDY = EXAMPLES / "comparison" / "__main__.py"


@pytest.fixture
def study(example, tmp_path):
    """Do a task in a folder with scikit-learn's digits, padded to 28 x 28; return the rows."""
    x, y = load_digits(return_X_y=True)
    x = np.pad(15 * x.reshape(-1, 8, 8), [(0, 0), (10, 10), (10, 10)])
    write_mnist(tmp_path, x[:300], y[:300], x[1400:], y[1400:])

    def run(task, *options):
        example(STUDY, task, "--data", "mnist=.", "--out", "out", *options)
        return read_rows(tmp_path / "out/runs.jsonl")

    (tmp_path / "out").mkdir()
    (tmp_path / "out/runs.jsonl").touch()
    return run


def test_every_method_trains_and_a_second_run_has_nothing_to_do(study, tmp_path):
    """Each learns the digits from labels of which a fifth is wrong; done runs are not repeated."""
    options = "--study", "table", "--noise", "sym-20", "--seeds", "1"
    rows = study("run", *options)
    assert len(rows) == len({row["method"] for row in rows}) == 13
    for row in rows:
        assert len(row["accuracy"]) == 20
        assert max(row["accuracy"]) > 30  # a tenth by chance
    assert study("run", *options) == rows
    study("report", *options)
    assert "| sym-20 |" in (tmp_path / "out/tables.md").read_text()


def test_variants_train(study):
    names = ["agreement", "floor on CE", "floor on forward"]
    options = "--noise", "sym-20", "--seeds", "1", "--method", *names
    rows = study("run", "--study", "variants", "agreements", *options)
    assert len({row["method"] for row in rows}) == len(rows) - 2 == 2 * 3 + 13
    assert [row["settings"]["net"] for row in rows].count("cnn") == 2  # of the two that are near
    assert all(max(row["accuracy"]) > 10 for row in rows)


def test_the_choice_is_reported(study, tmp_path):
    """Of three candidates, by thirty held-out labels, for two networks; once each."""
    candidates = ["standard", "agreement", "counted agreement"]
    options = "--study", "choice", "--noise", "sym-20", "--seeds", "1", "--method", *candidates
    assert study("run", *options) == []  # which has a file of its own
    rows = read_rows(tmp_path / "out/choice.jsonl")
    assert [row["method"] for row in rows[:3]] == [f"{name}, held-out" for name in candidates]
    assert len(rows) == 2 * 3
    study("report")
    table = (tmp_path / "out/choice.md").read_text()
    unpacked = sys.modules["choice"].unpacked
    for row in rows:
        right = unpacked(row["given"]) == unpacked(row["predicted"])
        assert len(right) == 30
        assert row["held_out"][-1] == pytest.approx(100 * right.mean(), abs=0.01)
    assert "| mlp, mnist, sym-20 |" in table
    assert "| cnn, mnist, sym-20 |" in table
    study("run", *options)
    assert read_rows(tmp_path / "out/choice.jsonl") == rows


def test_a_floor_is_compared_with_an_average_or_learned(study):
    """By hand: the floor is ln 2 + ln(9) / 2 = 1.79, and a mean loss of ln 10 is above it.

    After a mini-batch of losses 0 the average is 0.9 ln 10 = 2.07, above the floor still.
    """
    study("report")
    studies, labels = sys.modules["studies"], torch.arange(10)
    noise = studies.Noise(labels.numpy(), 0.5, sigua.TransitionMatrix.symmetric(0.5, 10))
    unsure, sure = torch.zeros(10, 10), 99 * torch.eye(10)
    for variant, kept in {"": [True, False], ", averaged": [True, True]}.items():
        criterion = studies.make_criterion("floor on CE" + variant, noise, noise)
        for logits, good in zip((unsure, sure), kept, strict=True):
            criterion(logits.requires_grad_(), labels).backward()
            assert criterion.split.good.tolist() == [good] * 10
    floor = studies.HeldOut(None)
    floor.update(unsure, labels)
    assert floor(0) == pytest.approx(np.log(10))
    learned = studies.make_criterion("floor on CE, held-out", noise, noise, floor)
    learned(sure, labels)
    assert learned.split.bad.all()


def test_runs_on_more_images_have_a_table_of_their_own(study, tmp_path):
    """Their accuracies, 90 %, are in no mean with those of the other runs, 50 %."""
    rows = [
        {"study": "table", "data": "mnist", "noise": "sym-50", "method": method, "seed": 0}
        | {"told": "truth", "accuracy": [accuracy] * 20, "machine": "any", "torch": "any"}
        | {"settings": {"net": "mlp", "epochs": 20, "batch": 128, "decay": True, "images": images}}
        for images, accuracy in [(20_000, 50.0), (60_000, 90.0)]
        for method in ["standard", "forward", "floor on CE", "floor on forward"]
    ]
    (tmp_path / "out/runs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    study("report")
    _, few, more = (tmp_path / "out/tables.md").read_text().split("### mnist, mlp, ")
    many, _, others = more.partition("## Told")
    means = [("50.0" in part, "90.0" in part) for part in (few, many, others)]
    assert means == [(True, False), (False, True), (True, False)]


# Real noise.


@pytest.fixture
def real(example, tmp_path):
    def run(*options):
        fixed = "--out", "real.jsonl", "--seeds", "0"
        said = example(EXAMPLES / "real" / "__main__.py", "run", *fixed, *options)
        return said, read_rows(tmp_path / "real.jsonl")

    return run


def test_checked_labels_beat_plain_training_on_labels_from_rules(real):
    """By the epoch that they choose; what was run is not run again."""
    options = "--only", "plain", "together, forward", "--sets", "rules, half", "--epochs", "15"
    text, rows = real(*options)
    advice, *trained = rows
    assert advice["checked"] == ["plain", "together, forward"]
    assert advice["by"] == ["noisy", "checked"]
    assert [row["recipe"] for row in trained] == ["plain", "together, forward"]
    plain, together = (max(row["test"]) for row in trained)
    assert 50 < plain < together
    assert "| checked | together, forward |" in text
    assert real(*options)[1] == rows


def test_agreement_is_judged_at_the_end_on_sets_the_advice_was_not_written_on(real):
    """A row for each way to choose the epoch; one epoch, which all choose."""
    options = "--unseen", "--checked", "100", "--epochs", "1", "--sets", "wine, by class"
    text, rows = real(*options, "--only", "plain", "sigua_ag", "GCE")
    (accuracy,) = next(row["test"] for row in rows if row["recipe"] == "sigua_ag")
    for way in ("by held-out noisy labels", "by the checked", "the last"):
        assert f"| sigua_ag | {way} | {accuracy:.1f} |" in text
