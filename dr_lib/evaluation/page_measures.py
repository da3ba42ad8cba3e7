"""From passages to pages: rankings and judgements of whole documents, and evidence that may lie in several places.

KILT measures R-precision over Wikipedia pages, DPR-PAQ (Table 2) over paragraphs. A page is what the collection calls
the passage's `doc`; it counts once, at its first passage, and a passage without one is a page of its own. Where a query
has several sets of evidence, each of which would do, KILT takes the best value over the sets.
Page of the book: ideas/evaluation.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dr_lib.collections import rows_of
from dr_lib.evaluation.measures import R_PRECISION, Qrels, Scores, check_depth
from dr_lib.retrieval import Ranking


def page_ids(documents: Sequence[str], passage_ids: Sequence[str]) -> list[str]:
    """Name each passage's page: its document, or the passage itself where it has none.

    Example:
        >>> page_ids(["wiki/Ant", "", "wiki/Ant"], ["a", "b", "c"])
        ['wiki/Ant', 'passage b', 'wiki/Ant']
    """
    return [doc or f"passage {passage}" for doc, passage in zip(documents, passage_ids, strict=True)]


def page_ranking(ranking: Ranking, pages: Sequence[str]) -> tuple[Ranking, list[str]]:
    """A ranking of passages as one of pages: each page once, at its first passage and with that passage's score.

    It stays as deep as it was, filled up with -1: to see k pages, search deep enough for k pages to occur.

    Args:
        ranking: rows of the collection.
        pages: the page of each row, as `page_ids` gives them.

    Returns:
        The ranking, and the names of its rows (the distinct pages in order of first appearance in the collection).

    Example:
        >>> ranking = Ranking(["q"], np.array([[2, 0, 1]]), np.array([[3.0, 2.0, 1.0]]))
        >>> of_pages, names = page_ranking(ranking, ["Ant", "Bee", "Ant"])
        >>> of_pages.rows.tolist(), of_pages.scores.tolist(), names
        ([[0, 1, -1]], [[3.0, 1.0, -inf]], ['Ant', 'Bee'])
    """
    names = list(dict.fromkeys(pages))
    places = {name: place for place, name in enumerate(names)}
    numbers = np.array([*(places[page] for page in pages), -1])
    rows, scores = np.full_like(ranking.rows, -1), np.full_like(ranking.scores, -np.inf)
    for query, line in enumerate(numbers[ranking.rows]):
        found, first = np.unique(line[line >= 0], return_index=True)  # passages are in order: a page's first is its best
        best = ranking.scores[query, first]
        order = np.lexsort((found, -best))
        rows[query, : len(found)], scores[query, : len(found)] = found[order], best[order]
    return Ranking(ranking.query_ids, rows, scores), names


def page_qrels(qrels: Qrels, pages: Sequence[str], passage_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Judgements of pages: the best grade of a page's judged passages.

    Args:
        qrels: query id -> passage id -> grade; passages that the collection lacks keep their id as page.
        pages: the page of each row.
        passage_ids: ids of the collection in row order.

    Example:
        >>> page_qrels({"q": {"a": 1, "c": 2}}, ["Ant", "Bee", "Ant"], ["a", "b", "c"])
        {'q': {'Ant': 2}}
    """
    rows = iter(rows_of([passage for grades in qrels.values() for passage in grades], passage_ids).tolist())
    found: dict[str, dict[str, int]] = {}
    for query, grades in qrels.items():
        own = found.setdefault(query, {})
        for passage, grade in grades.items():
            row = next(rows)
            page = pages[row] if row >= 0 else f"passage {passage}"
            own[page] = max(grade, own.get(page, grade))
    return found


def r_precision(ranking: Ranking, evidence: Mapping[str, Sequence[Sequence[str]]], ids: Sequence[str]) -> Scores:
    """R-precision of queries with several sets of evidence, the best over a query's sets (KILT's rule).

    For one set a query this is `evaluate(..., measures=["R-precision"])`.

    Args:
        ranking: of passages or, through `page_ranking`, of pages.
        evidence: query id -> sets of ids (passages or pages); a query without any id scores 0.
        ids: names of the ranking's rows.

    Returns:
        The measure "R-precision" for the queries of `evidence`, in its order.

    Example:
        >>> ranking = Ranking(["q"], np.array([[2, 0]]), np.array([[2.0, 1.0]]))
        >>> r_precision(ranking, {"q": [["a", "b"], ["c"]]}, ["a", "b", "c"]).values
        {'R-precision': array([1.], dtype=float32)}
    """
    most = max((len({*own}) for alternatives in evidence.values() for own in alternatives), default=0)
    check_depth(ranking, most, len(ids))
    found = {query: [ids[row] for row in line if row >= 0] for query, line in zip(ranking.query_ids, ranking.rows, strict=True)}
    best = []
    for query, alternatives in evidence.items():
        sets = [{*own} for own in alternatives if own]
        best.append(max((len(own.intersection(found.get(query, [])[: len(own)])) / len(own) for own in sets), default=0.0))
    return Scores(list(evidence), {R_PRECISION: best})
