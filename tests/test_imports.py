"""`import sigua` needs NumPy and nothing else; each claim is probed in a process of its own."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import launch

# Prints the top-level modules that a piece of code loads beyond NumPy, the standard library and
# sigua itself. NumPy goes first, because it brings modules of its own.
PROBE = """
import sys, numpy, numpy.linalg, numpy.random
before = set(sys.modules)
{code}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(loaded - sys.stdlib_module_names - {{"sigua", "numpy", "__mp_main__"}}))
"""
FORBIDDEN = ["torch", "keras", "tensorflow", "jax", "sklearn", "scipy", "matplotlib"]
FRAMEWORKS = {"torch", "keras", "tensorflow", "jax", "sklearn"}
OWN = {
    "sigua_torch": {"torch"},
    "sigua_keras": {"keras"},
    "sigua_jax": {"jax"},
    "sigua_sklearn": {"sklearn", "torch", "sigua_torch"},  # an estimator over an adapter
}
ADAPTERS = list(OWN)


def outsiders(code, *paths):
    """Return what `code` loads from outside, with `paths` searched before the installed packages.

    The working directory is left out (-P): what is installed is what is tested.
    """
    search = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    return launch("-P", "-c", PROBE.format(code=code), PYTHONPATH=search).split()


def test_using_the_core_loads_no_framework_and_no_adapter():
    code = """
import sigua, numpy
T = sigua.TransitionMatrix.pair(0.45, 3)
y = sigua.corrupt_labels(numpy.arange(9) % 3, T)
sigua.reference.step(sigua.sigua_bc(T), numpy.eye(3)[y], y)
sigua.reference.step(sigua.sigua_sl(0.5, 0.15), numpy.eye(3)[y], y)
"""
    assert outsiders(code) == []


@pytest.mark.parametrize("name", FORBIDDEN + ADAPTERS)
def test_the_probe_reports_each_module_that_must_not_be_loaded(name, tmp_path):
    """A stand-in of that name, reached through a module of the core, whether it is there or not."""
    (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "sigua.py").write_text(f"def use():\n    import {name}\nuse()\n")
    assert outsiders("import sigua", tmp_path) == [name]


def named(folder):
    """Return the top-level modules that the sources in a folder import, wherever they do."""
    trees = [ast.parse(path.read_text()) for path in folder.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    names |= {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_an_adapter_imports_its_own_framework_and_no_other_adapter(adapter):
    """Read from its sources, for which no framework has to be there."""
    names = named(Path(importlib.util.find_spec(adapter).origin).parent)
    assert {"sigua"} | OWN[adapter] <= names
    assert not names & (FRAMEWORKS | set(ADAPTERS)) - OWN[adapter] - {adapter}


def test_an_import_is_found_wherever_it_stands(tmp_path):
    """At the top, in a function, of a submodule, and in a folder below."""
    (tmp_path / "below").mkdir()
    code = "import os, torch.nn\ndef f():\n    from keras.ops import add\n"
    (tmp_path / "below" / "a.py").write_text(code)
    assert named(tmp_path) == {"os", "torch", "keras"}


@pytest.mark.parametrize(
    ("adapter", "missing", "said", "extra"),
    [
        ("sigua_torch", "torch", "PyTorch", "torch"),
        ("sigua_keras", "keras", "Keras 3", "keras"),
        ("sigua_jax", "jax", "JAX", "jax"),
        ("sigua_sklearn", "torch", "PyTorch", "sklearn"),
        ("sigua_sklearn", "sklearn", "scikit-learn", "sklearn"),
    ],
)
def test_without_its_framework_an_adapter_says_what_to_install(adapter, missing, said, extra):
    """Whether it is there or not, and PyTorch is."""
    code = "import sys, types; sys.modules['torch'] = types.ModuleType('torch')"
    code += f"; sys.modules[{missing!r}] = None; import {adapter}"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    sentence = f"ModuleNotFoundError: {adapter} needs {said}, which is not installed: pip install "
    assert f"{sentence}'sigua[{extra}]'" in done.stderr
