"""Programs that tests start: examples, and scripts that need a process of their own."""

import importlib.util
import os
import re
import subprocess
import sys


def launch(*command, **env):
    """Run Python with a command; return what it prints. If that fails, so does the test."""
    command = [sys.executable, *map(str, command)]
    env = os.environ | {"OMP_NUM_THREADS": "1"} | env
    done = subprocess.run(command, env=env, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def accuracies(said):
    """Return what an example says of its accuracies, by name, in percent."""
    found = re.findall(r"^(.+): (\d+\.\d)% of the test \w+ right$", said, re.MULTILINE)
    return {name: float(share) for name, share in found}


def module_of(path):
    """Return an example as a module, whose classes can be pickled."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def devices(count):
    """Return the environment in which JAX has so many devices, all of them the CPU."""
    flags = os.environ.get("XLA_FLAGS", "")
    flags += f" --xla_force_host_platform_device_count={count}"
    # Steps in flight at once can starve each other of threads where devices share few cores.
    dispatch = {"JAX_CPU_ENABLE_ASYNC_DISPATCH": "false"}
    return {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"} | dispatch
