"""What is run is what was asked for: on GitHub sessions of the noxfile, groups of tests by name."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("asked", ["tourch", "core tourch", "Core"])
def test_an_unknown_group_is_refused(asked):
    """A misspelt one would be no group without failures."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", __file__]
    env = os.environ | {"SIGUA_TESTS": asked}
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=ROOT / "tests")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    groups = "core, torch, demo, keras, jax, trainers"
    assert f"SIGUA_TESTS: must list any of {groups}, got {asked.split()[-1]}" in done.stderr
