"""Queries on which two systems part: one answers them, the other does not (SimLM Tables 9 and 14, MASTER 9, PAIR 4).

Chosen examples prove nothing, so the choice is made by a rule and the number of such queries is part of it.
Page of the book: ideas/evaluation.
"""

from dataclasses import dataclass

import numpy as np

from dr_lib.evaluation.scores import Scores, paired_difference


@dataclass(frozen=True)
class Case:
    """One query and what each of two systems scored on it."""

    query_id: str
    first: float
    second: float


def flips(first: Scores, second: Scores, measure: str, *, threshold: float = 0.0) -> list[Case]:
    """Queries that the first system misses and the second answers, the widest gap first.

    Call it with the systems exchanged for the queries that are lost.

    Args:
        first, second: scores on the same queries, in any order.
        measure: e.g. "MRR@10".
        threshold: the first scores at most this, the second more.

    Returns:
        All such queries; equal gaps stay in the order of `first`.

    Raises:
        InputError: other queries, or an unknown measure.

    Example:
        >>> old, new = (Scores(["a", "b", "c"], {"R@1": values}) for values in ([0, 1, 0], [1, 0, 0]))
        >>> flips(old, new, "R@1")
        [Case(query_id='a', first=0.0, second=1.0)]
    """
    gaps = -paired_difference(first, second, measure)[0]
    places = {query: place for place, query in enumerate(second.query_ids)}
    before, after = first.per_query(measure), second.per_query(measure)[[places[query] for query in first.query_ids]]
    chosen = np.flatnonzero((before <= threshold) & (after > threshold))
    order = chosen[np.argsort(-gaps[chosen], kind="stable")]
    return [Case(first.query_ids[row], float(before[row]), float(after[row])) for row in order]
