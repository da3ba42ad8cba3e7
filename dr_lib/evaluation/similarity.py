"""The similarity of positives to their query and to the negatives retrieved with them (PAIR, Figure
4).

Of the first 100 passages found for a query some are relevant (p+), the others are not (p-). s(p+,
q) is the score of a relevant passage with the query, s(p+, p-) that of a relevant passage with a
negative one. The passage-centric loss of PAIR is meant to bring the second below the first (its eq.
4). The paper averages over a query's passages and then over queries, and does not say more; the
median is given, too, since a few near-duplicates of a positive pull a mean. Page of the book:
ideas/passage-centric.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation.measures import Scores
from dr_lib.retrieval import Ranking, open_vectors, vectors_at
from dr_lib.stages import stage

POSITIVE_QUERY, POSITIVE_NEGATIVE = "s(p+, q)", "s(p+, p-)"


def passage_similarities(
    queries: np.ndarray,
    passages: np.ndarray | list[np.ndarray],
    ranking: Ranking,
    positives: Sequence[np.ndarray],
    *,
    depth: int = 100,
) -> Scores:
    """Mean and median of both similarities, as cosines, for every query that has a positive and a
    negative.

    Args:
        queries: `[queries, hidden]`, in the ranking's order.
        passages: `[passages, hidden]`, float16 or float32, may be memory-mapped; or a list of such
            arrays.
        ranking: what was found for each query.
        positives: rows of the relevant passages of each query, as `collections.judged_rows` gives
            them.
        depth: how many of the found passages to look at; only positives among these count.

    Returns:
        The measures "s(p+, q) mean", "s(p+, q) median", "s(p+, p-) mean" and "s(p+, p-) median" of
        the queries with at least one passage of either kind; the others are left out.

    Raises:
        InputError: no query with a positive and a negative.

    Example:
        >>> passages = np.array([[1.0, 0.0], [0.6, 0.8]], np.float32)
        >>> ranking = Ranking(["q"], np.array([[0, 1]]), np.array([[1.0, 0.6]]))
        >>> found = passage_similarities(passages[:1], passages, ranking, [np.array([0])])
        >>> round(found.mean("s(p+, q) mean"), 3), round(found.mean("s(p+, p-) mean"), 3)
        (1.0, 0.6)
    """
    kept, values = [], []
    for place, query in enumerate(ranking.query_ids):
        rows = ranking.rows[place, :depth]
        rows = rows[rows >= 0]
        relevant = np.isin(rows, positives[place])
        if relevant.any() and not relevant.all():
            vectors = (
                queries[place],
                vectors_at(passages, rows[relevant]),
                vectors_at(passages, rows[~relevant]),
            )
            # Cosines: lengths are part of some retrievers' similarity, and rows of one figure need
            # one unit.
            wide = (np.asarray(part, np.float64) for part in vectors)
            asked, near, far = (
                one / np.maximum(np.linalg.norm(one, axis=-1, keepdims=True), 1e-12) for one in wide
            )
            with_query, with_negatives = near @ asked, near @ far.T
            kept.append(query)
            values.append(
                [f(part) for part in (with_query, with_negatives) for f in (np.mean, np.median)]
            )
    if not kept:
        problem = "no query has both a positive and a negative among what was found"
        raise InputError(problem, where="similarity", fix="Look deeper.")
    names = [
        f"{kind} {how}"
        for kind in (POSITIVE_QUERY, POSITIVE_NEGATIVE)
        for how in ("mean", "median")
    ]
    return Scores(kept, dict(zip(names, np.array(values).T, strict=True)))


@stage(reads=("split",))
def similarities(
    folder: Path,
    run: Path,
    vectors: list[Path],
    collection: Collection,
    *,
    split: str,
    depth: int = 100,
    grade: int = 1,
) -> None:
    """`scores.json`: both similarities, cosines, of each query that has a positive and a negative
    among its first `depth`.

    PAIR Figure 4; the run is of a retriever, whose query vectors lie beside it.
    """
    ranking = Ranking.open(run / "ranking")
    queries = np.load(run / "queries.npy", mmap_mode="r")
    passages = open_vectors(vectors)
    positives = collection.relevant_rows(split, grade)
    passage_similarities(queries, passages, ranking, positives, depth=depth).save(
        folder / "scores.json"
    )
