"""Mined negatives: which may be in a list, how many, and that draws are reproducible."""

import sys
import tracemalloc
from types import SimpleNamespace

import datasets
import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.evaluation.measures import passage_similarities
from dr_lib.retrieval import Ranking, mine_negatives, negatives
from dr_lib.training import training_examples


def ranking(queries: int, depth: int, passages: int, seed: int = 0) -> Ranking:
    rng = np.random.default_rng(seed)
    steps = (np.arange(depth) * 7919) % passages
    rows = (rng.integers(0, passages, (queries, 1)) + steps) % passages
    scores = np.tile(np.arange(depth, 0, -1, dtype=np.float32), (queries, 1))
    return Ranking([str(i) for i in range(queries)], rows, scores)


def positives(made: Ranking, ranks: tuple[int, ...]) -> list[np.ndarray]:
    return [made.rows[query, list(ranks)].astype(np.int64) for query in range(len(made))]


def test_keep_draws_from_the_whole_depth():
    made = ranking(400, 50, 1000)
    drawn = mine_negatives(
        made, positives(made, (0,)), passages=1000, depth=40, keep=8, random_negatives=0
    )
    assert drawn.shape == (400, 8)
    ranks = (made.rows[:, None] == drawn[:, :, None]).argmax(axis=2).ravel()
    assert set(ranks.tolist()) == set(range(1, 41))
    counts = np.bincount(ranks, minlength=41)[1:]
    assert abs(counts / 400 - 0.2).max() < 0.08


def test_order_is_random_and_random_negatives_are_spread():
    made = ranking(2000, 10, 50_000)
    drawn = mine_negatives(
        made, positives(made, (0,)), passages=50_000, depth=9, random_negatives=9
    )
    known = (drawn[:, :, None] == made.rows[:, None]).any(axis=2)
    assert abs(known.mean(axis=0) - 0.5).max() < 0.06
    fresh = drawn[~known]
    assert abs(fresh.mean() / 50_000 - 0.5) < 0.02


def test_draws_repeat_with_the_seed_and_differ_without():
    made = ranking(20, 30, 1000)
    first, again, other = (
        mine_negatives(made, positives(made, (0,)), passages=1000, seed=s) for s in (1, 1, 2)
    )
    assert (first == again).all() and (first != other).any()


def test_which_are_drawn_depends_on_the_seed_and_not_on_a_querys_neighbours(monkeypatch):
    """Equal rankings in two blocks of queries get different draws, as do seeds, not only another
    order.
    """
    monkeypatch.setattr(sys.modules["dr_lib.retrieval.mining"], "QUERIES_AT_ONCE", 10)
    half = ranking(10, 50, 1000)
    made = Ranking([*map(str, range(20))], np.tile(half.rows, (2, 1)), np.tile(half.scores, (2, 1)))
    options = {"passages": 1000, "keep": 8, "random_negatives": 0}
    one, two = (np.sort(mine_negatives(made, [[]] * 20, **options, seed=s), axis=1) for s in (0, 1))
    assert (one != two).any(axis=1).all() and (one[:10] != one[10:]).any(axis=1).all()


def test_lists_hold_what_the_rules_allow_over_random_rankings():
    for seed in range(300):
        rng = np.random.default_rng(seed)
        passages = 100_000 if seed % 10 == 0 else int(rng.integers(1, 80))
        queries, width = int(rng.integers(1, 9)), int(rng.integers(1, 40))
        rows = np.full((queries, width), -1)
        for line in rows:
            count = int(rng.integers(0, min(passages, width) + 1))
            line[:count] = rng.permutation(passages)[:count]
        scores = np.where(rows >= 0, np.arange(width, 0, -1.0), -np.inf)
        made = Ranking([str(query) for query in range(queries)], rows, scores, passages)
        relevant = [
            np.sort(rng.permutation(passages)[: rng.integers(0, 6)]) for _ in range(queries)
        ]
        depth, extra = int(rng.integers(1, 50)), int(rng.integers(0, 12))
        keep = int(rng.integers(0, depth + 1)) if rng.random() < 0.5 else None
        among = np.flatnonzero(rng.random(passages) < 0.7) if seed % 3 == 0 else None
        allowed = set(range(passages) if among is None else among.tolist())
        options = {
            "depth": depth,
            "keep": keep,
            "random_negatives": extra,
            "seed": seed,
            "among": among,
        }
        drawn = mine_negatives(made, relevant, passages=passages, **options)
        wanted = depth if keep is None else keep
        assert drawn.shape == (queries, wanted + extra) and drawn.dtype == np.int32
        for line, ranked, positive in zip(drawn.tolist(), rows.tolist(), relevant, strict=True):
            filled = [row for row in line if row >= 0]
            hard = [row for row in ranked if row in allowed and row not in positive][:depth]
            free = allowed - set(ranked) - set(positive.tolist())
            assert line == filled + [-1] * (len(line) - len(filled))
            assert len(set(filled)) == len(filled)
            assert set(filled) <= set(hard) | free
            assert len(set(filled) & set(hard)) == min(wanted, len(hard))
            assert len(set(filled) & free) == min(len(free), len(line) - min(wanted, len(hard)))


