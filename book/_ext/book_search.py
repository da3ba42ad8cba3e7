"""The index of the book's own search: the paragraphs of its built pages, as words and vectors.

    python book/_ext/book_search.py _build/html     # `make pages` does it

A reader's question is answered in the browser, from disk, by BM25 and by one of the retrievers of
the search page (`book/extra/search-page/book.js`). If no paragraph and no weight has changed,
nothing is written.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lxml import html as markup

FOLDER, PARTS = "search-page", ("book-texts", "book-vectors")
METHOD = "simlm"
"""The retriever of the first page."""
WORDS = 90
"""A passage ends with the paragraph in which it reaches this many words."""
BLOCKS = {"p", "li", "dd", "dt", "td", "th", "summary", "figcaption", "caption"}
HEADINGS = {"h1", "h2", "h3", "h4"}
LEFT_OUT = ("pre", "svg", "script", "style", "annotation", "nav", "button", "form", "noscript")
UNSEEN = ("headerlink", "viewcode-link", "dr-files", "dr-ask", "dr-search", "dr-grid", "dr-figure")
UNSEEN += ("dr-table", "dr-folded", "dr-card", "number")
NO_PAGES = ("_static", "_modules", "_sources", "_downloads", "genindex.html", "py-modindex.html")
NO_PAGES += ("search.html", "index.html", "slides.html")
KINDS = (
    ("notebooks/lessons/", "lesson"),
    ("notebooks/teaching/", "teaching"),
    ("notebooks/", "notebook"),
    ("ideas/", "idea"),
    ("papers/", "paper"),
    ("practice/", "practice"),
    ("teaching/", "teaching"),
    ("reference/api", "library"),
    ("reference/", "reference"),
)


class Passage(NamedTuple):
    """A few paragraphs of one section: the number of its page, heading, anchor, text."""

    page: int
    heading: str
    anchor: str
    text: str


class Page(NamedTuple):
    """A page of the book: address, title, and kind."""

    address: str
    title: str
    kind: str


def read(built: Path) -> tuple[list[Page], list[Passage]]:
    """All pages of a built book, and their passages in order."""
    pages: list[Page] = []
    passages: list[Passage] = []
    for path in sorted(built.rglob("*.html")):
        address = path.relative_to(built).as_posix()
        if {*path.relative_to(built).parts} & {*NO_PAGES}:
            continue
        article = markup.fromstring(path.read_text(encoding="utf-8")).find(".//article")
        if article is None:
            continue
        kind = next((name for start, name in KINDS if address.startswith(start)), "page")
        found = [*sections(article)]
        title = found[0][0] if found else address
        for heading, anchor, text in found:
            shown = "" if heading == title else heading
            passages += [Passage(len(pages), shown, anchor, part) for part in chunks(text)]
        pages.append(Page(address, title, kind))
    return pages, passages


def sections(article: Any) -> Iterator[tuple[str, str, list[str]]]:
    """Heading, anchor and paragraphs of each section of an article, and of each documented name."""
    for part in article.xpath(".//details[contains(@class, 'hide')]/summary"):
        part.drop_tree()  # the note that code is folded
    for tag in LEFT_OUT:
        for part in [*article.iter(tag)]:
            part.drop_tree()
    for name in UNSEEN:
        for part in article.find_class(name):
            part.drop_tree()
    heading, anchor, text = "", "", []
    for part in article.iter():
        if not isinstance(part.tag, str):
            continue
        if part.tag in HEADINGS or (part.tag == "dt" and part.get("id")):
            if heading or text:
                yield heading, anchor, text
            named = part if part.get("id") else next(part.iterancestors("section"), None)
            # the signature of a documented name is long; a term of the glossary is its own name
            documented = part.tag == "dt" and not part.get("id").startswith("term-")
            name = part.get("id") if documented else plain(part)
            heading, anchor, text = name, "" if named is None else named.get("id", ""), []
        elif part.tag in BLOCKS and not any(one.tag in BLOCKS for one in part.iterdescendants()):
            text += filter(None, [plain(part)])
    if heading or text:
        yield heading, anchor, text


def plain(part: Any) -> str:
    """The text of an element on one line."""
    return re.sub(r"\s+", " ", part.text_content()).strip()


def chunks(paragraphs: list[str]) -> Iterator[str]:
    """Paragraphs joined until they have `WORDS` words; a section without text is a passage too."""
    held: list[str] = []
    for paragraph in paragraphs:
        held.append(paragraph)
        if sum(len(part.split()) for part in held) >= WORDS:
            yield " ".join(held)
            held = []
    if held or not paragraphs:
        yield " ".join(held)


def write(built: Path) -> None:
    """Write the two parts that the search page loads, unless they exist for the same text."""
    pages, passages = read(built)
    folder, stamp = built / FOLDER, built.parent / "search.key"
    read_from = [Path(__file__), folder / f"model-{METHOD}.js"]
    whole = hashlib.sha256(json.dumps([pages, passages]).encode())
    for path in read_from:
        whole.update(path.read_bytes())
    files = [folder / f"{name}.js" for name in PARTS]
    if (
        stamp.is_file()
        and stamp.read_text() == whole.hexdigest()
        and all(path.is_file() for path in files)
    ):
        return
    from search_page import SEARCHED, encoded_parts  # imports torch, only if something changed

    columns = {
        "title": [f"{pages[one.page].title} {one.heading}" for one in passages],
        "text": [one.text for one in passages],
    }
    encoded_parts(folder, METHOD, SEARCHED, PARTS, {"pages": pages, "passages": passages}, columns)
    stamp.write_text(whole.hexdigest())


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve())
