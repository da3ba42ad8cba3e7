"""How the stages after the first retriever are made: thin glue, one function a stage, as in `builds`.

Page of the book: ideas/pipeline.
"""

from pathlib import Path
from typing import Any

import numpy as np

from dr_lib import retrieval
from dr_lib.collections import Collection
from dr_lib.evaluation.answers import holds_answer
from dr_lib.lab.builds import Inputs, positives_of


def build_mined(
    folder: Path, inputs: Inputs, *, collection: Collection, options: dict[str, Any], drop_answers: bool
) -> None:
    """`negatives.npy`: `[queries, depth]` int32, mined from a retriever's ranking of the training queries.

    Further negatives (`also`) are put behind the mined ones, each passage once.
    """
    ranking = retrieval.Ranking.open(inputs["ranking"] / "ranking")
    positives = positives_of(collection, "train")
    if drop_answers:  # a passage that holds the answer is treated like a labelled positive: no negative, as in DPR
        held = holds_answer(ranking.rows, collection.passages, collection.queries("train")["answers"][:])
        answering = (np.asarray(ranking.rows[query])[found] for query, found in enumerate(held))
        positives = [np.union1d(*both).astype(np.int64) for both in zip(positives, answering, strict=True)]
    drawn = retrieval.mine_negatives(ranking, positives, passages=len(collection.passages), **options)
    if "also" in inputs:
        drawn = joined_lists(drawn, np.load(inputs["also"] / "negatives.npy"))
    np.save(folder / "negatives.npy", drawn)


def joined_lists(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Both lists of each query, a passage of the second that the first has too being left out (-1).

    Example:
        >>> joined_lists(np.array([[4, 7]]), np.array([[7, 9]]))
        array([[ 4,  7, -1,  9]])
    """
    repeated = (second[:, :, None] == first[:, None, :]).any(axis=2)
    return np.concatenate([first, np.where(repeated, -1, second)], axis=1)
