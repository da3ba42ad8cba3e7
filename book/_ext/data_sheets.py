"""The sheets of all collections on the data page, and which of them this machine has."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import HTML

from dr_book.data.make import differences
from dr_book.data.sheets import Sheet, sheets
from dr_book.tables import Cell, Markup, link, table
from dr_lib import places

HOST = "https://github.com/{repository}"
COMPARED = (
    "gives what the script gave that had made this collection, on made-up sources of its format;"
    " the source itself was not at hand for its digest"
)
"""What is known of most conversions."""
DIGEST = 10
"""Letters shown of a digest."""


def anchor(name: str) -> str:
    """The place of a collection's sheet on the data page; "" where it has none."""
    return f"sheet-{name}" if name in {one.name for one in sheets()} else ""


def sheet_sections(recorded: Sequence[str], used_by: Mapping[str, Cell]) -> list[str | HTML]:
    """A section for every sheet: Primer, then what records were made on, then the others.

    Args:
        recorded: names of collections behind records, in the order of the page.
        used_by: name -> links to the pages that show such records.
    """
    order = {name: rank for rank, name in enumerate(["primer", *recorded])}
    parts: list[str | HTML] = []
    for sheet in sorted(sheets(), key=lambda one: (order.get(one.name, len(order)), one.name)):
        words = re.sub("^#+ (.*)$", r"**\1**", sheet.text, flags=re.MULTILINE)
        facts = facts_table(sheet, used_by.get(sheet.name))
        parts += [f"({anchor(sheet.name)})=", f"### {sheet.title}", facts, words]
    return parts


def facts_table(sheet: Sheet, used_by: Cell = None) -> HTML:
    """Sizes, digest, licence, source and command of a collection."""
    rows: list[list[Cell]] = [["name", sheet.name]]
    for what, count in sheet.counts.items():
        each = count.items() if isinstance(count, dict) else []
        words = ", ".join(f"{number:,} {split}" for split, number in each) or f"{count:,}"
        rows.append([what, words])
    if isinstance(sheet.digest, str):
        digest = "<wbr>".join(re.findall(".{16}", sheet.digest))  # a phone breaks it there
        rows += [["digest", Markup(digest)]] if digest else []
    for name, digest in sheet.digest.items() if isinstance(sheet.digest, dict) else ():
        rows.append(
            [
                f"digest of {name}",
                f"{digest[:DIGEST]}, unpacked" if ".gz" in name else digest[:DIGEST],
            ]
        )
    rows.append(["licence", sheet.licence])
    for source in sheet.sources:
        known = source["commit"] != "HEAD"
        state = f"commit {source['commit'][:DIGEST]}" if known else "default branch"
        target = f"{HOST.format(**source)}/tree/{source['commit']}"
        files = html.escape(", ".join(source["files"]))
        place = link(source["repository"], target).html
        rows.append(["source", Markup(f"{place}, {state}: {files}")])
    if sheet.sources:
        rows.append(["conversion", sheet.checked or COMPARED])
    if sheet.command:
        rows.append(["to get it", Markup(f"<code>{html.escape(sheet.command)}</code>")])
    if used_by is not None:
        rows.append(["used by", used_by])
    return table(["property", "value"], rows, caption=f"{sheet.title}: facts.")


def here_table(recorded: Sequence[Mapping[str, Any]]) -> HTML:
    """Collections of the records, whether this machine has each, and what gets it.

    Args:
        recorded: of `recorded_collections`: name and digest.
    """
    known = {one.name: one for one in sheets()}
    states: dict[str, str] = {}
    rows: list[list[Cell]] = []
    for data in recorded:
        name, digest = data["name"], data["digest"][:DIGEST]
        if not (sheet := known.get(name)):
            rows.append([name, digest, None, None])
            continue
        if name not in states:
            states[name] = is_here(sheet)
        command = Markup(f"<code>{html.escape(sheet.command)}</code>") if sheet.command else None
        rows.append([link(sheet.title, f"data.html#{anchor(name)}"), digest, states[name], command])
    caption = (
        "Collections of the records. The part of one that a run draws has a digest of its own."
    )
    columns = ["collection", "digest", "on this machine", "to get it"]
    return table(columns, rows, caption=caption)


def is_here(sheet: Sheet) -> str:
    """Whether this machine has the collection of a sheet: "yes", "no", "another state of it"."""
    place = places.primer() if sheet.name == "primer" else places.find_data(sheet.name)
    if place is None or not sheet.digest:
        return "no"
    return "another state of it" if differences(place, sheet) else "yes"
