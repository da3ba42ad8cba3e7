"""Batches of fine-tuning; copies of a passage, or of a query, count as one in training: no copy of
a positive is ever a negative.
"""

import datasets
import numpy as np
import pytest
import torch

from dr_lib import losses
from dr_lib.collections import Collection
from dr_lib.errors import InputError
from dr_lib.materials.pseudo_labels import label
from dr_lib.retrieval import Bm25, Ranking, negatives
from dr_lib.tokens import Layout
from dr_lib.training import Examples, RetrievalBatches, training_examples
from dr_lib.training.batches import EpochSampler
from dr_lib.training.examples import (
    draw_negatives,
    draw_positives,
    known_positives,
    merge_duplicates,
    merge_examples,
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
    """p1 and p4 have the same text, as have q0 and q3."""
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
    """Equal texts have equal vectors, all others are orthogonal."""
    listed = [[4, 0], [0, 4], [2, 0], [4, 2]]  # q0 and q3 list the copy of a positive
    examples = merge_duplicates(
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
    found = merge_duplicates(label(rows, chances, passages=5), same)
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
    assert examples.texts == len(set(texts))
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


@pytest.fixture
def examples() -> Examples:
    rng = np.random.default_rng(0)
    positives = [[query, 60 + query] if query % 2 else [query] for query in range(22)]
    return Examples.of(
        rng.permutation(30)[:22], positives, 100 + rng.integers(0, 80, (22, 9)), passages=200
    )


@pytest.fixture
def make(counted_store, examples):
    def build(**values):
        options = {"batch_queries": 5, "passages_per_query": 4, "seed": 2, **values}
        return RetrievalBatches(counted_store(30, 30), counted_store(200, 200), examples, **options)

    return build


def test_each_query_is_followed_by_its_positive_and_its_own_negatives(make, examples):
    batch = make().batch(6)
    row_of = {row: query for query, row in enumerate(examples.query_rows.tolist())}
    for row, group in zip(
        batch.queries.rows.tolist(), batch.passage_rows.reshape(5, 4).tolist(), strict=True
    ):
        query = row_of[row]
        assert group[0] in examples.positives[examples.offsets[query] : examples.offsets[query + 1]]
        assert set(group[1:]) <= set(examples.negatives[query].tolist())
    assert torch.equal(batch.passages.rows, batch.passage_rows)


def test_shapes_are_few_and_fixed(make):
    shapes = {make().batch(step).passages.input_ids.shape for step in range(8)}
    assert shapes == {(20, 16)}
    assert make().batch(0).known_positives.shape == (5, 20)


def test_without_hard_negatives_there_is_one_passage_a_query(make):
    batch = make(passages_per_query=1).batch(0)
    assert len(batch.passages) == len(batch) == 5
    assert not batch.known_positives.diagonal().any()


def test_a_batch_knows_the_positives_among_the_passages_of_all_processes(
    counted_store, monkeypatch
):
    own = np.arange(24)[:, None] % 12  # the same passage is right for two queries, and each has two
    positives, negatives = np.hstack([own, own + 4]) % 12, np.hstack([own + 1, own + 2]) % 12
    examples = Examples.of(np.arange(24), positives, negatives, passages=12)

    stores = counted_store(24, 24), counted_store(12, 12)
    batches = RetrievalBatches(*stores, examples, batch_queries=8, passages_per_query=2)
    whole, halves = batches.batch(4), []  # the second of its epoch
    for rank in (0, 1):
        halves.append(as_process(monkeypatch, rank, 2) or batches.batch(4))
    assert torch.equal(torch.cat([half.known_positives for half in halves]), whole.known_positives)
    assert torch.equal(torch.cat([half.passage_rows for half in halves]), whole.passage_rows)
    assert torch.equal(torch.cat([half.queries.rows for half in halves]), whole.queries.rows)
    assert whole.known_positives[:4, 8:].any() and whole.known_positives[4:, :8].any()
    as_process(monkeypatch, 0, 3)
    with pytest.raises(InputError, match="3 processes cannot share a batch of 8 evenly"):
        batches.batch(4)


def as_process(monkeypatch, rank: int, count: int) -> None:
    """Make this process believe that it is one of several."""
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: count)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: rank)


@pytest.mark.parametrize(
    ("values", "told"), [({"batch_queries": 23}, "22 training queries do not fill a batch of 23")]
)
def test_sizes_that_do_not_fit_are_refused(make, values, told):
    with pytest.raises(InputError, match=told):
        make(**values)
    assert len(make(batch_queries=22).batch(0)) == 22  # as many as there are


def test_only_queries_are_cut_at_the_named_end(make, counted_store, monkeypatch):
    cut, plain = [], counted_store.batch

    def noting(self, rows, side="right", **options):
        cut.append(side)
        return plain(self, rows, **options)

    monkeypatch.setattr(counted_store, "batch", noting)
    make(layout=Layout(query_side="left")).batch(0)
    assert cut == ["left", "right"]


def test_every_epoch_visits_everything_once_in_an_order_of_its_own():
    things = np.arange(3, 27)
    sampler = EpochSampler(things, batch_size=6, seed=4)
    epochs = [
        np.concatenate([sampler.of(4 * epoch + step)[1] for step in range(4)]) for epoch in range(3)
    ]
    for order in epochs:
        assert np.array_equal(np.sort(order), things)
    companions = [
        {frozenset(order[i : i + 6].tolist()) for i in range(0, 24, 6)} for order in epochs
    ]
    assert not companions[0] & companions[1] and not companions[1] & companions[2]
    assert np.array_equal(EpochSampler(things, batch_size=6, seed=4).of(5)[1], sampler.of(5)[1])
    # and no epoch of one seed is one of another
    assert not np.array_equal(EpochSampler(things, batch_size=24, seed=5).of(0)[1], epochs[1])
