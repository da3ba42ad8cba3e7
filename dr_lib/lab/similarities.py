"""The stage behind PAIR's Figure 4: how near the positives among the first passages found lie to query and negatives.

Page of the book: ideas/passage-centric. Its values are kept like those of any run, one a query, so that records and
intervals work for them as for measures.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from dr_lib.collections import Collection
from dr_lib.evaluation import passage_similarities
from dr_lib.lab.builds import Inputs
from dr_lib.lab.recipe import Recipe
from dr_lib.lab.stage import Stage
from dr_lib.lab.way import Way, unfold
from dr_lib.retrieval import Ranking, judged_rows

DEPTH = 100
"""First passages of each query that are looked at, as in the paper."""


def unfold_similarities(recipe: Recipe) -> Way:
    """The way of a recipe that ends with a retriever, gone on to the values of `passage_similarities`."""
    way, split = unfold(recipe), recipe.evaluation.split
    params = {"collection": way.searched.digest, "split": split, "depth": DEPTH}
    build = partial(build_similarities, collection=way.searched, split=split)
    inputs = {"run": way.run, "vectors": way.vectors}
    return replace(way, evaluation=Stage("similarities", 1, params, build, inputs))


def build_similarities(folder: Path, inputs: Inputs, *, collection: Collection, split: str) -> None:
    """`scores.json`: both similarities of each query that has a positive and a negative among those found."""
    ranking = Ranking.open(inputs["run"] / "ranking")
    queries = np.load(inputs["run"] / "queries.npy", mmap_mode="r")
    passages = np.load(inputs["vectors"] / "vectors.npy", mmap_mode="r")
    positives = judged_rows(collection.qrels(split), ranking.query_ids, collection.passages["id"])
    passage_similarities(queries, passages, ranking, positives, depth=DEPTH).save(folder / "scores.json")
