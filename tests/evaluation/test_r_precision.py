"""R-precision against plain loops over lists."""

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.evaluation import evaluate
from dr_lib.retrieval import Ranking

IDS = [f"p{i}" for i in range(40)]


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
