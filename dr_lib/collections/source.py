"""What a loader hands to the store: re-readable streams of passages, queries and judgements.

Book: practice/own-corpus. A loader knows one format; checks, digests and the cache are the store's (`store.py`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Passage(NamedTuple):
    """One passage: `doc` is "" and `position` 0 where the collection does not know them."""

    id: str
    title: str
    text: str
    doc: str = ""
    position: int = 0


class Query(NamedTuple):
    """One query with its accepted answers (often none)."""

    id: str
    text: str
    answers: tuple[str, ...] = ()


class Judgement(NamedTuple):
    """One relevance judgement: grade 0 is judged not relevant."""

    query: str
    passage: str
    grade: int


@dataclass(frozen=True)
class Rows:
    """A stream that can be read more than once.

    Args:
        place: the file or source that an error names.
        read: gives (line number, row) pairs from the start at each call.
        unit: what the numbers count: "line" for files, "row" elsewhere.
    """

    place: str
    read: Callable[[], Iterator[tuple[int, Any]]]
    unit: str = "line"

    def where(self, number: int) -> str:
        """Where row `number` stands, for an error message."""
        return f"{self.place} {self.unit} {number}"


@dataclass(frozen=True)
class Source:
    """A collection in its original format, not read yet.

    Args:
        name: what the collection is called.
        key: digest of the source files or versions; it names the cache folder.
        passages, queries, judgements: the streams; judgements by split, in the order splits are listed.
        info: licence, source and versions, kept with the collection.
        published: True for data the reader cannot edit: rows that break a rule are left out and counted in `info`
            where a folder of the reader's own would be refused.
        allow_duplicates: keep (and count) passages that repeat title and text of another one.
    """

    name: str
    key: str
    passages: Rows
    queries: Rows
    judgements: dict[str, Rows] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    published: bool = False
    allow_duplicates: bool = False
