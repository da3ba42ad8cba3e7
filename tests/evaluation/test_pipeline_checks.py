"""What a pipeline's stages learned from, against loops over single queries."""

import importlib

import numpy as np
import pytest

from dr_lib.retrieval import Ranking
from dr_lib.training import Examples, TeacherScores

checks = importlib.import_module("dr_lib.evaluation.pipeline_checks")
RNG = np.random.default_rng(1)
QUERIES, PASSAGES, DEPTH, LISTED = 7, 30, 9, 4


@pytest.fixture(scope="module")
def listed() -> Examples:
    """Seven of nine queries, one to three positives each, four negatives, some of them missing."""
    drawn = [RNG.permutation(PASSAGES) for _ in range(QUERIES)]
    positives = [rows[: 1 + i % 3] for i, rows in enumerate(drawn)]
    negatives = np.stack([rows[5 : 5 + LISTED] for rows in drawn])
    negatives[2, 3], negatives[5] = -1, -1
    return Examples.of([0, 1, 3, 4, 5, 7, 8], positives, negatives, passages=PASSAGES)


def own(listed: Examples, query: int) -> tuple[list[int], list[int]]:
    """Places of a query's positives, and its negatives."""
    return list(range(listed.offsets[query], listed.offsets[query + 1])), listed.negatives[
        query
    ].tolist()


def test_teacher_scores_are_those_of_each_querys_own_passages(listed):
    teacher = TeacherScores(
        RNG.standard_normal(len(listed.positives)), RNG.standard_normal((QUERIES, LISTED))
    )
    chosen = np.array([1, 2, 5])
    best, negatives = checks.teacher_on_lists(teacher, listed, chosen)
    first, above = checks.positive_first(best, negatives), checks.share_above(best, negatives)
    for place, query in enumerate(chosen):
        positives, rows = own(listed, query)
        high = max(teacher.positives[positives])
        scored = [teacher.negatives[query, column] for column, row in enumerate(rows) if row >= 0]
        assert best[place] == high
        assert first[place] == all(high > one for one in scored)
        assert above[place] == pytest.approx(
            sum(one > high for one in scored) / max(len(scored), 1)
        )


def test_ranking_scores_are_minus_infinity_for_what_was_not_found(listed):
    rows = np.stack([RNG.permutation(PASSAGES)[:DEPTH] for _ in range(9)])
    ranking = Ranking(
        [str(i) for i in range(9)], rows, -np.sort(-RNG.standard_normal((9, DEPTH)), axis=1)
    )
    chosen = np.arange(QUERIES)
    best, negatives = checks.ranking_on_lists(ranking, listed, chosen)
    found = 0
    for query in chosen:
        asked = listed.query_rows[query]
        known = dict(zip(ranking.rows[asked].tolist(), ranking.scores[asked], strict=True))
        places, listed_rows = own(listed, query)
        assert best[query] == max(
            known.get(row, -np.inf) for row in listed.positives[places].tolist()
        )
        assert negatives[query].tolist() == [known.get(row, -np.inf) for row in listed_rows]
        found += np.isfinite(negatives[query]).sum()
    assert found > 0


def test_a_positive_that_was_not_found_is_not_first():
    assert not checks.positive_first(np.array([-np.inf]), np.array([[-np.inf, -np.inf]]))[0]


def test_shares_are_of_the_passages_that_are_there():
    marked = np.array([[False, True, True], [False, False, False]])
    assert checks.share_marked(np.array([[4, 7, -1], [7, 4, 1]]), marked).tolist() == [0.5, 0.0]


def test_an_empty_list_has_share_zero():
    assert checks.share_marked(np.full((1, 3), -1), np.ones((1, 3), bool)).tolist() == [0.0]
