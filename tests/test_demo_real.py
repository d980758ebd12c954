"""The comparison on real noise runs by its one command, and repeats nothing."""

import json
from pathlib import Path

import pytest

REAL = Path(__file__).parents[1] / "examples" / "real" / "__main__.py"


@pytest.fixture
def real(example, tmp_path):
    def run(*options):
        said = example(REAL, "run", "--out", "real.jsonl", "--seeds", "0", *options)
        lines = (tmp_path / "real.jsonl").read_text().splitlines()
        return said, [json.loads(line) for line in lines]

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
