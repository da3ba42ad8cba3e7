"""What the later stages of a pipeline learned from: where to look if a stage adds nothing.

SimLM Figure 2 has four trainings in a row, and each one's material is made by the one before. A
stage that adds nothing usually learned from bad material: negatives that answer the query,
negatives that BM25 had found already, a teacher that prefers a negative. Page of the book:
ideas/pipeline.
"""

from pathlib import Path

import numpy as np

from dr_lib.collections import Collection
from dr_lib.evaluation.measures import Scores, evaluate
from dr_lib.retrieval import Ranking, holds_answer
from dr_lib.retrieval.ranking import also_in
from dr_lib.stages import stage
from dr_lib.training import Examples, TeacherScores


def share_marked(lists: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """Share of each list's passages that are marked.

    Args:
        lists: `[queries, depth]` rows of passages, -1 for none.
        marked: `[queries, depth]` bool.

    Returns:
        `[queries]` float64; 0 for a list without passages.

    Example:
        >>> share_marked(np.array([[4, 7, -1]]), np.array([[True, False, True]]))
        array([0.5])
    """
    present = lists >= 0
    return (marked & present).sum(axis=1) / np.maximum(present.sum(axis=1), 1)


def positive_first(positives: np.ndarray, negatives: np.ndarray) -> np.ndarray:
    """Whether a scorer puts a positive above all negatives of its query.

    Args:
        positives: `[queries]` score of each query's best positive; -inf where it was not scored.
        negatives: `[queries, depth]` scores; -inf where there is none.

    Returns:
        `[queries]` bool; False for a tie.

    Example:
        >>> positive_first(np.array([2.0, 2.0]), np.array([[1.0, -np.inf], [2.0, 0.0]]))
        array([ True, False])
    """
    return positives > negatives.max(axis=1, initial=-np.inf)


def share_above(positives: np.ndarray, negatives: np.ndarray) -> np.ndarray:
    """Share of each query's scored negatives that lie above its best positive: `[queries]` float64.

    Example:
        >>> share_above(np.array([2.0]), np.array([[3.0, 1.0, -np.inf]]))
        array([0.5])
    """
    return (negatives > positives[:, None]).sum(axis=1) / np.maximum(
        np.isfinite(negatives).sum(axis=1), 1
    )


def teacher_on_lists(
    teacher: TeacherScores, listed: Examples, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A teacher's score of each query's best positive `[chosen]`, of its negatives `[chosen,
    depth]` (-inf: none).
    """
    places, first = listed.places_of(chosen)
    best = np.maximum.reduceat(np.asarray(teacher.positives)[places], first)
    return best, np.where(listed.negatives[chosen] >= 0, teacher.negatives[chosen], -np.inf)


def ranking_on_lists(
    ranking: Ranking, listed: Examples, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A ranking's scores of the same passages; -inf for one that it did not find.

    Args:
        ranking: of all queries, in the order of the queries' store.
        listed: training queries with positives and the negatives that a teacher reads.
        chosen: `[chosen]` numbers of queries in `listed`.

    Returns:
        Score of each query's best positive `[chosen]`, and of its negatives `[chosen, depth]`.
    """
    places, first = listed.places_of(chosen)
    rows, scores = (
        np.asarray(part[listed.query_rows[chosen]]) for part in (ranking.rows, ranking.scores)
    )
    owner = np.repeat(np.arange(len(chosen)), listed.counts(chosen))
    positives = scores_in(
        rows[owner], scores[owner], np.asarray(listed.positives)[places][:, None]
    )[:, 0]
    return np.maximum.reduceat(positives, first), scores_in(
        rows, scores, np.asarray(listed.negatives[chosen])
    )


def scores_in(rows: np.ndarray, scores: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Scores that a ranking gives to certain passages.

    Args:
        rows, scores: `[queries, depth]` of a ranking.
        wanted: `[queries, n]` rows of passages, -1 for none.

    Returns:
        `[queries, n]` float32, -inf for a passage that was not found.

    Example:
        >>> scores_in(
        ...     np.array([[5, 2]]), np.array([[0.9, 0.4]], np.float32), np.array([[2, 8, -1]])
        ... )
        array([[ 0.4, -inf, -inf]], dtype=float32)
    """
    out = np.full(wanted.shape, -np.inf, np.float32)
    for column, passages in enumerate(wanted.T):
        same = (rows == passages[:, None]) & (passages >= 0)[:, None]
        found = np.take_along_axis(scores, same.argmax(axis=1)[:, None], axis=1)[:, 0]
        out[:, column] = np.where(same.any(axis=1), found, -np.inf)
    return out


@stage(reads=("train",))
def pipeline_checks(
    folder: Path,
    bm25_negatives: Path | None,
    mined: Path,
    listed: Path,
    teacher: Path,
    first_run: Path,
    second_run: Path,
    collection: Collection,
    *,
    queries: int = 5_000,
) -> None:
    """`scores.json`: was what each training learned from any good? Of at most `queries` training
    queries, drawn evenly.

    The measures are "retriever 1: MRR@10" and "retriever 2: MRR@10" (on the training queries
    themselves); of the mined negatives, the shares that BM25 had listed too, that come from a
    positive's document, and (where queries have answers) that hold one; and on the lists that the
    teacher reads, who puts a positive first and how many negatives the teacher puts above it.
    """
    examples = Examples.open(listed)  # beside which the teacher's scores stand
    chosen = np.sort(np.random.default_rng(0).permutation(len(examples))[:queries])
    rows = examples.query_rows[chosen]
    mined_rows = np.load(mined / "negatives.npy")[rows]
    documents, _ = collection.documents()
    relevant = collection.relevant_rows("train")
    marked = {
        "mined: from a positive's document": also_in(
            documents[mined_rows], [documents[relevant[row]] for row in rows]
        )
    }
    if bm25_negatives:
        marked["mined: BM25 lists them too"] = also_in(
            mined_rows, np.load(bm25_negatives / "negatives.npy")[rows]
        )
    answers = collection.queries("train")[rows]["answers"]
    if any(answers):
        marked["mined: hold an answer"] = holds_answer(mined_rows, collection.passages, answers)
    values = {name: share_marked(mined_rows, where) for name, where in marked.items()}
    rankings = [Ranking.open(run / "ranking") for run in (first_run, second_run)]
    for number, ranking in enumerate(rankings, 1):
        values[f"retriever {number}: MRR@10"] = training_mrr(ranking, collection, rows)
    retriever = ranking_on_lists(rankings[1], examples, chosen)
    scored = teacher_on_lists(TeacherScores.open(teacher), examples, chosen)
    values["lists: retriever 2 puts a positive first"] = positive_first(*retriever)
    values["lists: teacher puts a positive first"] = positive_first(*scored)
    values["lists: negatives that the teacher puts above"] = share_above(*scored)
    ids = collection.queries("train")["id"][:]
    Scores([ids[row] for row in rows], values).save(folder / "scores.json")


def training_mrr(ranking: Ranking, collection: Collection, rows: np.ndarray) -> np.ndarray:
    """MRR@10 `[queries]` of a ranking of all training queries for some of them: how well a
    retriever knows them.
    """
    ids = [ranking.query_ids[row] for row in rows]
    judged = collection.qrels("train")
    part = Ranking(ids, np.asarray(ranking.rows[rows]), np.asarray(ranking.scores[rows]))
    scores = evaluate(
        part, {query: judged[query] for query in ids}, collection.passages["id"], ["MRR@10"]
    )
    return scores.per_query("MRR@10")
