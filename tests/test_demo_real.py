"""The comparison on real noise runs by its one command, and repeats nothing."""

import json
import subprocess
import sys
from pathlib import Path

REAL = Path(__file__).parents[1] / "examples" / "real"


def real(task, out, *options):
    command = [sys.executable, REAL, task, "--out", out, "--seeds", "0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, [json.loads(line) for line in out.read_text().splitlines()]


def test_checked_labels_beat_plain_training_on_labels_from_rules(tmp_path):
    """By the epoch that they choose; what was run is not run again."""
    out = tmp_path / "real.jsonl"
    options = "--only", "plain", "together, forward", "--sets", "rules, half", "--epochs", "15"
    text, rows = real("run", out, *options)
    advice, *trained = rows
    assert advice["checked"] == "together, forward"
    assert [row["recipe"] for row in trained] == ["plain", "together, forward"]
    plain, together = (max(row["test"]) for row in trained)
    assert 50 < plain < together
    assert "| checked | together, forward |" in text
    assert real("run", out, *options)[1] == rows


def test_agreement_is_judged_at_the_end_on_sets_the_advice_was_not_written_on(tmp_path):
    """A row for each way to choose the epoch; one epoch, which all choose."""
    out = tmp_path / "unseen.jsonl"
    options = ["--unseen", "--checked", "100", "--only", "plain", "sigua_ag", "--epochs", "1"]
    text, rows = real("run", out, *options, "--sets", "wine, by class")
    (accuracy,) = next(row["test"] for row in rows if row["recipe"] == "sigua_ag")
    for way in ("by held-out noisy labels", "by the checked", "the last"):
        assert f"| sigua_ag | {way} | {accuracy:.1f} |" in text
