"""What importing `sigua_keras` needs, and what it says when that is missing."""

import subprocess
import sys


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_without_keras_the_import_says_what_to_install():
    """`import sigua_keras` without Keras is an ImportError that names the extra."""
    done = run("import sys; sys.modules['keras'] = None; import sigua_keras")
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
    assert "pip install 'sigua[keras]'" in done.stderr
