"""The environment says which tests run; a backend asked for that does not import is a failure.

SIGUA_BACKENDS lists the frameworks installed here ("torch" by default; empty for the core alone).
The Keras tests run where KERAS_BACKEND is set, one process per backend.
"""

import json
import os
from pathlib import Path

import pytest

NEEDS_TORCH = ["test_torch_*.py", "test_demo.py", "test_agreement.py"]

collect_ignore_glob = []
if "torch" not in os.environ.get("SIGUA_BACKENDS", "torch").split():
    collect_ignore_glob += NEEDS_TORCH
if "KERAS_BACKEND" not in os.environ:
    collect_ignore_glob += ["test_keras_*.py"]


def _golden(name):
    return json.loads((Path(__file__).parent / "golden" / name).read_text())


@pytest.fixture(scope="session")
def golden_small_loss():
    """Vectors from an independent script in exact arithmetic; losses may be "inf"."""
    return _golden("small_loss.json")


@pytest.fixture(scope="session")
def golden_backward():
    """Vectors from an independent script in float64."""
    return _golden("backward.json")
