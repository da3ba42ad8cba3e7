"""Fusion of two rankings: equal to a few lines of numpy, a strict order for ties, and a weight
chosen on the right split.
"""

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.evaluation import fuse, fused
from dr_lib.files import read_json
from dr_lib.retrieval import Ranking

PASSAGES = 12


def ranking(seed: int, queries: int = 6, depth: int = 8) -> Ranking:
    """Random rows with many equal scores; some lists are short, and one is empty."""
    rng = np.random.default_rng(seed)
    rows, scores = np.full((queries, depth), -1), np.full((queries, depth), -np.inf)
    for query in range(queries):
        found = rng.choice(PASSAGES, rng.integers(0, depth + 1) if query else 0, replace=False)
        values = rng.integers(0, 4, len(found)) / 2
        order = np.lexsort((found, -values))
        rows[query, : len(found)], scores[query, : len(found)] = found[order], values[order]
    return Ranking([f"q{query}" for query in range(queries)], rows, scores, PASSAGES)


def dense(one: Ranking, query: int, weight: float | None) -> np.ndarray:
    """Points of every passage of the collection, `-1` if missing in the list."""
    points = np.full(PASSAGES, -1.0)
    rows = one.rows[query][one.rows[query] >= 0]
    scores = one.scores[query][: len(rows)].astype(float)
    if weight is None:
        points[rows] = 1 / (60 + np.arange(1, len(rows) + 1))
    elif len(rows):
        low, high = scores.min(), scores.max()
        points[rows] = weight * (
            (scores - low) / (high - low) if high > low else np.ones(len(rows))
        )
    return points


def strict(first: Ranking, second: Ranking, query: int, sums: np.ndarray, row: int) -> tuple:
    """Sort key: sum, better rank, score of the second ranking, row; smaller comes first."""
    lists = [one.rows[query].tolist() for one in (first, second)]
    score = second.scores[query][lists[1].index(row)] if row in lists[1] else -np.inf
    return -sums[row], min(own.index(row) for own in lists if row in own), -score, row


@pytest.mark.parametrize("weight", [None, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("depth", [3, 20])
def test_fusion_is_what_a_table_of_all_passages_gives(weight, depth):
    first, second = ranking(1), ranking(2)
    fusion = fuse(first, second, depth, weight)
    for query in range(len(first)):
        mine = (
            dense(first, query, None if weight is None else 1 - weight),
            dense(second, query, weight),
        )
        sums = sum(np.maximum(points, 0) for points in mine).astype(np.float32)
        known = [row for row in range(PASSAGES) if max(points[row] for points in mine) >= 0]
        expected = sorted(known, key=lambda row: strict(first, second, query, sums, row))[:depth]
        assert fusion.rows[query][: len(expected)].tolist() == expected
        assert (fusion.rows[query][len(expected) :] == -1).all()
        scores = sums[expected]
        for place in range(1, len(expected)):
            one, other = (
                strict(first, second, query, sums, row) for row in expected[place - 1 : place + 1]
            )
            if one[:3] == other[:3]:
                scores[place] = scores[place - 1]
            elif scores[place] >= scores[place - 1]:
                scores[place] = np.nextafter(scores[place - 1], np.float32(-1))
        np.testing.assert_array_equal(fusion.scores[query][: len(expected)], scores)


def test_equal_sums_are_decided_by_the_encoder_and_only_then_by_row():
    one, other = (
        Ranking(["q"], np.array([rows]), np.array([[2.0, 1.0]]), 10) for rows in ([9, 3], [3, 9])
    )
    assert np.diff(fuse(one, other, 2).scores).item() < 0
    assert fuse(one, other, 2).rows.tolist() == fuse(one, other, 2, 0.5).rows.tolist() == [[3, 9]]
    # with the encoder as the second ranking, its score decides and not the row
    assert fuse(other, one, 2).rows.tolist() == [[9, 3]]
    one, other = (
        Ranking(["q"], np.array([rows]), np.array([values]), 10)
        for rows, values in (([3, 9, 5], [1.0, 1.0, 0.0]), ([5, 9, 3], [1.0, 2**-30, 0.0]))
    )
    # 2**-31 above the others' sum is level in float32; 5 and 3 are first in one ranking each
    assert fuse(one, other, 3, 0.5).rows.tolist() == [[5, 3, 9]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.permutations(range(PASSAGES)))
def test_the_order_of_lines_in_a_collection_moves_nothing(seed, names):
    """Permuted passages give the same fused order, if no ranking has equal scores."""
    rng, names = np.random.default_rng(seed), np.array(names)
    lists = [rng.permutation(PASSAGES)[: rng.integers(1, PASSAGES)] for _ in range(2)]

    def run(rows: np.ndarray) -> Ranking:
        return Ranking(["q"], rows[None], -np.arange(len(rows), dtype=np.float32)[None], PASSAGES)

    one = fuse(*map(run, lists), PASSAGES)
    other = fuse(*(run(names[rows]) for rows in lists), PASSAGES)
    mine, renamed = one.rows[one.rows >= 0], other.rows[other.rows >= 0]
    # a passage that the encoder lacks ties only with one that it has, so rows decide nothing
    assert names[mine].tolist() == renamed.tolist()
    np.testing.assert_array_equal(one.scores, other.scores)


def test_other_queries_are_refused():
    other = Ranking(["x"], np.array([[1]]), np.array([[1.0]]))
    with pytest.raises(InputError, match="different queries"):
        fuse(ranking(1), other, 3)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_that_is_not_a_share_is_refused(weight):
    with pytest.raises(InputError, match=r"^weight: "):
        fuse(ranking(1), ranking(1), 3, weight)


def test_the_weight_is_the_best_on_the_split_it_is_chosen_on(tmp_path):
    """The second system ranks the relevant passage first, the first one second: every weight from
    one half on is perfect.
    """
    columns = {
        "id": list("abcdef"),
        "title": [""] * 6,
        "text": list("uvwxyz"),
        "doc": [""] * 6,
        "position": [0] * 6,
    }
    asked = {"id": ["q", "r"], "text": ["v", "x"], "answers": [[], []]}
    judged = {"query": ["q", "q", "r", "r"], "passage": ["b", "c", "d", "e"], "grade": [2, 1, 2, 1]}
    tables = [datasets.Dataset.from_dict(one) for one in (columns, asked, judged)]
    collection = Collection("t", "0" * 64, {}, tables[0], tables[1], {"dev": tables[2]})
    for name, rows in (("first", [[2, 1], [4, 3]]), ("second", [[1, 2], [3, 4]])):
        Ranking(["q", "r"], np.array(rows), np.array([[2.0, 1.0]] * 2), 6).save(
            tmp_path / name / "ranking"
        )
    runs = [tmp_path / "first", tmp_path / "second"]
    options = {"depth": 6, "tuning_split": "dev", "measure": "MRR@10", "grade": 2}
    fused.body(tmp_path, runs, collection, runs, **options)
    facts = read_json(tmp_path / "fusion.json")
    assert (
        facts["weight"]
        == 0.5
        == min(float(weight) for weight, mean in facts["scored"].items() if mean == 1)
    )
    assert facts["scored"]["0.45"] == 0.5
    assert Ranking.open(tmp_path / "ranking").rows[:, 0].tolist() == [1, 3]
