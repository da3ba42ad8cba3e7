"""Sphinx extension: the tables and figures of a paper as a grid of cards on the paper's page.

    ```{table-grid} simlm
    ```

A card has the title of a notebook's page without the paper's name, the counts of its pairs, and its
leading figure in small. The notebooks and their order are those of `_toc.yml`.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from generated_pages import bar, counted_pairs
from sphinx.util.docutils import SphinxDirective
from table_pages import LEADING

from dr_book.ledger import PAIR_STATES, pair_state
from dr_book.ledger import pairs as pairs_of
from dr_book.tables import per_cent, soft, typographic

OUTLINED = "Outlined: tested on other data than the paper’s."
"""Meaning of a hollow part of a bar."""
TALL = 290
"""Height of a figure, in its own units, above which its letters, 12 units high, would be smaller
than 10.5 pixels in a card of the usual height, 256 pixels.
"""
FIGURE = re.compile(r'<div class="dr-figure">.*?</div>', re.DOTALL)


class TableGrid(SphinxDirective):
    """The directive."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Insert the cards, and make the page depend on their notebooks and claims."""
        source, paper = Path(self.env.srcdir), self.arguments[0]
        claims = source / "extra" / "claims.json"
        entries = json.loads(claims.read_text(encoding="utf-8")) if claims.is_file() else []
        pages = pages_of(yaml.safe_load((source / "_toc.yml").read_text()), f"papers/{paper}")
        for path in [claims, *(source / f"{page}.ipynb" for page in pages)]:
            if path.is_file():  # a missing file would cause the page to be read at every build
                self.env.note_dependency(str(path))
        up = "../" * self.env.docname.count("/")
        cards = [card(source, page, entries, up) for page in pages]
        outlined = any(
            pair["protocol"] == "stand-in"
            for entry in entries
            if entry["page"] in pages
            for pair in pairs_of([entry])
            if pair_state(pair) in PAIR_STATES
        )
        key = f'<p class="dr-source">{OUTLINED}</p>' * outlined
        return [nodes.raw("", f'{key}<div class="dr-grid">{"".join(cards)}</div>', format="html")]


def pages_of(contents: Any, chapter: str) -> list[str]:
    """The pages below a chapter in a table of contents, in its order."""

    def walk(part: Any) -> Iterator[Mapping[str, Any]]:
        if isinstance(part, dict):
            yield part
            for value in part.values():
                yield from walk(value)
        elif isinstance(part, list):
            for one in part:
                yield from walk(one)

    found = next((one for one in walk(contents) if one.get("file") == chapter), {})
    return [section["file"] for section in found.get("sections", [])]


def card(source: Path, page: str, entries: Sequence[Mapping[str, Any]], up: str) -> str:
    """One card: title, pairs, figure.

    Args:
        source: the staged source of the book.
        page: the notebook's page, "notebooks/simlm/table07_objectives".
        entries: claims of all papers with their verdicts.
        up: path from the page with the grid to the root of the book.
    """
    title, figure = title_and_figure(source / f"{page}.ipynb")
    size = re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', figure)
    tall = " tall" if size and float(size[1]) > TALL else ""
    name = title.split(", ", 1)[-1] or Path(page).name.replace("_", " ")
    number, _, about = typographic(per_cent(name)).partition(": ")
    own = [entry for entry in entries if entry["page"] == page]
    told = counted_pairs({"pairs": [pair for entry in own for pair in entry["pairs"]]})
    pairs = f"{bar(own)}<small>{told}</small>" if told else "<small>no pair tested</small>"
    shown = f'<span class="thumbnail" aria-hidden="true">{figure}</span>'
    return (
        f'<a class="dr-card-link{tall}" href="{up}{page}.html">{shown}'
        f"<strong>{html.escape(number[0].upper() + number[1:])}</strong>"
        f"<span>{soft(about)}</span>{pairs}</a>"
    )


def title_and_figure(notebook: Path) -> tuple[str, str]:
    """Title of a notebook, and its leading figure in the phone's version, else its first or ""."""
    if not notebook.is_file():
        return "", ""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    title = "".join(cells[0]["source"]).splitlines()[0].removeprefix("# ")
    shown = [
        "".join(output.get("data", {}).get("text/html", ""))
        for cell in cells
        for output in cell.get("outputs", [])
    ]
    for kind in (LEADING, FIGURE):
        if found := next(filter(None, map(kind.search, shown)), None):
            # the phone's version, whose letters remain readable
            *_, drawing = re.findall(r"<svg.*?</svg>", found[0], re.DOTALL)
            return title, re.sub(r' (role|aria-label)="[^"]*"', "", drawing, count=2)
    return title, ""


def setup(app: Any) -> dict[str, object]:
    """Connect it."""
    app.add_directive("table-grid", TableGrid)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
