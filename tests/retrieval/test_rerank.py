"""Re-ranking: right scores for right pairs, the new order, the untouched tail, and the scores of a
teacher.
"""

import copy
from importlib import import_module
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from torch import nn

from dr_lib.errors import InputError
from dr_lib.models import CrossEncoder, LateInteraction, best_matches, save_masked_lm
from dr_lib.retrieval import Bm25, Ranking
from dr_lib.retrieval.reranking import (
    bm25_teacher_scores,
    load_scorer,
    rerank,
    score_pairs,
    teacher_scores,
)
from dr_lib.tokens import TokenStore
from dr_lib.training import Examples, TeacherScores, training_examples


@pytest.fixture(scope="module")
def stores(tiny_tokenizer, sentences, tmp_path_factory):
    rng, words = np.random.default_rng(0), " ".join(sentences).split()
    folder = tmp_path_factory.mktemp("stores")
    asked = datasets.Dataset.from_dict(
        {"text": [" ".join(rng.choice(words, 1 + row)) for row in range(5)]}
    )
    bodies = [" ".join(rng.choice(words, rng.integers(1, 30))) for _ in range(40)]
    told = datasets.Dataset.from_dict({"title": ["", "a title"] * 20, "text": bodies})
    queries = TokenStore.build(
        asked, tiny_tokenizer, folder / "queries" / "store", columns=("text",)
    )
    return queries, TokenStore.build(told, tiny_tokenizer, folder / "passages" / "store")


@pytest.fixture
def encoder(tmp_path, tiny_bert, tiny_tokenizer):
    save_masked_lm(tiny_bert(dropout=0.3), tiny_tokenizer, tmp_path)
    encoder = CrossEncoder.from_pretrained(tmp_path, length=40)
    nn.init.normal_(encoder.encoder.classifier.weight, std=3.0)
    return encoder


def test_a_scorer_that_tells_no_texts_apart_is_refused_wherever_it_is_loaded(encoder, tmp_path):
    encoder.save(tmp_path / "whole")
    assert load_scorer(tmp_path / "whole").settings == encoder.settings
    nn.init.zeros_(encoder.encoder.classifier.weight)
    encoder.save(tmp_path / "zeros")
    with pytest.raises(InputError, match="zeros: gives all passages one score"):
        load_scorer(tmp_path / "zeros")


OPTIONS = {"tokens_per_batch": 200, "precision": "fp32"}


@pytest.fixture
def ranking():
    rng = np.random.default_rng(1)
    rows = np.array([rng.choice(40, 12, replace=False) for _ in range(5)])
    scores = np.tile(np.arange(12, 0, -1.0), (5, 1))
    rows[2, 9:], rows[3, 3:], rows[4, :] = -1, -1, -1
    scores[rows < 0] = -np.inf
    return Ranking([f"q{row}" for row in range(5)], rows, scores)


@pytest.fixture
def late(tmp_path, tiny_bert, tiny_tokenizer):
    save_masked_lm(tiny_bert(dropout=0.3), tiny_tokenizer, tmp_path)
    return LateInteraction.from_pretrained(tmp_path, width=8, passage_length=24, query_length=8)


def test_late_interaction_reads_each_text_once_and_scores_every_pair(
    stores, late, ranking, monkeypatch
):
    rng, (queries, passages) = np.random.default_rng(5), stores
    crossing = late.crossing(queries, passages)
    asked, rows = rng.integers(0, 5, 300), rng.integers(0, 40, 300)  # many pairs twice
    late.train()
    found = score_pairs(late, crossing, asked, rows, **OPTIONS)
    assert late.training
    late.eval()
    monkeypatch.setattr(import_module("dr_lib.retrieval.reranking"), "COSINES_AT_ONCE", 500)
    np.testing.assert_allclose(
        score_pairs(late, crossing, asked, rows, **OPTIONS), found, atol=1e-4
    )
    with torch.inference_mode():
        for query, row, score in zip(asked[:40], rows[:40], found[:40], strict=True):
            one = late(queries.batch(np.array([query]), **crossing.layout.queries))
            other = late(passages.batch(np.array([row]), **crossing.layout.passages))
            np.testing.assert_allclose(
                best_matches(one, other).item() / late.settings.temperature, score, atol=1e-4
            )
    assert len(score_pairs(late, crossing, asked[:0], rows[:0], **OPTIONS)) == 0
    again = rerank(late, ranking, crossing, top=5, **OPTIONS)
    present = again.rows[0, :5]
    own = score_pairs(late, crossing, np.zeros(5, int), present, **OPTIONS)
    assert (np.diff(own) <= 1e-4).all() and set(present) == set(ranking.rows[0, :5])


def one_by_one(encoder, crossing, pairs):
    with torch.inference_mode():
        return [
            encoder(crossing.batch(np.array([query]), np.array([row])))[0].item()
            for query, row in pairs
        ]


