"""`import sigua` needs NumPy and nothing else; each claim is probed in a process of its own."""

import os
import subprocess
import sys

import pytest

# Prints the top-level modules that a piece of code loads beyond NumPy, the standard library and
# sigua itself. NumPy goes first, because it brings modules of its own.
PROBE = """
import sys, numpy, numpy.linalg, numpy.random
before = set(sys.modules)
{code}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(loaded - sys.stdlib_module_names - {{"sigua", "numpy", "__mp_main__"}}))
"""
FORBIDDEN = ["torch", "keras", "tensorflow", "jax", "scipy", "matplotlib"]
ADAPTERS = ["sigua_torch", "sigua_keras"]


def outsiders(code, *paths):
    """Return what `code` loads from outside, with `paths` searched before the installed packages.

    The working directory is left out (-P): what is installed is what is tested.
    """
    search = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    command = [sys.executable, "-P", "-c", PROBE.format(code=code)]
    environment = os.environ | {"PYTHONPATH": search}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_import_sigua_loads_no_framework_and_no_adapter():
    assert outsiders("import sigua") == []


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
