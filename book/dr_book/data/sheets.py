"""The data sheets of book/data: facts for the command, and text for the page.

The sheets of the collections that a module converts are in a file of its name, e.g. `glasgow.md`,
one after the other: facts in YAML between lines `---`, then a heading and text in MyST.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dr_lib.errors import InputError, similar
from dr_lib.files import json_digest
from dr_lib.places import project_root

if TYPE_CHECKING:
    from dr_lib.lab import Record


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """The facts about a collection.

    Attributes:
        name: of the folder, and of the collection in records.
        title: its heading.
        text: the text below it, MyST.
        licence: one line.
        digest: of the collection; for pairs or tables, the SHA-256 of each unpacked file.
        sources: repository, commit ("HEAD" if unknown), and files: path -> SHA-256, or None if
            unknown.
        options: of its converter.
        counts: passages, and queries by split; for pairs or tables, rows by split.
        load: the name by which `collections.load` finds it without a folder, or "".
        checked: how far the conversion is verified; "" if it was compared, on made-up sources, with
            the script that had made the collection.
    """

    name: str
    title: str
    text: str
    licence: str
    digest: str | dict[str, str] = ""
    sources: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)
    load: str = ""
    checked: str = ""

    @property
    def command(self) -> str:
        """The command or code that gets it; "" if only a run of the book makes it."""
        if self.sources:
            return f"dr-lib data {self.name} --to FOLDER"
        return f'collections.load("{self.load}")' if self.load else ""


def sheets_root() -> Path:
    """The folder of the sheets: in the checkout, else where they were installed."""
    folder = project_root() / "book" / "data"
    return folder if folder.is_dir() else Path(sys.prefix) / "share" / "dr_lib" / "data"


def sheet(name: str) -> Sheet:
    """The sheet of a collection; `InputError` if there is none."""
    known = {entry.name: entry for entry in sheets()}
    if name not in known:
        fix = f"{similar(name, [*known])}There are: {', '.join(known)}."
        raise InputError(f"there is no data sheet for {name!r}", where="name", fix=fix)
    return known[name]


@cache
def sheets() -> tuple[Sheet, ...]:
    """All sheets, by name."""
    every = [sheet for path in sheets_root().glob("*.md") for sheet in _read(path)]
    return tuple(sorted(every, key=lambda sheet: sheet.name))


def is_public(record: "Record") -> bool:
    """Whether a run searched a collection of these sheets, under any name: its digest is that of a
    sheet, or of the sample of it in the recipe. Only `ir_datasets` and sets of pairs, whose sheets
    have digests of unpacked files, are recognised by name. Counts and times that a notebook
    recorded without a collection (`lab.measured`) contain no text.
    """
    from dr_lib.collections.collection import OWN_PASSAGE, sample_facts
    from dr_lib.lab.recipe import CollectionSettings

    facts, options = record.searched_on, record.evaluation
    pairs = {sheet.name for sheet in sheets() if isinstance(sheet.digest, dict)}
    if facts["name"].startswith("ir_datasets:") or facts["name"] in pairs:
        return True
    known = {sheet.digest for sheet in sheets() if isinstance(sheet.digest, str)}
    settings = CollectionSettings(**(options.get("on") or record.recipe.get("collection", {})))
    if sizes := settings.sample_sizes():
        known = {json_digest([digest, sample_facts(**sizes)]) for digest in known}
    if rule := options.get(OWN_PASSAGE):
        known |= {json_digest([digest, {OWN_PASSAGE: rule}]) for digest in known}
    counted = json_digest({name: value for name, value in facts.items() if name != "digest"})
    return facts["digest"] in known | {counted}


def _read(path: Path) -> Iterator[Sheet]:
    _, *parts = re.split("^---\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for facts, words in zip(parts[::2], parts[1::2], strict=True):
        heading, _, text = words.strip().partition("\n")
        title = heading.removeprefix("# ")
        yield Sheet(title=title, text=text.strip(), **yaml.safe_load(facts))