def test_each_pair_gets_its_own_score_whatever_the_batch(stores, encoder):
    crossing = encoder.crossing(*stores)
    asked, rows = np.repeat(np.arange(5), 8), np.tile(np.arange(0, 40, 5), 5)
    encoder.train()
    found = score_pairs(encoder, crossing, asked, rows, **OPTIONS)
    assert encoder.training  # left as it was, though the scores have no dropout
    encoder.eval()
    np.testing.assert_allclose(
        found, one_by_one(encoder, crossing, zip(asked, rows, strict=True)), atol=1e-5
    )
    assert found.dtype == np.float32


GPU = pytest.param("cuda", marks=pytest.mark.cuda)


@pytest.mark.parametrize(("precision", "within"), [("fp32", 1e-4), ("bf16", 0.3)])
@pytest.mark.parametrize("device", ["cpu", GPU])
def test_every_device_and_precision_gives_the_same_scores_however_many_batches_wait(
    device, precision, within, stores, encoder
):
    encoder, rng, pairs = (
        copy.deepcopy(encoder),
        np.random.default_rng(0),
        50_000 if device == "cuda" else 500,
    )
    with torch.no_grad():  # as far from each other as those of a trained one, not of a fresh one
        for weight in encoder.parameters():
            weight.mul_(6 if weight.ndim == 2 else 1)
    pairs = encoder.crossing(*stores), rng.integers(0, 5, pairs), rng.integers(0, 40, pairs)
    expected = score_pairs(encoder, *pairs, precision="fp32", tokens_per_batch=4_096)
    found = score_pairs(encoder.to(device), *pairs, precision=precision, tokens_per_batch=131_072)
    np.testing.assert_allclose(found, expected, atol=within * expected.std(), rtol=0)
    assert np.corrcoef(found, expected)[0, 1] > 0.99


def test_many_pairs_are_taken_in_parts(stores, encoder, monkeypatch):
    crossing = encoder.crossing(*stores)
    asked, rows = np.repeat(np.arange(5), 8), np.tile(np.arange(8), 5)
    whole = score_pairs(encoder, crossing, asked, rows, **OPTIONS)
    monkeypatch.setattr(import_module("dr_lib.retrieval.reranking"), "PAIRS_AT_ONCE", 7)
    np.testing.assert_allclose(
        score_pairs(encoder, crossing, asked, rows, **OPTIONS), whole, atol=1e-5
    )
    assert len(score_pairs(encoder, crossing, asked[:0], rows[:0], **OPTIONS)) == 0


@pytest.mark.parametrize("top", [1, 5, 12, 50])
def test_the_first_passages_follow_the_new_scores_and_the_others_their_old_order(
    top, stores, encoder, ranking
):
    crossing = encoder.crossing(*stores)
    found = rerank(encoder, ranking, crossing, top=top, **OPTIONS)
    assert found.query_ids == ranking.query_ids
    for query in range(5):
        old = [row for row in ranking.rows[query].tolist() if row >= 0]
        head = old[:top]
        scores = one_by_one(encoder, crossing, [(query, row) for row in head])
        expected = [row for _, row in sorted(zip(scores, head, strict=True), reverse=True)] + old[
            top:
        ]
        assert found.rows[query].tolist() == expected + [-1] * (12 - len(old))
        np.testing.assert_allclose(
            found.scores[query, : len(head)], sorted(scores, reverse=True), atol=1e-5
        )
        assert np.isfinite(found.scores[query]).sum() == len(old)


def test_a_teacher_scores_every_positive_and_every_listed_negative(
    stores, encoder, tmp_path, monkeypatch
):
    monkeypatch.setattr("dr_lib.training.machine.has_bf16", lambda where: False)
    encoder.save(tmp_path / "scorer" / "model")
    relevant = [np.array(rows, int) for rows in ([1, 2], [], [], [7], [])]
    collection = SimpleNamespace(
        same_text=None,
        own_texts=lambda split: None,
        positives={"train": relevant}.get,
        passages=range(40),
    )
    np.save(
        tmp_path / "negatives.npy",
        np.array([[5, -1], [-1, -1], [-1, -1], [9, 30], [-1, -1]], np.int32),
    )
    texts = [store.folder.parent for store in stores]
    (made := tmp_path / "made").mkdir()
    training_examples(collection, tmp_path).save(tmp_path / "examples")
    teacher_scores.body(made, tmp_path / "scorer", *texts, tmp_path / "examples")
    found, crossing = TeacherScores.open(made), encoder.crossing(*stores)
    np.testing.assert_allclose(
        found.positives, one_by_one(encoder, crossing, [(0, 1), (0, 2), (3, 7)]), atol=1e-5
    )
    negatives = one_by_one(encoder, crossing, [(0, 5), (3, 9), (3, 30)])
    np.testing.assert_allclose(found.negatives, [[negatives[0], np.nan], negatives[1:]], atol=1e-5)
    taught = found.of(
        training_examples(collection, tmp_path), np.array([0]), np.array([[2, 5, 11]])
    )
    np.testing.assert_allclose(taught, [[found.positives[1], negatives[0], np.nan]], atol=1e-5)


