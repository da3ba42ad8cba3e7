"""PyDocs as a collection: documents cut to passages of about 100 words, summaries as labelled queries.

Book: reference/data sheets, PyDocs.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256

from dr_lib.collections.pydocs.blocks import Unit, units
from dr_lib.collections.pydocs.harvest import Docstring
from dr_lib.collections.source import Judgement, Passage, Query

WORDS = 100
LONGEST = 140
SHORTEST_DOCUMENT = 15
SHORTEST_BODY = 30
QUERY_WORDS = (4, 30)
BOILERPLATE = 4


@dataclass
class Document:
    """One docstring after cleaning: its title, top module, and units; the first unit of a labelled one is its query."""

    name: str
    group: str
    units: list[Unit]
    query: str | None = None
    passages: list[str] = field(default_factory=list)


def build(docstrings: list[Docstring]) -> tuple[list[Passage], list[Query], dict[str, list[Judgement]]]:
    """Passages, queries and judgements by split from all docstrings, in their order."""
    documents = _documents(docstrings)
    _drop_boilerplate(documents)
    documents = [document for document in documents if _words(document.units) >= SHORTEST_DOCUMENT]
    _label(documents)
    passages: list[Passage] = []
    queries: list[Query] = []
    judgements: dict[str, list[Judgement]] = {"train": [], "dev": [], "test": []}
    seen: set[str] = set()
    for document in documents:
        body = document.units[1:] if document.query else document.units
        cut = [text for text in cut_passages(body) if (key := _key(text)) not in seen and not seen.add(key)]
        rows = [Passage(f"{document.name}#{n}", document.name, text, document.name, n) for n, text in enumerate(cut)]
        passages += rows
        if document.query and rows:
            query = Query(f"q:{document.name}", document.query)
            queries.append(query)
            judgements[split_of(document.group)] += [Judgement(query.id, row.id, 1) for row in rows]
    return passages, queries, judgements


def split_of(group: str) -> str:
    """Split of a top module, by hash: about 80 % train, 10 % dev, 10 % test."""
    share = int.from_bytes(sha256(group.encode()).digest()[:4], "big") / 2**32
    return "train" if share < 0.8 else "dev" if share < 0.9 else "test"


def cut_passages(body: list[Unit]) -> list[str]:
    """Pack units to passages of about 100 words; units stay whole unless one alone is too long."""
    passages: list[list[str]] = [[]]
    size = 0
    for unit in body:
        words = len(unit.text.split())
        if passages[-1] and size + words / 2 > WORDS or size + words > LONGEST and size:
            passages.append([])
            size = 0
        passages[-1].append(unit.text)
        size += words
    if len(passages) > 1 and size < WORDS / 4 and sum(len(text.split()) for text in passages[-2]) + size <= LONGEST:
        last = passages.pop()
        passages[-1] += last
    return [" ".join(texts) for texts in passages if texts]


def _words(body: list[Unit]) -> int:
    return sum(len(unit.text.split()) for unit in body)


def _key(text: str) -> str:
    return " ".join(text.lower().split())


def _pattern(text: str) -> str:
    """A text with names and numbers made equal, so that copies for another class are recognised."""
    return re.sub(r"\b\w*[A-Z_0-9]\w*\b", "#", text)


def _documents(docstrings: list[Docstring]) -> list[Document]:
    """Clean, drop repeated texts (inherited docstrings) and give every document a public, unique name."""
    seen: set[str] = set()
    names: set[str] = set()
    documents = []
    for docstring in docstrings:
        key = _key(docstring.text)
        if len(key.split()) < SHORTEST_DOCUMENT or key in seen:
            continue
        seen.add(key)
        body = units(docstring.text)
        if _words(body) < SHORTEST_DOCUMENT:
            continue
        name = _public(docstring)
        if name in names:
            name = f"{docstring.module}.{docstring.name}".strip(".")
        if name in names:
            continue
        names.add(name)
        documents.append(Document(name, _group(docstring), body))
    return documents


def _public(docstring: Docstring) -> str:
    parts = f"{docstring.module}.{docstring.name}".split(".")
    return ".".join(part for part in parts if part and not part.startswith("_")) or docstring.module


def _group(docstring: Docstring) -> str:
    depth = {"python": 1, "transformers": 3}.get(docstring.package, 2)
    return ".".join(docstring.module.split(".")[:depth])


def _drop_boilerplate(documents: list[Document]) -> None:
    """Keep a unit that many documents share in the first of them only."""
    counts = Counter(key for document in documents for key in {_pattern(unit.text) for unit in document.units})
    shown: set[str] = set()
    for document in documents:
        kept = []
        for unit in document.units:
            key = _pattern(unit.text)
            if counts[key] < BOILERPLATE or key not in shown:
                kept.append(unit)
            shown.add(key)
        document.units = kept


def _label(documents: list[Document]) -> None:
    """Make the summary sentence a query where it says something of its own and enough text is left below it."""
    summaries = Counter(_pattern(document.units[0].text) for document in documents)
    for document in documents:
        first = document.units[0]
        words = len(first.text.split())
        alone = summaries[_pattern(first.text)] == 1
        if (
            not first.entry
            and alone
            and QUERY_WORDS[0] <= words <= QUERY_WORDS[1]
            and _words(document.units[1:]) >= SHORTEST_BODY
        ):
            document.query = first.text
