"""Check the built wheel and sdist: `python wheel_contents.py FOLDER DIRECT`.

FOLDER holds the sdist and the wheel built from it, DIRECT the wheel built from the checkout.
"""

import email
import re
import sys
import tarfile
import zipfile
from pathlib import Path

folder, direct = map(Path, sys.argv[1:])
(wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
archive = zipfile.ZipFile(wheel)
names = archive.namelist()
tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
packages = {"sigua", "sigua_torch", "sigua_keras", "sigua_jax", "sigua_sklearn"}
assert tops == packages, f"the wheel's top level is {sorted(tops)}"
for package in packages:
    assert f"{package}/py.typed" in names, f"{package} lacks py.typed"
strays = [name for name in names if not name.endswith((".py", "py.typed")) and "info/" not in name]
assert not strays, f"the wheel holds {strays}"

(other,) = direct.glob("*.whl")
same = zipfile.ZipFile(other)
assert {n: archive.read(n) for n in names} == {n: same.read(n) for n in same.namelist()}, (
    "the sdist builds another wheel than the checkout"
)

(place,) = (name for name in names if name.endswith(".dist-info/METADATA"))
about = email.message_from_bytes(archive.read(place))
needs = [need for need in about.get_all("Requires-Dist") if "extra ==" not in need]
assert [need.split(">=")[0] for need in needs] == ["numpy"], f"the wheel needs {needs}"
extras = {
    extra: {
        need.split(";")[0].split(">=")[0].strip()
        for need in about.get_all("Requires-Dist")
        if f"extra == '{extra}'" in need.replace('"', "'")
    }
    for extra in about.get_all("Provides-Extra")
}
assert extras == {
    "torch": {"torch"},
    "keras": {"keras"},
    "tensorflow": {"keras", "tensorflow"},
    "jax": {"jax"},
    "sklearn": {"torch", "scikit-learn", "rich"},
    "sparse": {"scipy"},
    "plot": {"matplotlib"},
}, f"the extras install {extras}"
for minor in (11, 12, 13):
    assert f"Programming Language :: Python :: 3.{minor}" in about.get_all("Classifier")

with tarfile.open(sdist) as tar:
    inside = {name.split("/", 1)[-1] for name in tar.getnames()}
text = about.get_payload()
links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("https://")]
assert "https://" in text
assert not links, f"the wheel's description links to {links}"
paths = re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:md|py|png|cff))(?:#[\w-]+)?`", text)
for needed in ("LICENSE", "README.md", "CHANGELOG.md", "tests/conftest.py", "noxfile.py", *paths):
    assert needed in inside, f"the sdist lacks {needed}"
print(f"{wheel.name}: {len(names)} files; {sdist.name}: {len(inside)}")
