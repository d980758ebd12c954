"""What importing `sigua_keras` needs, and what it says when that is missing."""

import subprocess
import sys

import sigua_keras


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_without_keras_the_import_says_what_to_install():
    """`import sigua_keras` without Keras is an ImportError that names the extra."""
    done = run("import sys; sys.modules['keras'] = None; import sigua_keras")
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
    assert "pip install 'sigua[keras]'" in done.stderr


def test_the_package_shows_what_trains():
    """The callback and the model are public, and the two functions under them."""
    assert {"SIGUA", "SIGUAModel", "corrected_losses", "select"} <= set(sigua_keras.__all__)


def test_no_backend_is_imported_but_the_one_in_use():
    """The adapter speaks `keras.ops` only: it imports no framework and no other adapter itself."""
    code = "import ast, pathlib, sigua_keras; root = pathlib.Path(sigua_keras.__file__).parent\n"
    code += (
        "names = {(node.module or '').split('.')[0] if isinstance(node, ast.ImportFrom)"
        " else alias.name.split('.')[0]"
        " for path in root.glob('*.py') for node in ast.walk(ast.parse(path.read_text()))"
        " if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}\n"
        "print(*sorted(names - set(__import__('sys').stdlib_module_names)))"
    )
    done = run(code)
    assert done.stdout.split() == ["keras", "numpy", "sigua", "sigua_keras"], done.stderr
