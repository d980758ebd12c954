"""One session, one question. `nox -l` lists them; `nox -s NAME` answers one.

Versions and dependencies are read from pyproject.toml. Tests run on the built wheel, never on the
checkout: pip builds and installs it, and `pytest` does not put the checkout on the path.
"""

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_missing_interpreters = False

PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PYPROJECT)
KERAS_BACKENDS = ["tensorflow", "jax", "torch"]
PARALLEL = ["-n", "auto", "--maxprocesses", "4", "--dist", "loadfile"]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}  # tensors here are small


def install(session: nox.Session, *groups: str) -> None:
    """Install what the groups pin, then the package as a wheel."""
    session.install(*nox.project.dependency_groups(PYPROJECT, *groups))
    session.install(".")


def run_tests(session: nox.Session, asked: str, *options: str, **env: str) -> None:
    """Run the groups of tests that are asked for (see tests/conftest.py), a file per process."""
    env = ONE_THREAD | {"SIGUA_TESTS": asked, **env}
    session.run("pytest", "tests", *PARALLEL, *options, *session.posargs, env=env)


def keras_runs() -> dict[str, dict[str, str]]:
    """Return the runs of Keras's tests, one process per backend, for `run_all`."""
    return {f"keras on {backend}": {"KERAS_BACKEND": backend} for backend in KERAS_BACKENDS}


def run_all(session: nox.Session, runs: dict[str, dict[str, str]], *options: str) -> None:
    """Run all groups, each with its environment, and fail at the end where one has failed."""
    failed = []
    for groups, env in runs.items():
        try:
            run_tests(session, groups.split(" on ")[0], *options, **env)
        except nox.command.CommandFailed:
            failed.append(groups)
    if failed:
        session.error(f"tests failed: {', '.join(failed)}")


@nox.session
def demo(session: nox.Session) -> None:
    """Does a classifier survive half of its labels being wrong? A table and a picture."""
    install(session, "torch", "demo")
    session.run("python", "examples/digits.py", *session.posargs)


@nox.session
def estimates(session: nox.Session) -> None:
    """How far off are the estimates of the noise rate and of T, and what do they cost?"""
    install(session, "torch", "demo")
    session.run("python", "examples/estimates.py", *session.posargs, env=ONE_THREAD)


@nox.session
def bench(session: nox.Session) -> None:
    """What does a step cost, as a ratio to plain cross-entropy?"""
    install(session, "torch", "keras", "demo")
    session.run("python", "examples/bench.py", *session.posargs, env=ONE_THREAD)


@nox.session
def tests(session: nox.Session) -> None:
    """Does everything that this machine can run work? Core, PyTorch, JAX, Keras on its backends."""
    install(session, "test", "torch", "keras", "jax", "examples")
    run_all(session, {"core torch demo jax": {}} | keras_runs())


@nox.session(python=PYTHONS)
def core(session: nox.Session) -> None:
    """Does the core work with NumPy alone, on every Python that is found?"""
    install(session, "test")
    run_tests(session, "core")


@nox.session
def torch(session: nox.Session) -> None:
    """Does the PyTorch criterion equal the spec?"""
    install(session, "test", "torch")
    run_tests(session, "torch")


@nox.session
@nox.parametrize("backend", KERAS_BACKENDS)
def keras(session: nox.Session, backend: str) -> None:
    """Does the Keras callback equal the spec, and PyTorch's criterion?"""
    install(session, "test", "torch", "keras", "demo")
    run_tests(session, "keras", KERAS_BACKEND=backend)


@nox.session
def jax(session: nox.Session) -> None:
    """Do the pure functions for JAX equal the spec, and PyTorch's criterion?"""
    install(session, "test", "torch", "jax", "demo")
    run_tests(session, "jax")


@nox.session
def trainers(session: nox.Session) -> None:
    """Does it train in Lightning, Hugging Face's Trainer, Accelerate, skorch and SciKeras?"""
    install(session, "test", "torch", "trainers")
    run_tests(session, "trainers", KERAS_BACKEND="jax")


@nox.session(python=PYTHONS)
def editable(session: nox.Session) -> None:
    """Does `pip install -e .` work, on every Python that is found?"""
    session.install(*nox.project.dependency_groups(PYPROJECT, "test"))
    session.install("-e", ".")
    run_tests(session, "core")


@nox.session
def minimums(session: nox.Session) -> None:
    """Do the lowest versions work that pyproject.toml names? NumPy alone, then the frameworks.

    All but PyTorch, whose old versions are gigabytes on Linux: see `oldest_torch`.
    """
    session.install(*nox.project.dependency_groups(PYPROJECT, "test"), ".", *lowest("numpy"))
    run_tests(session, "core")
    extras = PYPROJECT["project"]["optional-dependencies"]
    named = {name for extra in extras.values() for name in extra if not name.startswith("torch")}
    pinned = nox.project.dependency_groups(PYPROJECT, "test", "torch")
    others = ["optax", "flax"]  # as old as they must be for that JAX
    session.install(*pinned, *others, *lowest("numpy", *sorted(named)))
    # Old packages make use of what the newest of their own requirements deprecate.
    tolerant = "-Wignore::DeprecationWarning"
    options = [tolerant, *main_files("torch", "jax", "keras")]
    run_all(session, {"torch jax": {}} | keras_runs(), *options)


