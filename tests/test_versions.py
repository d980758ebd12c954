"""`python -m sigua` says what a bug report needs, whatever is installed, and imports none of it."""

import platform
import re
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from programs import launch

import sigua
from sigua.__main__ import versions

FRAMEWORKS = ["torch", "keras", "tensorflow", "jax", "scikit-learn"]


def test_every_version_has_a_line_and_no_framework_is_loaded():
    code = """
import runpy, sys
runpy.run_module("sigua", run_name="__main__")
print("loaded", {"torch", "keras", "tensorflow", "jax", "sklearn", "scipy"} & set(sys.modules))
"""
    found = dict(line.split(maxsplit=1) for line in launch("-P", "-c", code).splitlines())
    assert list(found) == ["sigua", "python", "platform", "numpy", "scipy", *FRAMEWORKS, "loaded"]
    assert found["sigua"] == f"{sigua.__version__}, in {Path(sigua.__file__).parent}"
    assert found["python"] == platform.python_version()
    assert found["numpy"] == np.__version__
    assert found["loaded"] == "set()"


@pytest.fixture
def installed(monkeypatch):
    """Let some distributions look installed, and no others."""

    def version(name):
        if name in there:
            return there[name]
        raise metadata.PackageNotFoundError(name)

    there = {}
    monkeypatch.setattr(metadata, "version", version)
    return there


def test_what_is_not_installed_is_none_and_tensorflow_has_two_names(installed):
    installed["tensorflow-cpu"] = "3.2.1"
    expected = dict.fromkeys(FRAMEWORKS, "none") | {"tensorflow": "3.2.1"}
    assert versions().items() >= expected.items()


@pytest.mark.parametrize(
    ("variable", "written", "backend"),
    [
        ("jax", '{"backend": "torch"}', "jax, by KERAS_BACKEND"),
        ("", '{"backend": "torch"}', "torch, by {}"),
        ("", None, "tensorflow, by default"),
        ("", "{", "unknown: {} cannot be read (JSONDecodeError)"),
        ("", "[]", "unknown: {} cannot be read (TypeError)"),
    ],
)
def test_the_backend_of_keras_is_the_one_it_would_take(
    installed, monkeypatch, tmp_path, variable, written, backend
):
    path = tmp_path / "keras.json"
    if written:
        path.write_text(written)
    installed["keras"] = "3.15.0"
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", variable)
    assert versions()["keras"] == f"3.15.0, backend {backend.format(path)}"


def test_the_version_is_that_of_the_citation_and_the_newest_in_the_changelog():
    root = Path(__file__).parents[1]
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == sigua.__version__
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## \[(.+?)\](.*)$", changelog, re.MULTILINE)
    assert titles[0] == ("Unreleased", "")
    assert titles[1][0] == sigua.__version__
    released = re.search(r"^date-released: (.+)$", citation, re.MULTILINE)[1]
    assert titles[1][1] == f" - {released}"