def test_bm25_teaches_the_queries_that_are_learned(tmp_path):
    told = datasets.Dataset.from_dict(
        {"title": [""] * 3, "text": ["red fox", "dog", "blue blue fox"]}
    )
    index = Bm25.build(told, tmp_path / "index")
    asked = SimpleNamespace(queries={"train": {"text": ["dog", "red", "blue fox"]}}.get)
    Examples.of([2], [[2]], [[0, -1, 1]], passages=3).save(tmp_path / "examples")
    bm25_teacher_scores.body(tmp_path, tmp_path, asked, tmp_path / "examples")
    found = TeacherScores.open(tmp_path)
    ranking = index.search(["blue fox"], 2)
    scores = dict(zip(ranking.rows[0].tolist(), ranking.scores[0].tolist(), strict=True))
    assert found.positives.tolist() == [scores[2]]
    np.testing.assert_array_equal(found.negatives, np.array([[scores[0], np.nan, 0.0]], "f4"))


def test_bf16_is_close_to_fp32(stores, encoder, ranking):
    crossing = encoder.crossing(*stores)
    asked, rows = np.zeros(20, int), np.arange(20)
    exact = score_pairs(encoder, crossing, asked, rows, **OPTIONS)
    rough = score_pairs(encoder, crossing, asked, rows, **(OPTIONS | {"precision": "bf16"}))
    assert 0 < np.abs(rough - exact).max() < 0.05 * np.abs(exact).max()


def test_what_cannot_be_ranked_is_refused(stores, encoder, ranking):
    crossing = encoder.crossing(*stores)
    nn.init.constant_(encoder.encoder.classifier.bias, np.nan)
    with pytest.raises(InputError, match="is not finite"):
        rerank(encoder, ranking, crossing, **OPTIONS)
    table = np.zeros((5, 40), np.float32)
    table[3, 7] = np.inf
    with pytest.raises(
        InputError, match="the score of query row 3 and passage row 7 is not finite"
    ):
        score_pairs(Table(table), Pairs(), np.array([0, 3, 4]), np.array([1, 7, 2]), **OPTIONS)


class Table(nn.Module):
    """Scores pairs by a table of whole numbers, so that many are equal."""

    def __init__(self, scores: np.ndarray):
        super().__init__()
        self.scores = nn.Parameter(torch.from_numpy(scores), requires_grad=False)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        return self.scores[pairs[0], pairs[1]]


class Pairs:
    """Pairs of rows instead of texts, with random lengths like theirs."""

    max_length = 40

    def lengths(self, queries: np.ndarray, passages: np.ndarray) -> np.ndarray:
        return 1 + (queries * 7 + passages * 13) % 40

    def batch(self, queries: np.ndarray, passages: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.stack([queries, passages]).astype(np.int64))


def test_order_equals_a_plain_sort_over_random_rankings_with_ties(monkeypatch):
    monkeypatch.setattr(import_module("dr_lib.retrieval.reranking"), "PAIRS_AT_ONCE", 50)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        queries, passages = int(rng.integers(1, 8)), int(rng.integers(1, 40))
        depth, top = int(rng.integers(1, passages + 1)), int(rng.integers(1, 45))
        table = rng.integers(-3, 4, (queries, passages)).astype(np.float32)
        rows = np.stack([rng.permutation(passages)[:depth] for _ in range(queries)])
        rows[np.arange(depth) >= rng.integers(0, depth + 1, (queries, 1))] = -1
        scores = np.where(rows >= 0, np.arange(depth, 0, -1.0), -np.inf)
        made = Ranking([str(query) for query in range(queries)], rows, scores, passages)
        found = rerank(Table(table), made, Pairs(), top=top, **OPTIONS)
        for query, (old, new) in enumerate(zip(rows.tolist(), found.rows.tolist(), strict=True)):
            head = sorted(
                (row for row in old[:top] if row >= 0), key=lambda row: (-table[query, row], row)
            )
            assert new == head + [-1] * (min(top, depth) - len(head)) + old[top:]
            assert found.scores[query, : len(head)].tolist() == table[query, head].tolist()


def test_several_devices_score_as_one_bit_for_bit(stores, encoder):
    rng, pairs = np.random.default_rng(2), encoder.crossing(*stores)
    asked, rows = rng.integers(0, 5, 70), rng.integers(0, 40, 70)
    one = score_pairs(encoder, pairs, asked, rows, **OPTIONS)
    two = [torch.device("cpu")] * 2
    assert (score_pairs(encoder, pairs, asked, rows, **OPTIONS, devices=two) == one).all()
