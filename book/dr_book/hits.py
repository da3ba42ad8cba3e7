"""A search by several systems, BM25 among them, and its results: passages of every system for a
question, for a terminal and as JSON.

Importing it loads no model library, and BM25 alone needs none. Page of the book:
practice/own-corpus.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from dr_lib.errors import InputError, visible
from dr_lib.words import pieces, words_of

if TYPE_CHECKING:
    import numpy as np

    from dr_lib.collections import Collection
    from dr_lib.retrieval import Ranking
    from dr_lib.stages import Cache

SHOWN, LEAD, INDENT = 240, 4, " " * 6
"""Displayed characters of a passage, words before the first match, and indentation in a terminal.
"""

OTHER = re.compile("[\\0\ud800-\udfff]|\x1b[$]")
"""Signs of a question in another encoding: zeros, lone surrogates, ISO-2022."""

System = Callable[[Sequence[str], int], "Ranking"]
"""Queries and depth -> the passages found."""


@dataclass(frozen=True)
class Hit:
    """A retrieved passage; `grade` is its judgement for the query, None if there is none."""

    rank: int
    id: str
    title: str
    text: str
    score: float
    grade: int | None = None

    @property
    def relevant(self) -> bool:
        """Whether it is judged relevant: some of TREC's grades are below 0."""
        return (self.grade or 0) > 0


@dataclass(frozen=True)
class Result:
    """The results of every system for one query.

    Attributes:
        query: the question.
        relevant: how many passages are judged relevant to it; None if it is not a query of the
            collection.
        hits: system -> passages, best first.
    """

    query: str
    relevant: int | None
    hits: dict[str, list[Hit]]

    @property
    def judged(self) -> str:
        """How many passages are judged relevant, in words; "" if it is not a query of the
        collection.
        """
        verb = " is" if self.relevant == 1 else "s are"
        return "" if self.relevant is None else f"{self.relevant} passage{verb} judged relevant"

    def as_text(self, width: int = 100) -> str:
        """The results for a terminal, one system below the other.

        Args:
            width: columns of the terminal.

        Returns:
            The query, a line on its judgements if it has any, and for each passage rank, ``*`` if
            it is judged relevant, score and id, then title and text.

        Example:
            >>> hit = Hit(1, "p7", "Tides.", "The moon pulls.", 3.25, grade=1)
            >>> print(Result("why tides", 1, {"BM25": [hit]}).as_text(width=40))
            why tides
            1 passage is judged relevant (*)
            <BLANKLINE>
            BM25
            ----------------------------------------
             1 *    3.250  p7
                  Tides: The moon pulls.
        """
        lines = [one_line(self.query), *([f"{self.judged} (*)"] if self.judged else [])]
        for system, hits in self.hits.items():
            lines += ["", one_line(system), "-" * width, *([] if hits else ["nothing found"])]
            for hit in hits:
                text = shortened(one_line(hit.text), self.query)
                title = one_line(hit.title).rstrip(" .")
                text = f"{title}: {text}" if title else text
                lines.append(
                    f"{hit.rank:2d} {'*' if hit.relevant else ' '} {hit.score:8.3f} "
                    f" {one_line(hit.id)}"
                )
                lines += wrap(text, width, initial_indent=INDENT, subsequent_indent=INDENT)
        return "\n".join(lines)

    def as_json(self) -> str:
        """One line of JSON that is safe to print in a terminal."""
        return visible(json.dumps(asdict(self), ensure_ascii=False))


def shortened(text: str, query: str = "") -> str:
    """An excerpt of a one-line text, in whole words (`words.pieces`): the first stretch with the
    most words of the query.

    Example:
        >>> text = "Annotated tags are meant for release. " * 9 + "Sign a tag with gpg."
        >>> shortened(text, "sign with gpg").endswith("release. Sign a tag with gpg.")
        True
    """
    if len(text) <= SHOWN:
        return text
    parts, wanted = pieces(text), {*words_of(query)}
    hits = [wanted.intersection(words_of(part)) for part in parts]
    best, most = (0, _fitting(parts, 0)), -1
    for begin in range(len(parts)) if wanted else ():
        if begin and not hits[begin]:
            continue  # some best stretch begins with a hit
        end = _fitting(parts, begin)
        count = len(set().union(*hits[begin:end]))
        if count > most:
            best, most = (begin, end), count
    begin, end = best
    if begin:  # a few words before the first hit, and as much after it as fits
        begin = max(0, begin - LEAD)
        end = _fitting(parts, begin)
    if end == len(parts):  # at the end of the text, extend to the left
        while begin and len("".join(parts[begin - 1 :]).strip()) <= SHOWN:
            begin -= 1
    excerpt = "".join(parts[begin:end]).strip()
    return "… " * bool(begin) + excerpt + " …" * (end < len(parts))


