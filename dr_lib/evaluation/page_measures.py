"""From passages to pages: rankings and judgements of whole documents, and evidence that may lie in several places.

KILT measures R-precision over Wikipedia pages, DPR-PAQ (Table 2) over paragraphs. A page is what the collection calls
the passage's `doc`; it counts once, at its first passage, and a passage without one is a page of its own. Where a query
has several sets of evidence, each of which would do, KILT takes the best value over the sets.
Page of the book: ideas/evaluation.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dr_lib.collections import rows_of
from dr_lib.evaluation.measures import R_PRECISION, Qrels, Scores, evaluate
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
    rows = numbers[ranking.rows]
    first = _first_occurrence(rows)
    scores = np.where(first, ranking.scores, -np.inf)
    # Pages stand behind each other by score and then by number, which is a ranking's order.
    order = np.lexsort((rows, -scores, ~first), axis=1)
    rows = np.take_along_axis(np.where(first, rows, -1), order, axis=1)
    return Ranking(ranking.query_ids, rows, np.take_along_axis(scores, order, axis=1)), names


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
    sets = [(query, own) for query, alternatives in evidence.items() for own in alternatives or [[]]]
    places = {query: place for place, query in enumerate(ranking.query_ids)}
    asked = [number for number, (query, _) in enumerate(sets) if query in places]
    source = [places[sets[number][0]] for number in asked]
    each = Ranking([str(number) for number in asked], ranking.rows[source], ranking.scores[source])
    qrels = {str(number): dict.fromkeys(own, 1) or {ids[0]: 0} for number, (_, own) in enumerate(sets)}
    values = evaluate(each, qrels, ids, [R_PRECISION]).per_query(R_PRECISION)
    counts = [max(1, len(alternatives)) for alternatives in evidence.values()]
    best = np.maximum.reduceat(values, np.cumsum([0, *counts[:-1]]))
    return Scores(list(evidence), {R_PRECISION: best})


def _first_occurrence(rows: np.ndarray) -> np.ndarray:
    """True where a row number occurs for the first time in its line; never for -1."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    new = np.ones(rows.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.empty(rows.shape, bool)
    np.put_along_axis(first, order, new, axis=1)
    return first & (rows >= 0)
