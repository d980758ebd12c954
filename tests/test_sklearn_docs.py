"""The guide's blocks that need neither skorch nor Keras run; all of them do among the trainers."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[1] / "examples" / "guide" / "scikit_learn.md"


def test_the_blocks_run_and_both_find_the_wrong_labels():
    """Of the digits 40 % were made wrong."""
    text = PAGE.read_text(encoding="utf-8").partition("## skorch\n")[0]
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    left = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), left)
    wrong = left["y"] != left["true_labels"]
    for clf in (left["clf"], left["pruned"]):
        flagged = clf.label_issues_
        assert min(wrong[flagged].mean(), flagged[wrong].mean()) > 0.8
    assert np.mean(left["clf"].predict(left["x"]) == left["true_labels"]) > 0.9
