"""Validation over a pool: with the whole collection it equals the real search; with a pool it is
the search of that pool.
"""

from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from torch import nn

from dr_lib.evaluation import evaluate
from dr_lib.retrieval import Ranking, encode, search
from dr_lib.tokens import Layout, TokenStore
from dr_lib.training import Finetuning, ValidationPool, pool_mrr
from dr_lib.training import bi_encoder as pool
from dr_lib.training.bi_encoder import dev_pool, pool_ranks

RNG = np.random.default_rng(0)
QUERIES, PASSAGES = (
    torch.from_numpy(RNG.standard_normal((n, 12)).astype(np.float32)) for n in (50, 400)
)
POSITIVES = [RNG.permutation(400)[: RNG.integers(1, 4)] for _ in range(50)]


def whole() -> ValidationPool:
    return ValidationPool.of(range(50), POSITIVES, np.arange(400)[None])


def real_mrr(queries: torch.Tensor, passages: torch.Tensor) -> np.ndarray:
    """MRR by exact search of everything and the measures of every table."""
    scores, rows = search(queries, passages, len(passages))
    ids = [str(row) for row in range(len(passages))]
    ranking = Ranking([str(i) for i in range(len(queries))], rows, scores)
    qrels = {str(i): {str(row): 1 for row in own} for i, own in enumerate(POSITIVES)}
    return evaluate(ranking, qrels, ids, [f"MRR@{len(passages)}"]).per_query(f"MRR@{len(passages)}")


def test_the_queries_of_a_pool_are_drawn_by_the_seed_of_the_validation(tmp_path):
    """Every second query has a judgement; BM25 found passage i + 100 for query i."""
    (tmp_path / "ranking").mkdir()
    np.save(tmp_path / "ranking" / "rows.npy", np.arange(100, 150)[:, None])
    judged = [np.array([i]) if i % 2 else np.array([], np.int64) for i in range(50)]
    collection = SimpleNamespace(
        same_text=None, positives={"dev": judged}.get, own_texts={"dev": None}.get
    )

    def drawn(seed: int) -> list[int]:
        look = {"split": "dev", "queries": 9, "per_query": 1, "seed": seed}
        made = dev_pool(collection, tmp_path, Finetuning(validation=look))
        rows = made.query_rows.tolist()
        assert made.passage_rows.tolist() == [*rows, *(row + 100 for row in rows)]
        assert len(set(rows)) == 9 and all(row % 2 for row in rows)
        return rows

    assert drawn(3) == drawn(3) != drawn(4)


@pytest.mark.parametrize("at_once", [1 << 28, 400 * 8 * 7, 1])
def test_mrr_on_the_whole_collection_is_that_of_the_real_search(monkeypatch, at_once):
    monkeypatch.setattr(pool, "SCORE_BYTES", at_once)
    ranks = pool_ranks(QUERIES, PASSAGES, whole())
    assert np.array_equal((1 / ranks).astype(np.float32), real_mrr(QUERIES, PASSAGES))


def test_equal_scores_stand_in_the_order_of_the_real_search():
    """Vectors with few distinct values: nearly everything is tied."""
    queries, passages = torch.sign(QUERIES[:, :2]), torch.sign(PASSAGES[:, :2])
    ranks = pool_ranks(queries, passages, whole())
    assert len(set(ranks.tolist())) > 5
    assert np.array_equal((1 / ranks).astype(np.float32), real_mrr(queries, passages))


@pytest.mark.parametrize("seed", range(20))
def test_ranks_are_those_of_a_sorted_list_whatever_is_tied(seed):
    rng = np.random.default_rng(seed)
    queries, passages = (rng.integers(-1, 2, (n, 3)).astype(np.float32) for n in (30, 60))
    positives = [rng.permutation(60)[: rng.integers(1, 5)] for _ in range(30)]
    pool = ValidationPool.of(range(30), positives, np.arange(60)[None])
    expected = []
    for scores, own in zip((queries @ passages.T).tolist(), positives, strict=True):
        order = sorted(range(60), key=lambda row, scores=scores: (-scores[row], row))
        expected.append(1 + min(order.index(row) for row in own))
    assert (
        pool_ranks(torch.from_numpy(queries), torch.from_numpy(passages), pool).tolist() == expected
    )


