"""Lay out the site: `python docs_site.py FOLDER`, for `zensical build -f FOLDER/mkdocs.yml`.

The pages are the Markdown files where they are, at the same relative places, so that their links
hold there as they do in the repository; the API comes from the docstrings. A site's pages must lie
below its configuration, and here they are at the top of the repository: hence a copy, made afresh
each time, and no configuration of its own at the top. `site_links.py` checks what was built.
"""

import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAVIGATION = [
    {"sigua": "README.md"},
    {
        "Guide": [
            {"Contents": "examples/README.md"},
            {"Choose a method": "examples/guide/choose.md"},
            {"PyTorch": "examples/guide/pytorch.md"},
            {"Keras": "examples/guide/keras.md"},
            {"JAX": "examples/guide/jax.md"},
            {"Find wrong labels": "examples/guide/wrong_labels.md"},
            {"Trainers": "examples/guide/trainers.md"},
            {"scikit-learn": "examples/guide/scikit_learn.md"},
            {"Troubleshooting": "examples/guide/troubleshooting.md"},
            {"For researchers": "examples/guide/research.md"},
        ]
    },
    {
        "Results": [
            {"Thirteen methods, eight noises": "examples/comparison/results/README.md"},
            {"All their tables": "examples/comparison/results/tables.md"},
            {"The choice by held-out labels": "examples/comparison/results/choice.md"},
            {"Votes, rules, overlapping classes": "examples/real/README.md"},
            {"Crowd workers": "examples/results/human.md"},
            {"How many checked labels": "examples/results/checked.md"},
            {"Do intervals hold": "examples/results/coverage.md"},
            {"Estimates": "examples/results/estimates.md"},
            {"Find and forget": "examples/results/find_and_forget.md"},
            {"Suspects": "examples/results/suspects.md"},
            {"Choosing gamma and delta": "examples/results/tune.md"},
            {"Co-teaching": "examples/results/co_teaching.md"},
            {"What a step costs": "examples/results/bench.md"},
            {"What scale costs": "examples/results/scale.md"},
        ]
    },
    {
        "The paper": [
            {"Its experiments": "examples/paper/README.md"},
            {"Results": "examples/paper/results/README.md"},
            {"Figure 1": "examples/paper/results/fig1-paper.md"},
            {"The gap": "examples/paper/results/gap-cpu.md"},
            {"Robustness": "examples/paper/results/robust-cpu.md"},
            {"Small loss, MNIST": "examples/paper/results/set1-mnist-cpu.md"},
            {"The same, as released": "examples/paper/results/set1-mnist-cpu-official.md"},
            {"Correction, MNIST": "examples/paper/results/set2-mnist-cpu.md"},
        ]
    },
    {"API": [f"api/sigua{name}.md" for name in ("", "_torch", "_keras", "_jax", "_sklearn")]},
    {"Changelog": "CHANGELOG.md"},
    {"Contributing": "CONTRIBUTING.md"},
]
API = {  # what users import, by page
    "sigua": [
        "sigua",
        "sigua.objective",  # not what `sigua` shows by this name, but the module that has it
        "sigua.confidence",
        "sigua.diagnostics.EpochReport",
        "sigua.diagnostics.masks_to_count",
        "sigua.diagnostics.report",
        "sigua.losses",
        "sigua.plot",
        "sigua.reference",
    ],
    "sigua_torch": ["sigua_torch", "sigua_torch.losses", "sigua_torch.lightning"],
    "sigua_keras": ["sigua_keras"],
    "sigua_jax": ["sigua_jax"],
    "sigua_sklearn": ["sigua_sklearn"],
}
OPTIONS = {
    "docstring_style": "google",
    "filters": ["!^_"],
    "show_root_heading": True,
    "show_root_full_path": True,
    "show_submodules": False,
    "show_source": False,
    "merge_init_into_class": True,
    "members_order": "source",
    "heading_level": 1,
}


DOCTEST = re.compile(r"^( *)>>> .*\n(?:\1(?!\"\"\")\S.*\n)*", re.MULTILINE)


def configuration() -> dict:
    """Return what the builder reads; JSON is YAML."""
    handler = {"paths": ["source"], "options": OPTIONS}
    return {
        "site_name": "sigua",
        "docs_dir": "pages",
        "use_directory_urls": False,  # so that links hold in files, without a server
        "nav": NAVIGATION,
        "theme": {"name": "material", "font": False},  # fonts would come from another host
        "plugins": ["search", {"mkdocstrings": {"handlers": {"python": handler}}}],
        "markdown_extensions": ["tables", "fenced_code", "pymdownx.highlight"],
    }


def named(navigation: list | dict | str) -> set[str]:
    """Return the pages that a navigation names."""
    if isinstance(navigation, str):
        return {navigation}
    parts = navigation.values() if isinstance(navigation, dict) else navigation
    return set().union(*map(named, parts))


def copy_pages(pages: Path) -> None:
    """Copy the Markdown files and what they link to, and refuse a page that is in no menu."""
    for path in [*ROOT.glob("*.md"), *(ROOT / "examples").rglob("*")]:
        if path.suffix in (".md", ".png", ".py", ".json", ".jsonl"):
            copy = pages / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    (pages / "api").mkdir()
    for name, modules in API.items():
        text = "\n\n".join(f"::: {module}" for module in modules)
        (pages / "api" / f"{name}.md").write_text(f"{text}\n", encoding="utf-8")
    there = {path.relative_to(pages).as_posix() for path in pages.rglob("*.md")}
    assert there == named(NAVIGATION), f"not in both: {sorted(there ^ named(NAVIGATION))}"


def copy_source(source: Path) -> None:
    """Copy the packages, doctests as blocks of code: in Markdown `>>>` begins a quotation."""
    for package in [ROOT / "sigua", *(ROOT / "backends").glob("sigua_*")]:
        for path in package.rglob("*.py"):
            copy = source / package.name / path.relative_to(package)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8")
            fenced = DOCTEST.sub(lambda m: f"{m[1]}```pycon\n{m[0]}{m[1]}```\n", text)
            copy.write_text(fenced, encoding="utf-8")


def main(folder: Path) -> None:
    for part in ("pages", "source", "site"):
        shutil.rmtree(folder / part, ignore_errors=True)
    copy_pages(folder / "pages")
    copy_source(folder / "source")
    (folder / "mkdocs.yml").write_text(json.dumps(configuration(), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
