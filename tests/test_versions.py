"""`python -m sigua` says what a bug report needs, whatever is installed, and imports none of it."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sigua

FRAMEWORKS = ["torch", "keras", "tensorflow", "jax", "scikit-learn"]


def ask(*options, **env):
    """Return what is printed, by name."""
    command = [sys.executable, "-P", *options, "-m", "sigua"]
    env = {name: value for name, value in (os.environ | env).items() if value is not None}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


@pytest.fixture
def installed(tmp_path):
    """Return the path of a folder in which some distributions look installed, and cannot be."""

    def install(**versions):
        for name, version in versions.items():
            folder = tmp_path / f"{name}-{version}.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
            (tmp_path / f"{name}.py").write_text("raise SystemExit('was imported')")
        path = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
        return os.pathsep.join(path).strip(os.pathsep)

    return install


def test_every_version_has_a_line():
    found = ask()
    assert list(found) == ["sigua", "python", "platform", "numpy", "scipy", *FRAMEWORKS]
    assert found["sigua"] == f"{sigua.__version__}, in {Path(sigua.__file__).parent}"
    assert found["python"] == platform.python_version()
    assert found["numpy"] == np.__version__


def test_versions_are_read_and_nothing_is_imported(installed):
    path = installed(torch="9.8.7", keras="6.5.4", tensorflow="3.2.1", jax="1.0")
    found = ask(PYTHONPATH=path, KERAS_BACKEND="jax")
    assert found["torch"] == "9.8.7"
    assert found["keras"] == "6.5.4, backend jax, by KERAS_BACKEND"
    assert found["tensorflow"] == "3.2.1"
    assert found["jax"] == "1.0"


@pytest.mark.parametrize(
    ("written", "backend"),
    [
        (None, "tensorflow, by default"),
        ('{"backend": "torch"}', "torch, by {}"),
        ("{", "unknown: {} cannot be read (JSONDecodeError)"),
        ("[]", "unknown: {} cannot be read (TypeError)"),
    ],
)
def test_the_backend_of_keras_is_the_one_it_would_take(installed, tmp_path, written, backend):
    path = tmp_path / "keras.json"
    if written:
        path.write_text(written)
    env = {"PYTHONPATH": installed(keras="3.15.0"), "KERAS_BACKEND": None}
    found = ask(**env, KERAS_HOME=str(tmp_path))
    assert found["keras"] == f"3.15.0, backend {backend.format(path)}"


def test_what_is_not_installed_is_none_and_tensorflow_has_two_names():
    code = """
import runpy
from importlib import metadata

def version(name):
    if name == "tensorflow-cpu":
        return "3.2.1"
    raise metadata.PackageNotFoundError(name)

metadata.version = version
runpy.run_module("sigua", run_name="__main__")
"""
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    expected = dict.fromkeys(FRAMEWORKS, "none") | {"tensorflow": "3.2.1"}
    assert {name: found[name] for name in FRAMEWORKS} == expected


def test_the_version_is_that_of_the_citation_and_the_newest_in_the_changelog():
    root = Path(__file__).parents[1]
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == sigua.__version__
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## \[(.+?)\](.*)$", changelog, re.MULTILINE)
    assert titles[0] == ("Unreleased", "")
    assert titles[1][0] == sigua.__version__
    assert re.search(r"^date-released: (.+)$", citation, re.MULTILINE)[1] == (
        titles[1][1].removeprefix(" - ")
    )
