"""One retriever over many collections, as BEIR asks (CDMAE Table 3, MASTER Table 4), and averages over them.

An average over collections gives each one the same weight, however many queries it has. One collection can carry it, so
it is also given without each: training data of MS MARCO, for example, may hold what a collection tests.
Page of the book: ideas/evaluation.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dr_lib import collections
from dr_lib.errors import InputError, check_share
from dr_lib.evaluation.measures import evaluate
from dr_lib.evaluation.scores import Scores
from dr_lib.evaluation.statistics import DRAWS, Interval, bootstrap_means, interval_of
from dr_lib.retrieval.ranking import Ranking

Search = Callable[[collections.Collection, str], Ranking]


@dataclass(frozen=True)
class Average:
    """Mean scores of a retriever.

    Attributes:
        measure: e.g. "nDCG@10".
        each: collection -> mean over its queries.
        mean: mean over the collections.
        without: collection -> mean over the others.
    """

    measure: str
    each: dict[str, float]
    mean: float
    without: dict[str, float]


def search_all(
    search: Search,
    searched: Mapping[str, collections.Collection],
    *,
    split: str = "test",
    measures: Sequence[str] = ("nDCG@10", "R@100"),
) -> dict[str, Scores]:
    """Search several collections with one retriever and score each against its own judgements.

    Args:
        search: takes a collection and the name of a split, and returns a ranking of the split's queries.
        searched: name -> collection.
        split: the split with the judgements, the same in all.
        measures: as `evaluate` takes them.

    Returns:
        name -> scores of the collection's queries.
    """
    scores = {}
    for name, collection in searched.items():
        ranking = search(collection, split)
        scores[name] = evaluate(ranking, collection.qrels(split), collection.passages["id"], measures)
    return scores


def average(scores: Mapping[str, Scores], measure: str, *, leave_out: Collection[str] = ()) -> Average:
    """Average a retriever's scores over collections, with and without each.

    Args:
        scores: collection -> scores.
        measure: one that all have.
        leave_out: collections that do not count at all (such as those with training data among the queries).

    Raises:
        InputError: nothing to average, an unknown name in `leave_out`, or a collection without the measure.

    Example:
        >>> scores = {"a": Scores(["1", "2"], {"nDCG@10": [0.0, 1.0]}), "b": Scores(["1"], {"nDCG@10": [1.0]})}
        >>> average(scores, "nDCG@10")
        Average(measure='nDCG@10', each={'a': 0.5, 'b': 1.0}, mean=0.75, without={'a': 1.0, 'b': 0.5})
    """
    unknown = set(leave_out) - scores.keys()
    kept = {name: one for name, one in scores.items() if name not in leave_out}
    if unknown or not kept:
        problem = f"no scores of {', '.join(sorted(unknown))}" if unknown else "no collection is left"
        raise InputError(problem, where="zero-shot average", fix=f"There are {', '.join(scores) or 'none'}.")
    each = {name: one.mean(measure) for name, one in kept.items()}
    values = np.array(list(each.values()))
    rest = (values.sum() - values) / (len(values) - 1) if len(values) > 1 else []
    return Average(measure, each, float(values.mean()), dict(zip(each, map(float, rest), strict=False)))


@dataclass(frozen=True)
class AverageInterval:
    """An average over collections with its interval.

    Attributes:
        each: collection -> mean over its queries.
        mean: mean over the collections.
        without: collection -> mean over the others; empty where there is one collection only.
    """

    each: dict[str, Interval]
    mean: Interval
    without: dict[str, Interval]


def average_interval(
    values: Mapping[str, np.ndarray], *, draws: int = DRAWS, seed: int = 0, level: float = 0.95
) -> AverageInterval:
    """Bootstrap intervals of an average over collections, the queries of each collection being drawn anew.

    The collections themselves are taken as they are: the interval says what other queries of the same collections would
    bring, not what other collections would.

    Args:
        values: collection -> `[queries]` or `[seeds, queries]`, scores or paired differences of two retrievers.
        draws, seed, level: as in `bootstrap_interval`; no two collections share their draws.

    Raises:
        InputError: nothing to average, or a value that is not a number.

    Example:
        >>> found = average_interval({"a": np.array([0.0, 1.0]), "b": np.ones(9)})
        >>> found.mean.mean, found.without["b"].mean, round(found.each["b"].low, 6)
        (0.75, 0.5, 1.0)
    """
    check_share(level, "level")
    if not values:
        raise InputError("no collection is left", where="zero-shot average", fix="Give the scores of at least one.")
    names = list(values)
    means = np.array([np.mean(values[name], dtype=np.float64) for name in names])
    drawn = np.stack(
        [bootstrap_means([values[name]], draws=draws, seed=seed + place)[0] for place, name in enumerate(names)]
    )
    each = {name: interval_of(float(mean), own, level) for name, mean, own in zip(names, means, drawn, strict=True)}
    without = {}
    for place, name in enumerate(names if len(names) > 1 else []):
        rest = np.arange(len(names)) != place
        without[name] = interval_of(float(means[rest].mean()), drawn[rest].mean(axis=0), level)
    return AverageInterval(each, interval_of(float(means.mean()), drawn.mean(axis=0), level), without)
