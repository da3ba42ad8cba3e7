"""Passages of equal text are one passage in training, and queries of equal text one query: no copy
of a positive is ever a negative.
"""

import datasets
import numpy as np
import pytest
import torch

from dr_lib import losses
from dr_lib.collections import Collection
from dr_lib.materials.pseudo_labels import label
from dr_lib.retrieval import Bm25, Ranking, negatives
from dr_lib.training import Examples, training_examples
from dr_lib.training.examples import (
    draw_negatives,
    draw_positives,
    known_positives,
    merge_examples,
    one_row_a_text,
)

WORDS = ["moon", "tide", "sea", "salt", "wind", "wave", "sand", "reef", "gull", "crab"]


def collection(
    texts: list[str], queries: list[str], qrels: dict[str, dict[str, int]]
) -> Collection:
    passages = {
        "id": [f"p{i}" for i in range(len(texts))],
        "title": [""] * len(texts),
        "text": texts,
    }
    passages |= {"doc": [""] * len(texts), "position": [0] * len(texts)}
    asked = {
        "id": [f"q{i}" for i in range(len(queries))],
        "text": queries,
        "answers": [[]] * len(queries),
    }
    judged = [(q, p, g) for q, grades in qrels.items() for p, g in grades.items()]
    columns = dict(
        zip(("query", "passage", "grade"), map(list, zip(*judged, strict=True)), strict=True)
    )
    made = [datasets.Dataset.from_dict(part) for part in (passages, asked, columns)]
    return Collection("copies", "0" * 64, {}, *made[:2], {"train": made[2]})


@pytest.fixture
def twins() -> Collection:
    """p1 and p4 have one text, as have q0 and q3."""
    texts = [
        "sand reef",
        "moon tide sea",
        "salt wind",
        "wave gull tide",
        "moon tide sea",
        "crab sea",
    ]
    queries = ["tide of the moon", "salt", "gull", "tide of the moon "]
    qrels = {"q0": {"p4": 1}, "q1": {"p2": 1}, "q2": {"p3": 1}, "q3": {"p5": 1, "p0": 0}}
    return collection(texts, queries, qrels)


def test_the_first_of_each_text_stands_for_all_and_equal_queries_share_positives(twins):
    assert twins.same_text.tolist() == [0, 1, 2, 3, 1, 5]
    assert [rows.tolist() for rows in twins.positives("train")] == [[1, 5], [2], [3], [5, 1]]
    assert [rows.tolist() for rows in twins.relevant_rows("train")] == [[4], [2], [3], [5]]


def test_without_repeats_nothing_is_numbered_anew():
    plain = collection(["a b", "c d", "e"], ["x", "y"], {"q0": {"p2": 1, "p0": 1}, "q1": {"p1": 1}})
    assert plain.same_text is None and training_examples(plain).same is None
    assert [rows.tolist() for rows in plain.positives("train")] == [[2, 0], [1]]
    counted = Collection("n", "0", {"counts": {"duplicate_texts": 0}}, None, None, {})
    assert counted.same_text is None  # and no passage was read


def test_mined_negatives_hold_no_copy_of_a_positive(twins, tmp_path):
    index = Bm25.build(twins.passages)
    asked = twins.queries("train")
    ranking = index.search(asked["text"][:], 6, query_ids=asked["id"][:])
    ranking.save(tmp_path / "run" / "ranking")
    negatives.body(tmp_path, tmp_path / "run", twins, depth=5, random_negatives=3, seed=0)
    drawn = np.load(tmp_path / "negatives.npy")
    assert 1 in ranking.rows[0] and 4 in ranking.rows[0]
    assert not np.isin(drawn[0], [1, 4, 5]).any() and not np.isin(drawn[3], [1, 4, 5]).any()
    # of the copies one is drawn, once
    assert set(drawn[1][drawn[1] >= 0].tolist()) == {0, 1, 3, 5}
    examples = training_examples(twins, tmp_path)
    assert examples.first_positives().tolist() == [1, 2, 3, 5]


