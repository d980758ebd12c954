"""Print the versions of everything, for a bug report: `python -m sigua`.

Nothing is imported to find them, so that it works where a framework does not.
"""

from __future__ import annotations

import json
import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import sigua

PACKAGES = ["numpy", "scipy", "torch", "keras", "tensorflow", "jax", "scikit-learn"]


def versions() -> dict[str, str]:
    """Return the versions by name, in the order in which they are printed."""
    found = {
        "sigua": f"{sigua.__version__}, in {Path(sigua.__file__).parent}",
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    found |= {name: _version(name) for name in PACKAGES}
    if found["keras"] != "none":
        found["keras"] += f", backend {_keras_backend()}"
    return found


def _version(name: str) -> str:
    """Return the version of what is installed by a name; TensorFlow has two."""
    for distribution in (name, f"{name}-cpu"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    return "none"


def _keras_backend() -> str:
    """Return what Keras will take: the environment's, its file's, or its own default."""
    if backend := os.environ.get("KERAS_BACKEND"):
        return f"{backend}, by KERAS_BACKEND"
    path = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "keras.json"
    try:
        return f"{json.loads(path.read_text(encoding='utf-8'))['backend']}, by {path}"
    except FileNotFoundError:
        return "tensorflow, by default"
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"unknown: {path} cannot be read ({type(error).__name__})"


if __name__ == "__main__":
    for name, version in versions().items():
        print(f"{name:12}  {version}")
