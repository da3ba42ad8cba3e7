"""How the stages after the first retriever are made: thin glue, one function a stage, as in `builds`.

Page of the book: ideas/pipeline.
"""

from pathlib import Path
from typing import Any

import numpy as np

from dr_lib import retrieval
from dr_lib.collections import Collection
from dr_lib.lab.builds import Inputs, right_ones


def build_mined(folder: Path, inputs: Inputs, *, collection: Collection, options: dict[str, Any], answers: str) -> None:
    """`negatives.npy`: `[queries, depth]` int32, mined from a retriever's ranking of the training queries.

    Further negatives (`also`) are put behind the mined ones, each passage once.
    """
    ranking = retrieval.Ranking.open(inputs["ranking"] / "ranking")
    right = right_ones(ranking, collection, "train", answers=answers)
    drawn = retrieval.mine_negatives(ranking, right, passages=len(collection.passages), **options)
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
