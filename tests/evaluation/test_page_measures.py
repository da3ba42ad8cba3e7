"""R-precision over passages, pages and sets of evidence, against plain loops over lists."""

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.evaluation import evaluate, page_ids, page_qrels, page_ranking, r_precision
from dr_lib.retrieval import Ranking

IDS = [f"p{i}" for i in range(40)]
PAGES = page_ids([f"page {i % 7}" if i % 5 else "" for i in range(40)], IDS)


def random_ranking(queries: int = 30, depth: int = 40, seed: int = 0) -> Ranking:
    """Scores in steps of one, so that many are tied."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.permutation(40)[:depth] for _ in range(queries)])
    scores = np.round(3 * rng.standard_normal((queries, depth)))
    rows[::4, depth // 3 :], scores[::4, depth // 3 :] = -1, -np.inf
    order = np.lexsort((np.where(rows < 0, 99, rows), -scores), axis=1)
    names = [f"q{i}" for i in range(queries)]
    return Ranking(names, np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1))


def random_qrels(seed: int = 1) -> dict[str, dict[str, int]]:
    rng = np.random.default_rng(seed)
    return {
        f"q{i}": {
            IDS[p]: int(rng.integers(0, 3)) for p in rng.permutation(40)[: rng.integers(1, 9)]
        }
        for i in range(30)
    }


def by_hand(found: list, relevant: set) -> float:
    return len(set(found[: len(relevant)]) & relevant) / len(relevant) if relevant else 0.0


@pytest.mark.parametrize("grade", [1, 2])
def test_r_precision_is_the_share_of_relevant_ones_among_the_first_r(grade):
    ranking, qrels = random_ranking(), random_qrels()
    values = evaluate(ranking, qrels, IDS, ["R-precision"], grade=grade).per_query("R-precision")
    for place, (query, grades) in enumerate(qrels.items()):
        found = [IDS[row] for row in ranking.rows[place] if row >= 0]
        expected = by_hand(found, {p for p, own in grades.items() if own >= grade})
        assert values[place] == pytest.approx(expected), query


def test_relevant_passages_that_the_collection_lacks_lower_r_precision():
    ranking = Ranking(["q"], np.array([[0, 1]]), np.array([[2.0, 1.0]]))
    assert (
        evaluate(ranking, {"q": {"p0": 1, "gone": 1}}, IDS, ["R-precision"]).mean("R-precision")
        == 0.5
    )


def test_a_ranking_too_short_for_r_precision_is_refused():
    ranking = Ranking(["q"], np.array([[0]]), np.array([[1.0]]))
    with pytest.raises(InputError, match="2 relevant passages, the ranking 1"):
        evaluate(ranking, {"q": {"p0": 1, "p1": 1}}, IDS, ["R-precision"])


def test_each_page_counts_once_at_its_best_passage():
    ranking = random_ranking()
    pages, names = page_ranking(ranking, PAGES)
    assert names == list(dict.fromkeys(PAGES))
    for place in range(len(ranking)):
        best = {}
        for row, score in zip(ranking.rows[place], ranking.scores[place], strict=True):
            if row >= 0:
                best.setdefault(PAGES[row], float(score))
        found = [row for row in pages.rows[place] if row >= 0]
        assert {
            names[row]: float(s) for row, s in zip(found, pages.scores[place], strict=False)
        } == best
        assert [best[names[row]] for row in found] == sorted(best.values(), reverse=True)


def test_passages_without_a_document_are_pages_of_their_own():
    assert len({PAGES[i] for i in range(0, 40, 5)}) == 8


def test_a_page_has_the_best_grade_of_its_passages():
    qrels = page_qrels({"q": {"p1": 1, "p8": 2, "p2": 0, "gone": 1}}, PAGES, IDS)
    assert qrels == {"q": {"page 1": 2, "page 2": 0, "passage gone": 1}}
    backwards = page_qrels({"q": {"p8": 2, "p1": 1}}, PAGES, IDS)
    assert backwards == {"q": {"page 1": 2}}


def test_page_level_r_precision_is_that_of_the_pages():
    ranking, qrels = random_ranking(), random_qrels()
    pages, names = page_ranking(ranking, PAGES)
    judged = page_qrels(qrels, PAGES, IDS)
    values = evaluate(pages, judged, names, ["R-precision"]).per_query("R-precision")
    for place, grades in enumerate(judged.values()):
        found = [names[row] for row in pages.rows[place] if row >= 0]
        assert values[place] == pytest.approx(
            by_hand(found, {p for p, grade in grades.items() if grade})
        )


def test_with_several_sets_of_evidence_the_best_counts():
    ranking = Ranking(
        ["a", "b"], np.array([[0, 1, 2], [3, 4, 5]]), np.tile([3.0, 2.0, 1.0], (2, 1))
    )
    evidence = {
        "b": [["p4"], ["p5", "p4", "p9"]],
        "a": [["p7"], ["p1", "p0"]],
        "c": [["p0"]],
        "d": [],
    }
    scores = r_precision(ranking, evidence, IDS)
    assert scores.query_ids == ["b", "a", "c", "d"]
    assert scores.per_query("R-precision") == pytest.approx([2 / 3, 1, 0, 0])


def test_one_set_of_evidence_is_plain_r_precision():
    ranking, qrels = random_ranking(), random_qrels()
    evidence = {
        query: [[p for p, grade in grades.items() if grade]] for query, grades in qrels.items()
    }
    plain = evaluate(ranking, qrels, IDS, ["R-precision"]).per_query("R-precision")
    assert np.array_equal(r_precision(ranking, evidence, IDS).per_query("R-precision"), plain)
