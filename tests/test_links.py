"""Every link of every page leads to a file that is there, and to a heading that it has."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")]


def prose(page):
    """Return a page without its blocks of code and its code in lines."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def places(page):
    """Return the anchors of a page's headings, spelt as GitHub and the site spell them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def fault(page, link):
    """Return whether a link leads nowhere."""
    if ":" in link:
        address = urlsplit(link)
        return address.scheme != "https" or "." not in address.netloc
    path, _, place = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return not target.is_file() or (place and place not in places(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    assert [link for link in links if fault(page, link)] == []


def test_the_index_leads_to_every_page_of_the_guide():
    index = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    pages = {f"guide/{page.name}" for page in (ROOT / "examples" / "guide").iterdir()}
    assert pages <= set(re.findall(r"\]\(([^)\s]+)\)", index))


@pytest.mark.parametrize(
    "link",
    ["nowhere.md", "examples", "#nowhere", "CONTRIBUTING.md#nowhere", "http://a.org", "x:"],
)
def test_a_link_that_leads_nowhere_is_found(link):
    assert fault(ROOT / "README.md", link)
