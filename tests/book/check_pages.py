"""Checks a built book: every page of the table of contents exists and has text, nothing is loaded
from other hosts, no link is dead.

Run by `make book` and `.ci/run`: `python tests/book/check_pages.py _build/html`.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

ROOT = Path(__file__).resolve().parents[2]
FEWEST_WORDS = 40
ALWAYS = ("genindex", "search")
LOADED = {
    ("script", "src"),
    ("img", "src"),
    ("img", "srcset"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
    ("source", "srcset"),
    ("video", "src"),
    ("audio", "src"),
    ("embed", "src"),
    ("object", "data"),
    ("image", "href"),
    ("use", "href"),
    ("input", "src"),
}
NOT_LOADED_LINKS = {"canonical", "author", "next", "prev", "search", "index", "license"}
CSS_ADDRESS = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)


class Page(HTMLParser):
    """The loaded files, links, anchors, and words of the article of an HTML file."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.words = 0
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note addresses and anchors of a tag."""
        values = {name: value or "" for name, value in attrs}
        self._inside.append(tag) if tag in ("article", "script", "style") else None
        self.anchors.update(values[name] for name in ("id", "name") if values.get(name))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        skipped = tag == "link" and set(values.get("rel", "").split()) <= NOT_LOADED_LINKS
        for name, value in values.items():
            if (tag, name) in LOADED and not skipped:
                self.loads += (
                    [part.split()[0] for part in value.split(",")] if name == "srcset" else [value]
                )
            if name == "style":
                self.loads += css_addresses(value)

    def handle_endtag(self, tag: str) -> None:
        """Leave an article, script or style."""
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        """Count words of the article; look into style elements."""
        if self._inside and self._inside[-1] == "article":
            self.words += len(data.split())
        if self._inside and self._inside[-1] == "style":
            self.loads += css_addresses(data)


def css_addresses(text: str) -> list[str]:
    """Everything that a style sheet loads."""
    return [first or second for first, second in CSS_ADDRESS.findall(text)]


def expected_pages(toc: Path) -> list[str]:
    """Names of all pages in a table of contents, in its order, and those that Sphinx adds."""

    def walk(node: object) -> Iterator[str]:
        if isinstance(node, dict):
            yield from (str(node[key]) for key in ("root", "file") if key in node)
            for value in node.values():
                yield from walk(value)
        elif isinstance(node, list):
            for part in node:
                yield from walk(part)

    return [*walk(yaml.safe_load(toc.read_text(encoding="utf-8"))), *ALWAYS]


def missing_or_empty(html: Path, names: list[str], pages: dict[Path, Page]) -> Iterator[str]:
    """Expected pages that are missing, or have hardly any text."""
    for name in names:
        page = pages.get((html / f"{name}.html").resolve())
        if page is None:
            yield f"{name}: the page is missing"
        elif name not in ALWAYS and page.words < FEWEST_WORDS:
            yield f"{name}: the page is empty ({page.words} words)"


def fetched(html: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """Addresses on other hosts that a page or style sheet would load by itself."""
    for path, page in pages.items():
        yield from (
            f"{path.relative_to(html)}: loads {url}" for url in page.loads if ELSEWHERE.match(url)
        )
    for path in sorted(html.rglob("*.css")):
        for url in css_addresses(path.read_text(encoding="utf-8")):
            if ELSEWHERE.match(url):
                yield f"{path.relative_to(html)}: loads {url}"


def without_notebook(html: Path, names: list[str], pages: dict[Path, Page]) -> Iterator[str]:
    """Pages made from a notebook that do not offer it for download."""
    for name in names:
        page = pages.get((html / f"{name}.html").resolve())
        wanted = f"{'../' * name.count('/')}_sources/{name}.ipynb"
        if name.startswith("notebooks/") and page and wanted not in page.links:
            yield f"{name}: no link to its notebook"


def dead_links(html: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """Links and files inside the book that lead nowhere."""
    for path, page in pages.items():
        for url in {*page.links, *page.loads}:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc or url in ("", "#"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.exists():
                yield f"{path.relative_to(html)}: {url} leads nowhere"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{path.relative_to(html)}: {url} has no such anchor"


def faults(html: Path, toc: Path) -> list[str]:
    """Everything that is wrong with a built book, one line each."""
    html = html.resolve()
    files = [
        path
        for path in sorted(html.rglob("*.html"))
        if path.relative_to(html).parts[0] != "_static"
    ]
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in files}
    if not (html / "searchindex.js").is_file():
        return [f"{html}: no searchindex.js; the book has not been built"]
    names = expected_pages(toc)
    return [
        *missing_or_empty(html, names, pages),
        *without_notebook(html, names, pages),
        *fetched(html, pages),
        *dead_links(html, pages),
    ]


if __name__ == "__main__":
    found = faults(Path(sys.argv[1] if len(sys.argv) > 1 else "_build/html"), ROOT / "_toc.yml")
    print("\n".join(found) or "pages: all there, nothing fetched, no dead link")
    sys.exit(bool(found))