@pytest.mark.parametrize("blocks", ["released", "paper", "query_passage"])
def test_a_perfect_encoder_has_no_loss_beside_a_copy(twins, blocks):
    """The review's case: equal texts have equal vectors, all others are orthogonal."""
    listed = [[4, 0], [0, 4], [2, 0], [4, 2]]  # q0 and q3 list the copy of a positive
    examples = one_row_a_text(
        Examples.of([0, 1, 2, 3], twins.positives("train"), listed, passages=6), twins.same_text
    )
    chosen = np.arange(3)
    positives = draw_positives(examples, chosen, seed=0, epoch=0, rule="first")
    drawn = draw_negatives(examples, chosen, 2, seed=0, epoch=0)
    columns = np.concatenate([positives[:, None], drawn], axis=1).ravel()
    known = known_positives(examples, chosen, columns, passages_per_query=3)
    passages = torch.eye(6)[columns]
    queries = torch.eye(6)[positives]
    loss = losses.contrastive(
        queries,
        passages,
        blocks=blocks,
        passage_ids=torch.from_numpy(columns),
        known_positives=torch.from_numpy(known),
    )
    assert loss.item() < 1e-6


def test_queries_of_equal_text_are_no_negatives_of_each_other(twins):
    examples = training_examples(twins)
    columns = np.array([1, 5])  # the positives of q0 and of q3
    known = known_positives(examples, np.array([0, 3]), columns, passages_per_query=1)
    assert known.tolist() == [[False, True], [True, False]]


def test_labels_of_a_teacher_say_of_copies_what_they_say_of_the_first():
    rows, chances = np.array([[4, 1, 2, 0]]), np.array([[0.95, 0.05, 0.02, 0.01]])
    same = np.array([0, 1, 0, 3, 1])
    found = one_row_a_text(label(rows, chances, passages=5), same)
    assert found.positives.tolist() == [1] and found.negatives[0].tolist() == [-1, 0, -1]
    both = merge_examples(found, found)
    assert both.same is found.same and both.positives.tolist() == [1]


@pytest.mark.parametrize("seed", range(30))
def test_a_collection_with_copies_trains_as_the_one_without(seed, tmp_path):
    """The slow twin: positives, lists and draws as sets of texts, one passage a text."""
    draw = np.random.default_rng(seed)
    kinds = [" ".join(draw.choice(WORDS, 3)) + f" {i}x" for i in range(8)]
    texts = [*kinds, *draw.choice(kinds, int(draw.integers(1, 12)))]
    order = draw.permutation(len(texts))
    texts = [str(texts[i]) for i in order]
    queries = [f"{draw.choice(WORDS)} {draw.integers(3)}" for _ in range(6)]
    qrels = {
        f"q{i}": {
            f"p{row}": 1 for row in draw.choice(len(texts), int(draw.integers(1, 3)), replace=False)
        }
        for i in range(6)
    }
    made = collection(texts, queries, qrels)
    right = {i: {texts[int(p[1:])] for p in qrels[f"q{i}"]} for i in range(6)}
    right = {
        i: set().union(*(right[j] for j in range(6) if queries[j] == queries[i])) for i in range(6)
    }
    rows = np.stack([draw.permutation(len(texts))[:7] for _ in range(6)])
    ranking = Ranking([f"q{i}" for i in range(6)], rows, np.tile(-np.arange(7.0), (6, 1)))
    ranking.save(tmp_path / "run" / "ranking")
    negatives.body(tmp_path, tmp_path / "run", made, depth=4, random_negatives=2, seed=seed)
    examples = training_examples(made, tmp_path)
    assert examples.texts() == len(set(texts))
    for query in range(6):
        known = {texts[row] for row in examples.positives_of(np.array([query]))[0]}
        assert known == right[query]
        for epoch in range(3):
            drawn = draw_negatives(examples, np.array([query]), 5, seed=seed, epoch=epoch)[0]
            found = [texts[row] for row in drawn]
            assert not known & set(found)
            if len(set(texts)) - len(known) - (examples.negatives[query] >= 0).sum() >= 5:
                assert len(set(found)) == 5
        listed = [texts[row] for row in examples.negatives[query] if row >= 0]
        assert len(listed) == len(set(listed)) and not known & set(listed)
    examples.save(tmp_path / "examples")
    assert np.array_equal(Examples.open(tmp_path / "examples").same, made.same_text)
