"""What SIGUA_TESTS asks for is run, or refused: a misspelt group is no group without failures."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("asked", ["tourch", "core tourch", "Core"])
def test_an_unknown_group_is_refused(asked):
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", HERE / "test_groups.py"]
    env = os.environ | {"SIGUA_TESTS": asked}
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=HERE)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    unknown = asked.split()[-1]
    assert (
        f"SIGUA_TESTS: must list any of core, torch, demo, keras, jax, trainers, got {unknown}"
        in (done.stderr)
    )