def _fitting(parts: list[str], begin: int) -> int:
    """End of the longest stretch of pieces from `begin` on that can be shown."""
    end, length = begin, -1  # the space before the first piece is not shown
    while end < len(parts) and length + len(parts[end]) <= SHOWN:
        length += len(parts[end])
        end += 1
    return max(end, begin + 1)


def one_line(text: str) -> str:
    """Text on one line, with a terminal's control characters escaped.

    Example:
        >>> print(one_line("a\\x1b[31mb\\n c"))
        a\\u001b[31mb c
    """
    return visible(" ".join(text.split()))


def check_queries(queries: Sequence[str], k: int) -> None:
    """Raise `InputError` for an empty query or a `k` below 1, before an index is built."""
    if any(not query.strip() for query in queries):
        raise InputError("the query is empty", where="search", fix="Write a question.")
    for query in queries:
        if OTHER.search(query):
            raise InputError("a question is not UTF-8", where=query, fix="Save it as UTF-8.")
    if k < 1:
        raise InputError(f"k is {k}", where="k", fix="Give 1 or more.")


class Searcher:
    """A collection and the systems that search it, side by side.

    Args:
        collection: to search.
        systems: displayed name -> system.

    Raises:
        InputError: there is no system.
    """

    def __init__(self, collection: "Collection", systems: Mapping[str, System]):
        if not systems:
            raise InputError("nothing to search with", where="search", fix="Give BM25 or a model.")
        self.collection, self.systems = collection, dict(systems)
        self._grades = judgements_by_text(collection)

    def search(self, queries: str | Sequence[str], k: int = 5) -> list[Result]:
        """The top `k` passages of every system for each query (or a single one), with known
        judgements.

        Raises:
            InputError: an empty query, or `k` below 1.
        """
        queries = [queries] if isinstance(queries, str) else queries
        check_queries(queries, k)
        rankings = {name: system(queries, k) for name, system in self.systems.items()}
        results = []
        for row, query in enumerate(queries):
            grades = self._grades.get(query.strip())
            relevant = None if grades is None else sum(grade > 0 for grade in grades.values())
            hits = {
                name: self._hits(ranking.rows[row], ranking.scores[row], grades or {})
                for name, ranking in rankings.items()
            }
            results.append(Result(query, relevant, hits))
        return results

    def _hits(
        self, rows: "np.ndarray", scores: "np.ndarray", grades: Mapping[str, int]
    ) -> list[Hit]:
        passages = self.collection.passages[rows[rows >= 0].tolist()]
        columns = zip(
            passages["id"], passages["title"], passages["text"], scores.tolist(), strict=False
        )
        return [Hit(rank, *row, grades.get(row[0])) for rank, row in enumerate(columns, 1)]


def judgements_by_text(collection: "Collection") -> dict[str, dict[str, int]]:
    """Query text -> passage id -> grade, over all splits."""
    queries, grades_of = collection.queries(), {}
    texts = dict(zip(queries["id"][:], queries["text"][:], strict=True))
    for split in collection.splits:
        for query, grades in collection.qrels(split).items():
            grades_of.setdefault(texts[query].strip(), {}).update(grades)
    return grades_of


def open_bm25(
    collection: "Collection",
    weights: tuple[float, float] | None = None,
    cache: "Cache | None" = None,
) -> System:
    """BM25 over a collection, with the usual k1 and b or with other `weights`."""
    from dr_lib import retrieval  # imported late: help and error messages do not wait for it
    from dr_lib.stages import Cache

    cache = cache or Cache(announce=lambda line: None)
    index = retrieval.bm25_index(collection, title=True)
    if weights:
        k1, b = weights
        index = retrieval.weighted_bm25_index(collection, title=True, k1=k1, b=b)
    return retrieval.Bm25.open(cache.get(index) / "index").search
