"""Shared by the interactive drawings: their placeholder on a page, and their data as a script,
which a page opened from disk may load.
"""

import html
import json
from pathlib import Path
from typing import Any

from explorers import FOLDER
from IPython.display import HTML

from dr_lib.files import write_text

STYLES = ("masks-explorer/explorer", "explorers/explorers", "explorers/pieces")
SCRIPTS = ("controls", "pieces")
WRITTEN = ("price.inc", "rankings.inc", "supplied.inc")
"""Files that pages include."""


def place(name: str, up: str = "..", *scripts: str) -> HTML:
    """The placeholder of a piece, which its script fills.

    Args:
        name: of the piece: its script is `<name>.js`, its data `<name>-data.js`.
        up: path from the page to the root of the book.
        scripts: further scripts that it needs, in `extra/explorers`.
    """
    links = "".join(f'<link rel="stylesheet" href="{up}/{style}.css">' for style in STYLES)
    loaded = "".join(
        f'<script src="{up}/explorers/{script}.js"></script>'
        for script in (*SCRIPTS, *scripts, f"{name}-data", name)
    )
    return HTML(
        f"{links}<noscript><p>The picture needs JavaScript; the table below says the"
        f' same.</p></noscript><div id="{html.escape(name)}-here" class="dr-explorer dr-piece"'
        f" hidden></div>{loaded}"
    )


def write_data(to: Path, name: str, data: Any) -> Path:
    """Write a piece's data into the staged source of the book, as `<name>Data`."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    write_text(to / FOLDER / f"{name}-data.js", f"window.{name}Data = {text};\n")
    return to / FOLDER / f"{name}-data.js"


def write_place(to: Path, name: str, *parts: HTML) -> Path:
    """Write the file that a page includes: `<name>.inc`."""
    file = to / FOLDER / f"{name}.inc"
    write_text(file, "".join(part.data for part in parts) + "\n")
    return file