def test_a_pool_ranks_what_it_holds_and_nothing_else():
    negatives = np.stack([RNG.permutation(400)[:9] for _ in range(50)])
    pool = ValidationPool.of(range(50), POSITIVES, negatives[:, :5])
    expected_rows = set(negatives[:, :5].ravel().tolist()) | {
        row for own in POSITIVES for row in own.tolist()
    }
    assert pool.passage_rows.tolist() == sorted(expected_rows)
    ranks = pool_ranks(QUERIES, PASSAGES[pool.passage_rows], pool)
    scores = (QUERIES.double() @ PASSAGES.double().T).numpy()
    for i, own in enumerate(POSITIVES):
        best = max(scores[i, own])
        assert ranks[i] == 1 + sum(scores[i, row] > best for row in expected_rows)


def test_a_passage_that_two_queries_bring_stands_once():
    pool = ValidationPool.of([0, 1], [[5], [5]], np.array([[3, 5], [3, -1]]))
    assert pool.passage_rows.tolist() == [3, 5] and pool.places.tolist() == [1, 1]


class Encoder(nn.Module):
    """First state of a BERT, with dropout that would show if it were active."""

    def __init__(self, bert):
        super().__init__()
        self.bert, self.dropout = bert, nn.Dropout(0.5)

    def forward(self, batch):
        return self.dropout(self.bert(**batch.model_inputs()).last_hidden_state[:, 0])


@pytest.fixture(scope="module")
def stores(tmp_path_factory, sentences, tiny_tokenizer) -> tuple[TokenStore, TokenStore]:
    words = " ".join(sentences).split()
    place = tmp_path_factory.mktemp("pool")
    texts = [
        [" ".join(RNG.choice(words, RNG.integers(2, 25))) for _ in range(n)] for n in (50, 400)
    ]
    queries = datasets.Dataset.from_dict({"text": texts[0]})
    passages = datasets.Dataset.from_dict({"title": ["a title", ""] * 200, "text": texts[1]})
    return (
        TokenStore.build(queries, tiny_tokenizer, place / "q", ("text",)),
        TokenStore.build(passages, tiny_tokenizer, place / "p"),
    )


def mrr(stores, *encoders) -> np.ndarray:
    layout = Layout(query_length=16, passage_length=24)
    return pool_mrr(whole(), *stores, *encoders, layout=layout, normalise=True, precision="fp32")


def test_validation_of_an_encoder_is_its_search_and_leaves_the_training_alone(
    stores, tiny_bert, tmp_path
):
    encoder = Encoder(tiny_bert().bert).train()
    encoder.bert.embeddings.eval()
    state = torch.get_rng_state()
    found = mrr(stores, encoder)
    assert encoder.training and encoder.dropout.training and not encoder.bert.embeddings.training
    assert torch.equal(state, torch.get_rng_state())
    options = {"precision": "fp32", "tokens_per_batch": 500}
    queries, passages = (
        torch.from_numpy(
            np.array(
                encode(
                    encoder, store, tmp_path / f"{i}.npy", max_length=length, title=title, **options
                )
            )
        )
        for i, (store, length, title) in enumerate(
            zip(stores, (16, 24), ("none", "pair"), strict=True)
        )
    )
    expected = real_mrr(queries, passages)
    assert found == pytest.approx(expected, abs=0.02) and found.mean() == pytest.approx(
        expected.mean(), abs=1e-3
    )
    assert np.array_equal(mrr(stores, encoder), found)


def test_passages_can_have_an_encoder_of_their_own(stores, tiny_bert):
    one, other = Encoder(tiny_bert(0).bert), Encoder(tiny_bert(1).bert)
    assert not np.array_equal(mrr(stores, one, other), mrr(stores, one))
    assert np.array_equal(mrr(stores, one, one), mrr(stores, one))
