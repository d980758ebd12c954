"""What importing `sigua_sklearn` says when something is missing."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("name", "said"), [("sklearn", "scikit-learn"), ("torch", "PyTorch")])
def test_the_import_says_what_to_install(name, said):
    code = f"import sys; sys.modules[{name!r}] = None; import sigua_sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"ModuleNotFoundError: sigua_sklearn needs {said}, which is not" in done.stderr
    assert "pip install 'sigua[sklearn]'" in done.stderr
