"""Case tables: what two systems found for a query, with the words that query and passage share marked.

Queries and passages are text of a collection, so every piece of them is escaped. Page: ideas/evaluation.
"""

import html
import re
from collections.abc import Mapping, Sequence

import numpy as np
from bm25s.stopwords import STOPWORDS_EN
from datasets import Dataset
from IPython.display import HTML

from dr_lib.errors import InputError
from dr_lib.evaluation import Case, flips
from dr_lib.lab.cache import Cache
from dr_lib.lab.finished import collection_of, ranking_of
from dr_lib.lab.records import Record
from dr_lib.report.tables import Cell, Markup, soft, table
from dr_lib.retrieval import Ranking, judged_rows

WORD = re.compile(r"\w+")
LEAD = 8


def cases_table(
    cases: Sequence[Case],
    rankings: Mapping[str, Ranking],
    queries: Dataset,
    passages: Dataset,
    qrels: Mapping[str, Mapping[str, int]],
    *,
    caption: str,
    words: int = 40,
) -> HTML:
    """One line a query and system: the rank of the first relevant passage, and what was put first.

    Args:
        cases: queries to show, such as the first few of `evaluation.flips`.
        rankings: system -> its ranking.
        queries: columns id and text.
        passages: the collection, columns id, title and text.
        qrels: query id -> passage id -> grade.
        caption: what is shown, and by which rule the cases were chosen.
        words: longest excerpt of a passage, in words.

    Raises:
        InputError: a case that a ranking or the queries lack.
    """
    asked = [case.query_id for case in cases]
    texts = {row["id"]: row["text"] for row in queries if row["id"] in set(asked)}
    relevant = judged_rows(qrels, asked, passages["id"])
    rows: list[list[Cell]] = []
    for query, right in zip(asked, relevant, strict=True):
        for number, (system, ranking) in enumerate(rankings.items()):
            if query not in texts or query not in ranking.query_ids:
                raise InputError(f"no query {query!r}", where=system, fix="Give rankings of the cases' queries.")
            found = np.asarray(ranking.rows[ranking.query_ids.index(query)])
            shown = "" if number else texts[query]
            rows.append([shown, system, *_found(found, right, texts[query], passages, words)])
    columns = ["query", "system", "first relevant", "first is relevant", "put first"]
    return table(columns, rows, caption=caption)


def flips_table(
    first: Record, second: Record, measure: str, *, shown: int = 3, cache: Cache | None = None
) -> HTML:  # fmt: skip
    """What a change of the recipe won and lost: queries that only one of two runs answers, and how many there are.

    Both kinds are counted, and both are shown by the same rule (widest gap first): examples of one kind alone would
    prove whatever they were chosen for.

    Args:
        first, second: records of runs of this machine on the same queries.
        measure: a query counts as answered where it is above 0, e.g. "MRR@10".
        shown: cases of either kind.
        cache: where the runs' stages are kept.

    Raises:
        InputError: runs on different queries, or not made on this machine.
    """
    collection, split = collection_of(first), first.recipe["evaluation"]["split"]
    rankings = {record.label: ranking_of(record, cache) for record in (first, second)}
    parts = []
    for one, other in ((first, second), (second, first)):
        cases = flips(one.measured, other.measured, measure)
        part = f"; the {shown} with the widest gap" if len(cases) > shown else ""
        number = f"{len(cases)} of {len(one.query_ids)} queries"
        caption = f"Answered by {other.label}, missed by {one.label} ({measure} 0): {number}{part}."
        data = (collection.queries(split), collection.passages, collection.qrels(split))
        parts.append(cases_table(cases[:shown], rankings, *data, caption=caption).data)
    return HTML("".join(parts))


def _found(found: np.ndarray, right: np.ndarray, query: str, passages: Dataset, words: int) -> list[Cell]:
    """Rank of the first relevant passage, whether the first one is relevant, and an excerpt of it."""
    found = found[found >= 0]
    hits = np.flatnonzero(np.isin(found, right))
    rank: Cell = int(hits[0]) + 1 if len(hits) else f"not in {len(found)}"
    if not len(found):
        return [rank, None, None]
    first = passages[int(found[0])]
    title = f"<b>{soft(first['title'])}</b> " if first["title"] else ""
    return [rank, "yes" if found[0] in right else "no", Markup(title + marked(first["text"], query, words))]


def marked(text: str, query: str, words: int = 40) -> str:
    """An excerpt of a text as safe HTML, the words of the query in `<mark>`; stop words and single letters stay plain.

    The excerpt begins a little before the first marked word.

    Example:
        >>> marked("The cat <b>sat</b> on a mat.", "Where sat the cat?")
        'The <mark>cat</mark> &lt;b&gt;<mark>sat</mark>&lt;/b&gt; on a mat.'
    """
    wanted = {word for word in WORD.findall(query.lower()) if len(word) > 1 and word not in STOPWORDS_EN}
    parts = text.split()
    hits = [any(word in wanted for word in WORD.findall(part.lower())) for part in parts]
    start = max(0, hits.index(True) - LEAD) if any(hits) else 0
    shown = " ".join(_mark(part, wanted) for part in parts[start : start + words])
    return ("&hellip; " if start else "") + shown + (" &hellip;" if start + words < len(parts) else "")


def _mark(part: str, wanted: set[str]) -> str:
    """One piece between spaces: its words escaped and marked, what stands between them escaped."""
    safe, end = "", 0
    for match in WORD.finditer(part):
        word = html.escape(match[0])
        safe += html.escape(part[end : match.start()])
        safe += f"<mark>{word}</mark>" if match[0].lower() in wanted else word
        end = match.end()
    return safe + html.escape(part[end:])
