"""Similarities of positives against loops over single pairs."""

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.evaluation.measures import passage_similarities
from dr_lib.retrieval import Ranking, search

RNG = np.random.default_rng(0)
QUERIES, PASSAGES = (RNG.standard_normal((n, 6)).astype(np.float32) for n in (12, 80))
POSITIVES = [RNG.permutation(80)[: RNG.integers(0, 5)] for _ in range(12)]


def ranking() -> Ranking:
    scores, rows = search(QUERIES, PASSAGES, 40)
    return Ranking([f"q{i}" for i in range(12)], rows, scores)


def similarity(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(float), b.astype(float)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_values_equal_loops_over_pairs():
    run = ranking()
    found = passage_similarities(QUERIES, PASSAGES, run, POSITIVES, depth=30)
    expected = {}
    for i, query in enumerate(run.query_ids):
        top = run.rows[i, :30].tolist()
        near = [p for p in top if p in POSITIVES[i]]
        far = [p for p in top if p not in POSITIVES[i]]
        if near and far:
            expected[query] = (
                [similarity(PASSAGES[p], QUERIES[i]) for p in near],
                [similarity(PASSAGES[p], PASSAGES[n]) for p in near for n in far],
            )
    assert found.query_ids == list(expected) and 0 < len(expected) < 12
    for place, name in enumerate(("s(p+, q)", "s(p+, p-)")):
        for how in (np.mean, np.median):
            wanted = [how(values[place]) for values in expected.values()]
            assert found.per_query(f"{name} {how.__name__}").tolist() == pytest.approx(
                wanted, abs=1e-5
            )


def test_passages_that_do_not_exist_are_no_negatives():
    run = Ranking(["q"], np.array([[2, 1, -1]]), np.array([[2.0, 1.0, -np.inf]]))
    found = passage_similarities(QUERIES[:1], PASSAGES, run, [np.array([2])])
    assert found.mean("s(p+, p-) mean") == pytest.approx(
        similarity(PASSAGES[2], PASSAGES[1]), rel=1e-5
    )


def test_queries_without_any_pair_are_refused():
    with pytest.raises(InputError, match="Look deeper"):
        passage_similarities(QUERIES, PASSAGES, ranking(), [np.zeros(0, int)] * 12)
