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
