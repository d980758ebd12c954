"""Check a folder with the built wheel and sdist: `python wheel_contents.py FOLDER`."""

import sys
import tarfile
import zipfile
from pathlib import Path

folder = Path(sys.argv[1])
(wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
names = zipfile.ZipFile(wheel).namelist()
tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
packages = {"sigua", "sigua_torch", "sigua_keras", "sigua_jax"}
assert tops == packages, f"the wheel's top level is {sorted(tops)}"
for package in packages:
    assert f"{package}/py.typed" in names, f"{package} lacks py.typed"
strays = [name for name in names if not name.endswith((".py", "py.typed")) and "info/" not in name]
assert not strays, f"the wheel holds {strays}"
with tarfile.open(sdist) as tar:
    inside = {name.split("/", 1)[-1] for name in tar.getnames()}
for needed in ("LICENSE", "README.md", "CHANGELOG.md", "tests/conftest.py", "noxfile.py"):
    assert needed in inside, f"the sdist lacks {needed}"
print(f"{wheel.name}: {len(names)} files; {sdist.name}: {len(inside)}")
