"""Measures against formulas by hand and against ir-measures called on whole runs."""

import math

import ir_measures
import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.evaluation import evaluate
from dr_lib.evaluation.measures import parse
from dr_lib.retrieval import Ranking

IDS = [f"p{i}" for i in range(60)]
ALL = ("MRR@10", "MRR@3", "R@5", "R@20", "R@1k", "nDCG@10", "nDCG@25", "P@5", "AP@20", "Success@5")


def random_run(queries: int = 40, depth: int = 25, seed: int = 0) -> tuple[Ranking, dict[str, dict[str, int]]]:
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(60)[:depth] for _ in range(queries)]).astype(np.int32)
    scores = -np.sort(-rng.standard_normal((queries, depth)), axis=1).astype(np.float32)
    rows[::7, depth // 2 :], scores[::7, depth // 2 :] = -1, -np.inf
    qrels = {
        f"q{i}": {IDS[p]: int(rng.integers(0, 4)) for p in rng.permutation(60)[: rng.integers(1, 12)]}
        for i in rng.permutation(queries)
    }
    return Ranking([f"q{i}" for i in range(queries)], rows, scores), qrels


@pytest.mark.parametrize("relevance", [1, 2])
def test_values_equal_a_plain_call_on_the_whole_run(relevance):
    ranking, qrels = random_run()
    run = {
        query: {IDS[row]: float(100 - rank) for rank, row in enumerate(rows.tolist()) if row >= 0}
        for query, rows in zip(ranking.query_ids, ranking.rows, strict=True)
    }
    scores = evaluate(ranking, qrels, IDS, ALL, relevance=relevance)
    assert scores.query_ids == list(qrels)
    for name in ALL:
        measure = parse(name, relevance)[2]
        plain = {m.query_id: m.value for m in ir_measures.iter_calc([measure], qrels, run)}
        np.testing.assert_allclose(scores.values[name], [plain[query] for query in qrels], atol=1e-7)


def test_values_equal_the_formulas_by_hand():
    ranking = Ranking(["q"], np.array([[4, 1, 7, 2]]), np.array([[4.0, 3.0, 2.0, 1.0]]))
    qrels = {"q": {"p1": 1, "p2": 3, "p4": 0, "p50": 2, "not there": 1}}
    scores = evaluate(ranking, qrels, IDS, ("MRR@10", "R@2", "R@4", "nDCG@10", "P@4"))
    ideal = sum(grade / math.log2(rank + 1) for rank, grade in enumerate([3, 2, 1, 1], 1))
    gained = 1 / math.log2(3) + 3 / math.log2(5)
    expected = {"MRR@10": 0.5, "R@2": 0.25, "R@4": 0.5, "nDCG@10": gained / ideal, "P@4": 0.5}
    for name, value in expected.items():
        assert scores.mean(name) == pytest.approx(value, abs=1e-6), name


def test_graded_relevance_moves_recall_and_mrr_but_not_ndcg():
    ranking = Ranking(["q"], np.array([[1, 2]]), np.array([[2.0, 1.0]]))
    qrels = {"q": {"p1": 1, "p2": 2}}
    low, high = (evaluate(ranking, qrels, IDS, ("MRR@10", "R@1", "nDCG@10"), relevance=r) for r in (1, 2))
    assert (low.mean("MRR@10"), high.mean("MRR@10")) == (1.0, 0.5)
    assert (low.mean("R@1"), high.mean("R@1")) == (0.5, 0.0)
    assert low.mean("nDCG@10") == high.mean("nDCG@10")


def test_equal_scores_keep_the_rankings_order():
    qrels = {"q": {"p3": 1}}
    for rows, expected in (([3, 50], 1.0), ([2, 3], 0.5)):
        ranking = Ranking(["q"], np.array([rows]), np.zeros((1, 2)))
        assert evaluate(ranking, qrels, IDS, ("MRR@10",)).mean("MRR@10") == expected


def test_queries_that_the_run_lacks_count_zero():
    ranking = Ranking(["a"], np.array([[0]]), np.array([[1.0]]))
    scores = evaluate(ranking, {"b": {"p1": 1}, "a": {"p0": 1}}, IDS, ALL)
    assert scores.query_ids == ["b", "a"]
    for name in ALL:
        assert scores.values[name].tolist()[0] == 0.0 and scores.values[name][1] > 0


def test_queries_without_a_relevant_passage_count_zero():
    ranking = Ranking(["a", "b"], np.array([[0], [1]]), np.array([[1.0], [1.0]]))
    scores = evaluate(ranking, {"a": {"p0": 0}, "b": {"p1": 1}}, IDS, ALL)
    assert all(scores.values[name][0] == 0 and scores.values[name][1] > 0 for name in ALL)


def test_queries_without_judgements_are_left_out():
    ranking = Ranking(["a", "b"], np.array([[0], [1]]), np.array([[1.0], [1.0]]))
    assert evaluate(ranking, {"b": {"p1": 1}}, IDS, ("MRR@10",)).query_ids == ["b"]


def test_passages_judged_for_another_query_do_not_count():
    ranking = Ranking(["a", "b"], np.array([[0, 1], [2, 3]]), np.array([[2.0, 1.0], [2.0, 1.0]]))
    scores = evaluate(ranking, {"a": {"p2": 1}, "b": {"p0": 1}}, IDS, ("R@2", "Success@2"))
    assert scores.mean("R@2") == scores.mean("Success@2") == 0


@pytest.mark.parametrize("name", ["MRR", "R@0", "R@x", "Speed@10", "nDCG@10 "])
def test_unknown_measure_is_refused_with_the_known_ones(name):
    ranking, qrels = random_run(4)
    with pytest.raises(InputError, match="MRR@k, R@k, nDCG@k"):
        evaluate(ranking, qrels, IDS, (name,))


def test_ranking_of_another_collection_or_split_is_refused():
    ranking, qrels = random_run(4)
    with pytest.raises(InputError, match="of 5 passages"):
        evaluate(ranking, qrels, IDS[:5])
    with pytest.raises(InputError, match="none of the judged queries"):
        evaluate(ranking, {"other": {"p0": 1}}, IDS)
