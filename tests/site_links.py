"""Check every link of the built site: `python site_links.py SITE`.

What is inside must be there, anchors, too; what is outside must be an address. Nothing is fetched.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(sys.argv[1]).resolve()


class Page(HTMLParser):
    """What a page links to, and which places in it can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def fault(page: Path, link: str) -> str | None:
    """Return what is wrong with a link of a page, or None."""
    parts = urlsplit(link)
    if parts.scheme in ("mailto", "data"):
        return None
    if parts.scheme or parts.netloc:
        good = parts.scheme == "https" and "." in parts.netloc and " " not in link
        return None if good else "no https address"
    path = unquote(parts.path)
    target = page if not path else (SITE / path[1:] if path[0] == "/" else page.parent / path)
    target = target.resolve()
    if target.is_dir():
        target = target / "index.html"
    if not target.is_relative_to(SITE) or not target.exists():
        return "leads nowhere"
    if target.suffix == ".html" and unquote(parts.fragment) not in PAGES[target].places:
        return "has no such place"
    return None


PAGES = {path: Page(path) for path in SITE.rglob("*.html")}
FAULTS = [
    f"{path.relative_to(SITE)}: {link} {why}"
    for path, page in PAGES.items()
    if path.name != "404.html"  # whose links are from the root
    for link in page.links
    if (why := fault(path, link))
]
if FAULTS:
    sys.exit("\n".join(FAULTS))
print(f"{sum(len(page.links) for page in PAGES.values())} links on {len(PAGES)} pages")
