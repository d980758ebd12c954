"""Which tests run is asked for by name; a backend asked for that does not import is a failure.

SIGUA_TESTS lists any of: core (NumPy alone), torch, demo (torch and what the examples need), keras
(Keras and torch, with KERAS_BACKEND set: one process per backend), jax (JAX, Optax, Flax, torch and
scikit-learn), trainers (torch, Keras with KERAS_BACKEND=jax, and what examples/trainers needs). By
default: core and torch.
"""

import os
import re
import runpy
import sys
from importlib import metadata
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("any machine", deadline=None)  # tests are not timed
hypothesis.settings.load_profile("any machine")
pytest.register_assert_rewrite("contract", "keras_shift", "programs")

ASKED = os.environ.get("SIGUA_TESTS", "core torch").split()
GROUPS = {
    "test_torch": "torch",
    "test_demo": "demo",
    "test_plot": "demo",
    "test_sklearn": "demo",
    "test_keras": "keras",
    "test_jax": "jax",
    "test_trainers": "trainers",
}
UNKNOWN = set(ASKED) - {"core", *GROUPS.values()}

# Nearly all the time of JAX's tests is XLA's, which compiles each step to run it once: compiled
# without optimisation it takes a fifth. Older versions end the process at a flag they do not know.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def _compile_quickly():
    try:
        version = tuple(map(int, metadata.version("jax").split(".")[:2]))
    except metadata.PackageNotFoundError:
        return  # which a test of JAX says better
    if version >= (0, 10):
        flags = [f"--{name}={str(value).lower()}" for name, value in QUICK.items()]
        os.environ["XLA_FLAGS"] = " ".join([*flags, os.environ.get("XLA_FLAGS", "")])


if "jax" in ASKED or ("keras" in ASKED and os.environ.get("KERAS_BACKEND") == "jax"):
    _compile_quickly()


def pytest_configure(config):
    if "keras" in ASKED:
        # Keras 3.15 converts its variables in a way that NumPy 2 deprecates.
        ignored = "ignore:__array__ implementation:DeprecationWarning"
        config.addinivalue_line("filterwarnings", ignored)
    if UNKNOWN:
        known = ", ".join(["core", *dict.fromkeys(GROUPS.values())])
        asked = ", ".join(sorted(UNKNOWN))
        raise pytest.UsageError(f"SIGUA_TESTS: must list any of {known}, got {asked}")


def pytest_ignore_collect(collection_path):
    if collection_path.suffix != ".py":
        return None
    prefix = "_".join(collection_path.stem.split("_")[:2])
    return True if GROUPS.get(prefix, "core") not in ASKED else None


def _group_of(block):
    """Return which group of tests can run a block of Python: by what it imports."""
    if "sigua_jax" in block:
        return "jax"
    return "keras" if "keras" in block else "demo"


@pytest.fixture(scope="session")
def documented():
    """Return the Python blocks of README and guide that a group can run, by where they are."""
    root = Path(__file__).parents[1]
    pages = [root / "README.md", *sorted((root / "examples" / "guide").glob("*.md"))]
    pages.remove(root / "examples" / "guide" / "scikit_learn.md")  # one program, run by trainers

    def blocks(group):
        found = {}
        for page in pages:
            text = page.read_text(encoding="utf-8")
            for match in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
                if _group_of(match[1]) == group:
                    line = text[: match.start()].count("\n") + 2
                    found[f"{page.relative_to(root)}:{line}"] = match[1]
        return found

    return blocks


@pytest.fixture(params=["numpy", "torch"])
def names(request, monkeypatch):
    """By which names PyTorch's step is done: NumPy's, as on the CPU, or its own."""
    if request.param == "torch":
        monkeypatch.setattr("sigua_torch._ops.is_viewable", lambda x: False)


@pytest.fixture
def example(monkeypatch, capsys, tmp_path):
    """Run an example as a user does, but in this process; return what it prints.

    It runs in an empty folder, `tmp_path`; what it ends with if it refuses is a SystemExit.
    """

    def run(path, *arguments):
        monkeypatch.syspath_prepend(path.parent)
        for file in path.parent.glob("*.py"):  # other examples have modules of the same names
            monkeypatch.delitem(sys.modules, file.stem, raising=False)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return run
