"""What GitHub runs is sessions of the noxfile, and nothing else."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORKFLOW = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")


def sessions():
    """Return the names of nox's sessions, read without nox."""
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        each.name
        for each in functions
        if any("nox.session" in ast.unparse(mark) for mark in each.decorator_list)
    }


def test_every_job_is_a_session():
    named = re.findall(r"session: (\w+)|^ {10}- (\w+)", WORKFLOW, re.MULTILINE)
    named = {first or second for first, second in named}
    assert len(named) > 10
    assert named <= sessions()


def test_nothing_but_nox_is_run():
    runs = re.findall(r"run: (.*)", WORKFLOW)
    assert runs == ["python -m pip install nox", 'nox --session "${SESSION}"']


def test_a_session_for_one_python_gets_it():
    versions = re.findall(r'session: \w+-([\d.]+), python: "([\d.]+)"', WORKFLOW)
    assert versions
    assert all(asked == given for asked, given in versions)
