"""PyDocs as a collection: docstrings cut to passages of about 100 words, summary sentences as labelled queries.

A document is a source file, its passages in the order they stand there. Book: reference/data, PyDocs.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from dr_lib.collections.pydocs.blocks import Unit, units
from dr_lib.collections.pydocs.compiled import Docstring
from dr_lib.collections.source import Judgement, Passage, Query

WORDS = 100
"""Words a passage aims at; `LONGEST_PASSAGE` is never passed unless one unit alone is longer."""
LONGEST_PASSAGE = 130
SHORTEST = 25
"""Fewest words of a docstring, and of the body below a query."""
QUERY_WORDS = (5, 30)
COPIES = 3
"""A unit that stands in so many documents is boilerplate: it is kept in the first only."""
SHINGLE = 6
SEEN_SHARE = 0.5
"""A passage with at least this share of word 6-grams seen before is a copy and left out."""
SPLIT_SHARES = {"train": 0.8, "dev": 0.9, "test": 1.0}


@dataclass
class Entry:
    """One docstring after cleaning; `query` is its summary where that labels the rest."""

    title: str
    docstring: Docstring
    units: list[Unit]
    query: str = ""


def build(docstrings: Iterable[Docstring]) -> tuple[list[Passage], list[Query], dict[str, list[Judgement]]]:
    """Passages, queries and judgements by split from docstrings, in their order."""
    entries = _without_boilerplate(list(_entries(docstrings)))
    _choose_queries(entries)
    passages: list[Passage] = []
    queries: list[Query] = []
    judgements: dict[str, list[Judgement]] = {split: [] for split in SPLIT_SHARES}
    copies = _Copies()
    places: Counter[str] = Counter()
    for entry in entries:
        cut = cut_passages(entry.units[1:] if entry.query else entry.units)
        fresh = [text for text in cut if not copies.seen(text)]
        doc = entry.docstring.module
        rows = [Passage(f"{entry.title}#{n}", entry.title, text, doc, places[doc] + n) for n, text in enumerate(fresh)]
        places[doc] += len(rows)
        passages += rows
        if entry.query and len(fresh) * 2 > len(cut):
            queries.append(Query(f"{entry.title}?", entry.query))
            judged = judgements[split_of(_top_module(entry.docstring))]
            judged += [Judgement(queries[-1].id, row.id, 1) for row in rows]
    return passages, queries, judgements


def split_of(module: str) -> str:
    """Split of a top module, by hash: about 80 % train, 10 % dev, 10 % test."""
    share = int.from_bytes(sha256(module.encode()).digest()[:4], "big") / 2**32
    return next(split for split, end in SPLIT_SHARES.items() if share < end)


def cut_passages(body: list[Unit]) -> list[str]:
    """Pack units to passages of about 100 words; no unit is cut.

    Example:
        >>> [len(text.split()) for text in cut_passages([Unit("word " * 40)] * 7)]
        [120, 120, 40]
    """
    groups: list[list[str]] = [[]]
    size = 0
    for unit in body:
        words = len(unit.text.split())
        if groups[-1] and (size + words / 2 > WORDS or size + words > LONGEST_PASSAGE):
            groups.append([])
            size = 0
        groups[-1].append(unit.text)
        size += words
    if len(groups) > 1 and size < SHORTEST:
        last = groups.pop()
        groups[-1] += last
    return [" ".join(group) for group in groups if group]


class _Copies:
    """Word 6-grams of all passages so far."""

    def __init__(self) -> None:
        self.known: set[int] = set()

    def seen(self, text: str) -> bool:
        """Tell whether most of a text stood in earlier ones; remember it where not."""
        words = re.findall(r"[a-z]+", text.lower())
        grams = {hash(tuple(words[at : at + SHINGLE])) for at in range(max(1, len(words) - SHINGLE + 1))}
        copied = len(grams & self.known) >= SEEN_SHARE * len(grams)
        if not copied:
            self.known |= grams
        return copied


def _words(body: list[Unit]) -> int:
    return sum(len(unit.text.split()) for unit in body)


def _pattern(text: str) -> str:
    """A text with names and numbers made equal, so that copies for another class are recognised."""
    return re.sub(r"\b\w*[A-Z_0-9]\w*\b", "#", text)


def _entries(docstrings: Iterable[Docstring]) -> Iterator[Entry]:
    """Clean docstrings, drop repeated ones (inherited methods), and give each a public, unique title."""
    texts: set[str] = set()
    titles: set[str] = set()
    for docstring in docstrings:
        text = " ".join(docstring.text.split())
        if text.count(" ") < SHORTEST or text in texts:
            continue
        texts.add(text)
        body = units(docstring.text)
        title = next((name for name in _names(docstring) if name not in titles), "")
        if _words(body) >= SHORTEST and title:
            titles.add(title)
            yield Entry(title, docstring, body)


def _names(docstring: Docstring) -> Iterator[str]:
    """The public name, with private modules left out, then the full one."""
    module = [part for part in docstring.module.split(".") if not part.startswith("_")] or [docstring.module]
    local = (
        docstring.name.removeprefix(f"{module[0]}.") if docstring.name.startswith(f"{module[0]}.") else docstring.name
    )
    for parent in (module, docstring.module.split(".")):
        yield ".".join([*parent, *([local] if local else [])])


def _top_module(docstring: Docstring) -> str:
    depth = {"python": 1, "transformers": 3}.get(docstring.package, 2)
    return ".".join(docstring.module.split(".")[:depth])


def _without_boilerplate(entries: list[Entry]) -> list[Entry]:
    """Keep a unit that many docstrings share in the first of them only; drop what gets too short."""
    counts = Counter(key for entry in entries for key in {_pattern(unit.text) for unit in entry.units})
    shown: set[str] = set()
    for entry in entries:
        keys = [_pattern(unit.text) for unit in entry.units]
        kept = [unit for unit, key in zip(entry.units, keys, strict=True) if counts[key] < COPIES or key not in shown]
        shown.update(keys)
        entry.units = kept
    return [entry for entry in entries if _words(entry.units) >= SHORTEST]


def _choose_queries(entries: list[Entry]) -> None:
    """Make the summary a query where the object is public, nobody else says the same, and enough text is left."""
    summaries = Counter(_pattern(entry.units[0].text) for entry in entries)
    for entry in entries:
        first = entry.units[0]
        public = entry.docstring.name and not any(part.startswith("_") for part in entry.docstring.name.split("."))
        fits = QUERY_WORDS[0] <= len(first.text.split()) <= QUERY_WORDS[1] and _words(entry.units[1:]) >= SHORTEST
        whole = first.text[-1] == "." and ". " not in first.text
        if public and fits and whole and not first.entry and summaries[_pattern(first.text)] == 1:
            entry.query = first.text[:-1]
