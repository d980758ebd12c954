"""What importing `sigua_jax` needs, what it says when that is missing, and its example."""

import os
import re
import subprocess
import sys
from pathlib import Path


def run(*command):
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True)


def test_without_jax_the_import_says_what_to_install():
    """`import sigua_jax` without JAX is an ImportError that names the extra."""
    done = run("-c", "import sys; sys.modules['jax'] = None; import sigua_jax")
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
    assert "pip install 'sigua[jax]'" in done.stderr


def test_the_example_beats_what_memorising_gives():
    """Half of the labels wrong: trained plainly it ends far below, with SIGUA at 85 % or more."""
    done = run(str(Path(__file__).parents[1] / "examples" / "jax_fit.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    found = dict(re.findall(r"(\w+): (\d+\.\d)% of the test digits right", done.stdout))
    assert float(found["SIGUA"]) > 85 > 75 > float(found["plain"])
