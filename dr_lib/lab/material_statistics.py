"""Stages that count words: n-grams, the importance of each word from them (CDMAE), keyword weights (MASTER).

They depend on the tokens of the passages alone, so that all recipes over one collection and tokenizer share them,
whatever their lengths, seeds and models. Page of the book: ideas/masking.
"""

from functools import partial
from pathlib import Path
from typing import Any

from dr_lib.lab.builds import Inputs
from dr_lib.lab.means import Means
from dr_lib.lab.stage import Stage
from dr_lib.materials import (
    Edges,
    NgramCounts,
    Pmi,
    Unit,
    Weighting,
    count_ngrams,
    write_importances,
    write_keyword_weights,
)
from dr_lib.tokens import TokenStore

PAPERS_WINDOW = 4


def ngrams(means: Means, *, order: int = PAPERS_WINDOW, min_count: int | None = None, unit: Unit = "word") -> Stage:
    """How often each n-gram of the passages occurs; arguments as of `count_ngrams`."""
    params = {"order": order, "min_count": min_count, "unit": unit}
    build = partial(build_ngrams, **params)
    cost = float(order * len(means.collection.passages))
    return Stage("ngrams", 1, params, build, {"passages": means.passages}, cost=cost)


def importances(
    means: Means,
    *,
    window: int = PAPERS_WINDOW,
    pmi: Pmi = "naive",
    edges: Edges = "renorm",
    floor: float = 1.0,
    ppmi: bool = False,
    min_count: int | None = None,
    unit: Unit = "word",
) -> Stage:
    """The importance of each piece; arguments as of `write_importances`. Shorter windows share the counts of four."""
    params = {"window": window, "pmi": pmi, "edges": edges, "floor": floor, "ppmi": ppmi}
    counts = ngrams(means, order=max(window, PAPERS_WINDOW), min_count=min_count, unit=unit)
    inputs = {"passages": means.passages, "ngrams": counts}
    cost = float(window * len(means.collection.passages))
    return Stage("importances", 1, params, partial(build_importances, **params), inputs, cost=cost)


def keyword_weights(means: Means, *, weighting: Weighting = "inverse_count") -> Stage:
    """The keyword weight of each piece; arguments as of `write_keyword_weights`."""
    params = {"weighting": weighting}
    build = partial(build_keyword_weights, **params)
    cost = float(len(means.collection.passages))
    return Stage("keyword_weights", 1, params, build, {"passages": means.passages}, cost=cost)


def build_ngrams(folder: Path, inputs: Inputs, **options: Any) -> None:
    """`counts/`: sorted tables of words and n-grams."""
    count_ngrams(TokenStore.open(inputs["passages"] / "store"), folder / "counts", **options)


def build_importances(folder: Path, inputs: Inputs, **options: Any) -> None:
    """`values/`: the importance of each piece beside the tokens."""
    counts = NgramCounts.open(inputs["ngrams"] / "counts")
    write_importances(counts, TokenStore.open(inputs["passages"] / "store"), folder / "values", **options)


def build_keyword_weights(folder: Path, inputs: Inputs, **options: Any) -> None:
    """`values/`: the keyword weight of each piece beside the tokens."""
    write_keyword_weights(TokenStore.open(inputs["passages"] / "store"), folder / "values", **options)
