"""Print the versions of everything, for a bug report: `python -m sigua`.

Nothing is imported to find them, so that it works where a framework does not.
"""

from __future__ import annotations

import json
import os
import platform
from importlib import metadata
from pathlib import Path

import sigua

PACKAGES = {  # by what users call them: the distributions that may bring them
    "numpy": ["numpy"],
    "scipy": ["scipy"],
    "torch": ["torch"],
    "keras": ["keras"],
    "tensorflow": ["tensorflow", "tensorflow-cpu"],
    "jax": ["jax"],
    "scikit-learn": ["scikit-learn"],
}


def versions() -> dict[str, str]:
    """Return the versions by name, in the order in which they are printed."""
    found = {
        "sigua": f"{sigua.__version__}, in {Path(sigua.__file__).parent}",
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    found |= {name: _version(*names) for name, names in PACKAGES.items()}
    if found["keras"] != "none":
        found["keras"] += f", backend {_keras_backend()}"
    return found


def _version(*distributions: str) -> str:
    """Return the version of the first distribution that is installed."""
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
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


def main() -> None:
    """Print a line for each."""
    found = versions()
    width = max(map(len, found))
    for name, version in found.items():
        print(f"{name:{width}}  {version}")


if __name__ == "__main__":
    main()
