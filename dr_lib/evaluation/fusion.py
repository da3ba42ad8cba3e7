"""Fusion of two rankings of the same queries, such as BM25's and a dense retriever's. Page:
practice/real-models.

By reciprocal rank (Cormack, Clarke and Buettcher 2009), a passage gets 1 / (60 + rank) from each
ranking that has it: there is no parameter. Weighted (Bruch, Gai and Ingber 2023, convex
combination), scores are scaled to [0, 1] within each query's list, and a passage that a list lacks
gets 0; the weight is chosen on the queries of a split that is not reported.

Reciprocal ranks tie all the time: (rank 1, rank 2) has as many points as (rank 2, rank 1). Equal
sums are ordered by the better of the two ranks, then by the second ranking's score (the encoder's),
then by row, so that the row order of a collection hardly matters.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation.measures import evaluate_split
from dr_lib.files import write_json
from dr_lib.losses.checks import check_share
from dr_lib.retrieval import Ranking
from dr_lib.stages import stage

K = 60  # of the reciprocal ranks
# of the second ranking; the lowest of equally good ones is chosen
WEIGHTS = tuple(step / 20 for step in range(21))


def fuse(first: Ranking, second: Ranking, depth: int, weight: float | None = None) -> Ranking:
    """One ranking from two.

    Args:
        first, second: of the same queries and collection.
        depth: at most this many passages per query.
        weight: of the second ranking's scaled scores, in [0, 1]; the first has 1 - weight. None
            fuses by reciprocal rank.

    Returns:
        The fused ranking, whose scores are rounded to float32 before they are compared; ties go by
        the better rank, then by the second ranking's score, then by row. A score that lost a tie is
        lowered to the next float32.

    Raises:
        InputError: the rankings are of different queries, or the weight is outside [0, 1].

    Example:
        >>> one, other = (
        ...     Ranking(["q"], np.array([rows]), np.array([[2.0, 1.0]]))
        ...     for rows in ([4, 7], [7, 5])
        ... )
        >>> fuse(one, other, 3).rows.tolist(), fuse(one, other, 3, weight=0.5).rows.tolist()
        ([[7, 4, 5]], [[7, 4, 5]])
    """
    check_share("weight", weight or 0)
    if first.query_ids != second.query_ids:
        raise InputError(
            "rankings of different queries", where="fusion", fix="Search the same split with both."
        )
    rows = np.full((len(first), depth), -1, np.int32)
    scores = np.full(rows.shape, -np.inf, np.float32)
    shares = (1.0, 1.0) if weight is None else (1 - weight, weight)
    for query in range(len(first)):
        lists = [
            (
                ranking.rows[query][ranking.rows[query] >= 0],
                ranking.scores[query][ranking.rows[query] >= 0],
            )
            for ranking in (first, second)
        ]
        points = [
            share * _points(part, weight is None)
            for share, (_, part) in zip(shares, lists, strict=True)
        ]
        distinct, places = np.unique(
            np.concatenate([part for part, _ in lists]), return_inverse=True
        )
        sums = np.bincount(places, np.concatenate(points), len(distinct)).astype(np.float32)
        ranks = np.full(len(distinct), np.inf)
        np.minimum.at(ranks, places, np.concatenate([np.arange(len(part)) for part, _ in lists]))
        seconds = np.full(len(distinct), -np.inf)
        seconds[places[len(lists[0][0]) :]] = lists[1][1]
        order = np.lexsort((distinct, -seconds, ranks, -sums))[:depth]
        keys = np.stack([sums, ranks, seconds])[:, order]
        rows[query, : len(order)] = distinct[order]
        scores[query, : len(order)] = _strict(sums[order], (keys[:, 1:] != keys[:, :-1]).any(0))
    return Ranking(first.query_ids, rows, scores, first.passages)


def _strict(sums: np.ndarray, differs: np.ndarray) -> np.ndarray:
    """Descending float32 scores, lowered by float32 steps until each that `differs` from its
    predecessor is below it, so that any tool that sorts by score gets the same order.
    """
    bits = sums.view(np.int32).astype(np.int64)
    # numbered in order, across zero
    numbers = np.where(bits >= 0, bits, -(bits & 0x7FFFFFFF))
    steps = np.append(0, np.cumsum(differs))[: len(sums)]
    numbers = np.minimum.accumulate(numbers + steps) - steps
    return np.sign(numbers) * np.abs(numbers).astype(np.int32).view(np.float32)


def _points(scores: np.ndarray, by_rank: bool) -> np.ndarray:
    """Points of the passages of one list, best first; 1 throughout for a list of equal scores."""
    if by_rank or not len(scores):
        return 1 / (K + 1 + np.arange(len(scores)))
    scores = scores.astype(np.float64)
    spread = scores[0] - scores[-1]
    return (scores - scores[-1]) / spread if spread else np.ones(len(scores))


@stage(reads=("tuning_split",))
def fused(
    folder: Path,
    runs: Sequence[Path],
    collection: Collection,
    tuning: Sequence[Path] = (),
    *,
    depth: int,
    tuning_split: str = "",
    measure: str = "",
    grade: int = 1,
) -> None:
    """`ranking/`: two fused runs; `fusion.json`: the weight of the second, and the tuning score of
    each weight.

    Args:
        folder: where to write.
        runs: two, for the reported queries.
        collection: whose judgements choose the weight.
        tuning: two runs of the same systems, in the same order, for the queries of `tuning_split`;
            empty for reciprocal rank.
        depth: passages kept for each query.
        tuning_split, measure, grade: what the weight is chosen by.
    """
    weight, scored = None, {}
    if tuning:
        pair = [Ranking.open(run / "ranking") for run in tuning]
        for weight in WEIGHTS:
            scores = evaluate_split(
                fuse(*pair, depth, weight), collection, tuning_split, [measure], grade=grade
            )
            scored[weight] = scores.mean(measure)
        weight = max(scored, key=scored.__getitem__)
    write_json(folder / "fusion.json", {"weight": weight, "scored": scored})
    fuse(*(Ranking.open(run / "ranking") for run in runs), depth, weight).save(folder / "ranking")
