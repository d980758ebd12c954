"""KerasTuner searches SIGUA's hyperparameters over `fit`."""

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "trainers" / "keras_search.py"


def test_example_chooses_by_wrong_labels_what_forgets_them():
    """What it prints as chosen is a method, and that beats plain training on clean digits."""
    env = {"KERAS_BACKEND": "jax"} | os.environ | {"OMP_NUM_THREADS": "1"}
    # KerasTuner names threads in an old way, and Keras's weights on JAX copy in one.
    warnings = ["-W", "error", "-W", "ignore::DeprecationWarning"]
    command = [sys.executable, *warnings, EXAMPLE]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    chosen = re.search(r"chosen: sigua_sl\(noise_rate=0.5, delta=(.+?), gamma=(.+?),", done.stdout)
    delta, gamma = map(float, chosen.groups())
    assert 0.05 <= delta <= 0.5
    assert 1e-3 <= gamma <= 1
    found = dict(re.findall(r"(\w+): (\d+\.\d)% of the test digits right", done.stdout))
    assert list(found) == ["plain", "SIGUA"]
    assert float(found["SIGUA"]) > float(found["plain"]) + 5