@nox.session
def oldest_torch(session: nox.Session) -> None:
    """Does the oldest PyTorch work that pyproject.toml names? On Linux it is 5 GB of CUDA.

    But for compilation in one graph, which it breaks in two for some methods.
    """
    (torch,) = lowest(*PYPROJECT["project"]["optional-dependencies"]["torch"])
    test = nox.project.dependency_groups(PYPROJECT, "test")
    session.install(*test, ".", torch, *lowest("numpy", "scipy"))
    run_tests(session, "torch", "-k", "not TestCompiled", *main_files("torch"))


def main_files(*groups: str) -> list[str]:
    """Return the options by which only the files run that compare a backend with the spec."""
    names = ["contract", "loss", "losses", "state", "distributed", "objective", "fit"]
    kept = {f"test_{group}_{name}.py" for group in groups for name in names}
    return [f"--ignore={path}" for path in Path("tests").glob("test_*.py") if path.name not in kept]


def lowest(*requirements: str) -> list[str]:
    """Return requirements at their lowest version; of a bare name, as the package names it."""
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    known = PYPROJECT["project"]["dependencies"] + [each for extra in extras for each in extra]
    named = {each.split(">=")[0]: each for each in known}
    return [named.get(each, each).replace(">=", "==") for each in requirements]


@nox.session
def docs(session: nox.Session) -> None:
    """Do the guide, results and API make a site whose links all hold? docs/site/index.html."""
    session.install(*nox.project.dependency_groups(PYPROJECT, "docs"))
    session.run("python", "tests/docs_site.py", "docs")
    session.run("zensical", "build", "--strict", "--clean", "-f", "docs/mkdocs.yml")
    session.run("python", "tests/site_links.py", "docs/site")


@nox.session
def lint(session: nox.Session) -> None:
    """Is the code tidy, and are the workflows what GitHub takes?"""
    session.install(*nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    workflows = [str(path) for path in Path(".github/workflows").iterdir()]
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    session.run("zizmor", "--offline", "--quiet", *workflows)


@nox.session
def types(session: nox.Session) -> None:
    """Do the types hold, inside (mypy, strict) and for a user's code (pyright)?"""
    install(session, "types", "torch", "jax", "demo")
    session.run("mypy")
    session.run("pyright", "--pythonpath", f"{session.bin}/python", "tests/user_code.py")


@nox.session
def wheel(session: nox.Session) -> None:
    """Does the wheel hold what it should, and run where nothing else is installed?"""
    groups = nox.project.dependency_groups(PYPROJECT, "torch", "keras", "jax", "test", "demo")
    session.install("build", "twine", *groups)
    out = Path(session.create_tmp())
    direct = out / "direct"  # while the other comes from the sdist
    session.run("python", "-m", "build", "--outdir", str(out), silent=True)
    session.run("python", "-m", "build", "--wheel", "--outdir", str(direct), silent=True)
    session.run("python", "tests/wheel_contents.py", str(out), str(direct))
    session.run("twine", "check", "--strict", *map(str, out.glob("sigua-*")))
    session.install("--force-reinstall", "--no-deps", *map(str, out.glob("*.whl")))
    lightning = Path(session.virtualenv.location).resolve() / "*/sigua_torch/lightning.py"
    session.cd(out)  # away from the checkout
    packages = ["sigua", "sigua_torch", "sigua_keras", "sigua_jax", "sigua_sklearn"]
    doctests = ["--doctest-modules", f"--ignore-glob={lightning}"]  # which is not installed here
    session.run("pytest", "-q", *doctests, "--pyargs", *packages, env=ONE_THREAD)


@nox.session
def sdist(session: nox.Session) -> None:
    """Do the tests pass from the sdist, as whoever packages it would run them?"""
    groups = nox.project.dependency_groups(PYPROJECT, "test", "torch")
    session.install("build", *groups)
    out = Path(session.create_tmp())
    shutil.rmtree(out)
    session.run("python", "-m", "build", "--sdist", "--outdir", str(out), silent=True)
    (archive,) = out.glob("*.tar.gz")
    shutil.unpack_archive(archive, out, filter="data")
    session.cd(out / archive.name.removesuffix(".tar.gz"))
    session.install(".")
    run_tests(session, "core torch")


@nox.session
def real(session: nox.Session) -> None:
    """What helps against votes, rules and overlapping classes? `nox -s real -- run --music DIR`."""
    install(session, "torch", "examples")
    session.run("python", "examples/real", *(session.posargs or ["run"]), env=ONE_THREAD)
