"""The sheets of all collections on the data page, and which of them this machine has."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from IPython.display import HTML

from dr_book.data.make import differences
from dr_book.data.sheets import Sheet, sheets
from dr_book.tables import Cell, Markup, link, soft, table
from dr_lib import places

HOST = "https://github.com/{repository}"
DIGEST = 10
"""Displayed letters of a digest."""


def anchor(name: str) -> str:
    """The anchor of a collection's sheet on the data page; "" if it has none."""
    return f"sheet-{name}" if name in {one.name for one in sheets()} else ""


def sheet_sections(
    recorded: Sequence[str], used_by: Mapping[str, Markup | str]
) -> list[str | HTML]:
    """A section for every sheet: Primer, then the collections of the records, then the others.

    Args:
        recorded: names of collections behind records, in the order of the page.
        used_by: name -> links to the pages that show such records.
    """
    order = {name: rank for rank, name in enumerate(["primer", *recorded])}
    parts: list[str | HTML] = []
    for sheet in sorted(sheets(), key=lambda one: (order.get(one.name, len(order)), one.name)):
        words = re.sub("^#+ (.*)$", r"**\1**", sheet.text, flags=re.MULTILINE)
        facts = facts_list(sheet, used_by.get(sheet.name))
        what, count = next(iter(sheet.counts.items()), ("", 0))
        number = sum(count.values()) if isinstance(count, dict) else count
        size = f"{number:,} {what}. " if what else ""
        licence = sheet.licence[:1].upper() + sheet.licence[1:]
        about = f'<p class="dr-caption">{size}{html.escape(licence)}.</p>'
        begin = '<details class="dr-folded"><summary>Source, changes, defects</summary>'
        parts += [f"({anchor(sheet.name)})=", f"### {sheet.title}", HTML(about)]
        parts += [HTML(begin), words, facts, HTML("</details>")]
    return parts


def facts_list(sheet: Sheet, used_by: Markup | str | None = None) -> HTML:
    """Sizes, digest, licence, source and command of a collection."""
    facts: list[tuple[str, str]] = [("name", soft(sheet.name))]
    for what, count in sheet.counts.items():
        each = count.items() if isinstance(count, dict) else []
        words = ", ".join(f"{number:,} {split}" for split, number in each) or f"{count:,}"
        facts.append((what, html.escape(words)))
    if sheet.digest and isinstance(sheet.digest, str):
        facts.append(("digest", "<wbr>".join(re.findall(".{16}", sheet.digest))))
    if isinstance(sheet.digest, dict):
        each = [
            f"{joints(name)}{', unpacked' if '.gz' in name else ''}: {digest[:DIGEST]}"
            for name, digest in sheet.digest.items()
        ]
        facts.append(("digests", items(each)))
    facts.append(("licence", html.escape(sheet.licence)))
    for source in sheet.sources:
        known = source["commit"] != "HEAD"
        state = f"commit {source['commit'][:DIGEST]}" if known else "default branch"
        target = f"{HOST.format(**source)}/tree/{source['commit']}"
        place = link(source["repository"], target).html
        facts.append(("source", f"{place}, {state}{items([*map(joints, source['files'])])}"))
    if sheet.checked:
        facts.append(("conversion", html.escape(sheet.checked)))
    if sheet.command:
        facts.append(("to get it", command(sheet).html))
    if used_by is not None:
        spelled = used_by.html if isinstance(used_by, Markup) else html.escape(used_by)
        facts.append(("used by", spelled))
    shown = "".join(f"<dt>{html.escape(name)}</dt><dd>{fact}</dd>" for name, fact in facts)
    return HTML(f'<dl class="dr-facts">{shown}</dl>')


def items(parts: Sequence[str]) -> str:
    """An HTML list."""
    return f"<ul>{''.join(f'<li>{part}</li>' for part in parts)}</ul>"


def joints(text: str) -> str:
    """A path or a call as safe HTML that may break after its punctuation."""
    return re.sub(r"(?<=[/:(_])(?=\w)", "<wbr>", html.escape(text, quote=False))


def command(sheet: Sheet) -> Markup:
    """The command or code that gets a collection; it may break on a phone."""
    shown = re.sub(r"(--\w+)", r'<span class="option">\1</span>', joints(sheet.command))
    return Markup(f"<code>{shown}</code>")


def here_table(recorded: Sequence[Mapping[str, Any]]) -> HTML:
    """Collections of the records, whether this machine has each, and how to get it.

    Args:
        recorded: from `recorded_collections`: name and digest.
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
        place = link(sheet.title, f"data.html#{anchor(name)}")
        rows.append([place, digest, states[name], command(sheet) if sheet.command else None])
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
