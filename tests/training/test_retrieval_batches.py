import numpy as np
import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.tokens import Layout
from dr_lib.training import Examples, RetrievalBatches
from dr_lib.training.batches import Visits


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
    """Let this process believe that it is one of several."""
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
    visits = Visits(things, at_once=6, seed=4)
    epochs = [
        np.concatenate([visits.of(4 * epoch + step)[1] for step in range(4)]) for epoch in range(3)
    ]
    for order in epochs:
        assert np.array_equal(np.sort(order), things)
    companions = [
        {frozenset(order[i : i + 6].tolist()) for i in range(0, 24, 6)} for order in epochs
    ]
    assert not companions[0] & companions[1] and not companions[1] & companions[2]
    assert np.array_equal(Visits(things, at_once=6, seed=4).of(5)[1], visits.of(5)[1])