def test_two_lists_of_negatives_are_put_together_in_little_memory_and_no_passage_stands_twice(
    tmp_path,
):
    rng, passages, width = np.random.default_rng(0), 3000, 200
    relevant = [rng.permutation(passages)[: rng.integers(0, 4)] for _ in range(1500)]
    collection = SimpleNamespace(
        passages=range(passages),
        same_text=None,
        own_texts=lambda split: None,
        positives=lambda split: relevant,
    )
    rows = rng.permuted(np.tile(np.arange(passages), (len(relevant), 1)), axis=1)
    Ranking(
        [str(query) for query in range(len(rows))],
        rows[:, :width],
        -np.tile(np.arange(width), (len(rows), 1)),
    ).save(tmp_path / "ranking")
    (tmp_path / "also").mkdir()
    further = np.where(
        rng.random((len(rows), width)) < 0.1, -1, rows[:, width // 2 : width // 2 + width]
    ).astype(np.int32)
    np.save(tmp_path / "also" / "negatives.npy", further)
    tracemalloc.start()
    negatives.body(
        tmp_path,
        tmp_path,
        collection,
        tmp_path / "also",
        depth=width - 10,
        random_negatives=10,
        seed=0,
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 45e6  # a comparison of all pairs would take 60 million
    for line, own, listed in zip(
        np.load(tmp_path / "negatives.npy"), relevant, further, strict=True
    ):
        first = set(line[:width].tolist())
        assert line[width:].tolist() == [
            -1 if row in first or row in own else row for row in listed.tolist()
        ]


def test_passages_of_other_splits_alone_are_left_out_of_the_lists_where_that_is_asked_for(tmp_path):
    """Passage 1 also answers a training query, 4 none at all; 2 and 3 could only be negatives."""
    right = {"train": [[0], [1]], "dev": [[1], [2]], "test": [[3, 0]]}
    rows_of = {split: [np.array(rows) for rows in queries] for split, queries in right.items()}
    collection = SimpleNamespace(
        passages=range(6),
        splits=tuple(right),
        same_text=None,
        own_texts=lambda split: None,
        positives=rows_of.get,
    )
    Ranking(
        ["a", "b"], np.array([[3, 1, 2, 0], [2, 3, 4, 1]]), np.array([[4.0, 3, 2, 1]] * 2)
    ).save(tmp_path / "ranking")
    drawn = {}
    for rule in (None, "drop"):
        negatives.body(
            tmp_path, tmp_path, collection, depth=2, random_negatives=1, seed=0, held_out=rule
        )
        drawn[rule] = [set(line) for line in np.load(tmp_path / "negatives.npy").tolist()]
    assert [3 in line for line in drawn[None]] == [True, True]
    assert (
        [len(line) for line in drawn["drop"]] == [3, 3]
        and drawn["drop"][0] == {1, 4, 5}
        and drawn["drop"][1] == {4, 0, 5}
    )


@pytest.mark.parametrize("rule", ["keep", "drop", "positive"])
def test_passages_that_hold_an_answer_are_kept_dropped_or_made_positives(rule, tmp_path):
    texts = [
        "the red fox",
        "a blue whale",
        "red and blue",
        "nothing here",
        "foxes",
        "a red whale",
        "blue",
        "grey",
    ]
    asked = {"answers": [["red"], ["whale"]]}
    collection = SimpleNamespace(
        passages=datasets.Dataset.from_dict({"text": texts}),
        queries=lambda split: datasets.Dataset.from_dict(asked),
        same_text=None,
        own_texts=lambda split: None,
        positives=lambda split: [np.array([2]), np.array([6])],
    )
    rows = np.array([[5, 3, 2, 0, 7], [4, 1, 6, 3, 5]])
    Ranking(["0", "1"], rows, np.tile(np.arange(5, 0, -1, dtype=np.float32), (2, 1))).save(
        tmp_path / "ranking"
    )
    also = tmp_path / "also"
    also.mkdir()
    np.save(also / "negatives.npy", np.array([[0, 7], [1, 4]], np.int32))
    negatives.body(
        tmp_path,
        tmp_path,
        collection,
        also,
        depth=4,
        random_negatives=0,
        seed=0,
        keep=None,
        answers=rule,
    )
    found = [set(line.tolist()) - {-1} for line in np.load(tmp_path / "negatives.npy")]
    if rule == "keep":
        assert {5, 3, 0, 7} <= found[0] and {4, 1, 3} <= found[1]
    else:  # holes are filled with passages from anywhere, never with one that contains an answer
        assert {3, 7} <= found[0] and found[0].isdisjoint({0, 2, 5})
        assert {3, 4} <= found[1] and found[1].isdisjoint({1, 5, 6})
    assert (tmp_path / "positives.npy").exists() == (rule == "positive")
    if rule == "positive":  # of the first four, in the ranking's order
        assert np.load(tmp_path / "positives.npy").tolist() == [[0, 5], [0, 0], [1, 1]]
        examples = training_examples(collection, tmp_path)
        assert (examples.positives.tolist(), examples.offsets.tolist()) == (
            [2, 5, 0, 6, 1],
            [0, 3, 5],
        )


def test_the_stage_draws_by_the_seed_it_is_given(tmp_path):
    made = ranking(12, 20, 200)
    made.save(tmp_path / "ranking")
    collection = SimpleNamespace(
        passages=range(200),
        same_text=None,
        positives=lambda split: positives(made, (0,)),
        own_texts=lambda split: None,
    )
    drawn = []
    for seed in (0, 0, 1):
        negatives.body(tmp_path, tmp_path, collection, depth=19, random_negatives=3, seed=seed)
        drawn.append(np.load(tmp_path / "negatives.npy"))
    assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])


def test_positives_and_queries_of_different_number_are_refused():
    """Without the check, the second query got its own positive as a negative."""
    made = ranking(2, 3, 9)
    for lists in (positives(made, (0,))[:1], [*positives(made, (0,)), made.rows[0, :1]]):
        with pytest.raises(InputError, match=f"^positives: of {len(lists)} queries, but 2"):
            mine_negatives(made, lists, passages=9, depth=2, random_negatives=1)
        with pytest.raises(InputError, match=f"^positives: of {len(lists)} queries, but 2"):
            passage_similarities(np.eye(2), np.eye(9, 2), made, lists)
