"""The cross-encoder's training: losses over a query's own pairs, gradients on request, and that it
learns.
"""

import shutil

import datasets
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from dr_lib.materials.pairs import Context, PairRow, store_pairs
from dr_lib.models import CrossEncoder, bert, save_masked_lm
from dr_lib.tokens import Layout, TokenBatch, TokenStore
from dr_lib.tokens.store import to_device
from dr_lib.training import (
    CrossEncoderTraining,
    Examples,
    Finetuning,
    Reranker,
    RetrievalBatches,
    TrainSettings,
    reranker,
    train,
)
from dr_lib.training.batches import PairBatches
from dr_lib.training.reranker import cross_encoder, dialogue_cross_encoder, late_interaction

EIGHT = CrossEncoderTraining(negatives=7)


def changed(**options) -> CrossEncoderTraining:
    return EIGHT.model_copy(update=options)


@pytest.fixture(scope="module")
def stores(tiny_tokenizer, sentences, tmp_path_factory):
    """Twelve queries of one word, and twelve passages that each repeat one query's word three
    times.
    """
    words = list(
        dict.fromkeys(" ".join(sentences).lower().replace(",", "").replace(".", "").split())
    )[:12]
    folder = tmp_path_factory.mktemp("stores")
    asked = datasets.Dataset.from_dict({"text": words})
    told = datasets.Dataset.from_dict(
        {"title": ["", "note"] * 6, "text": [f"{word} {word} {word}" for word in words]}
    )
    queries = TokenStore.build(asked, tiny_tokenizer, folder / "queries", columns=("text",))
    return queries, TokenStore.build(told, tiny_tokenizer, folder / "passages")


@pytest.fixture
def encoder(tmp_path, tiny_bert, tiny_tokenizer):
    def make(dropout: float = 0.0) -> CrossEncoder:
        save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path)
        return CrossEncoder.from_pretrained(tmp_path, length=32, dropout=dropout)

    return make


@pytest.fixture
def batches(stores, encoder):
    negatives = [[other for other in range(12) if other != query] for query in range(12)]
    examples = Examples.of(np.arange(12), [[query] for query in range(12)], negatives, passages=12)
    return PairBatches(
        encoder().crossing(*stores), examples, batch_queries=4, passages_per_query=8, seed=1
    )


def test_pairs_are_each_query_with_the_passages_that_a_dual_encoder_would_get(batches, stores):
    same = RetrievalBatches(
        *stores, batches.examples, batch_queries=4, passages_per_query=8, seed=1
    )
    for step in (0, 5):
        batch, expected = batches.batch(step), same.batch(step)
        assert torch.equal(batch.rows, expected.passage_rows)
        for pair, ids in enumerate(batch.input_ids.tolist()):
            query = expected.queries.input_ids[pair // 8].tolist()
            asked = query[: query.index(3) + 1]
            assert ids[: len(asked)] == asked
        assert torch.equal(batch.input_ids, batches.batch(step).input_ids)


@pytest.mark.parametrize("loss", ["listwise", "pointwise"])
def test_loss_is_that_of_the_pairs_of_each_query(loss, batches, encoder):
    model, batch = encoder(), batches.batch(0)
    found = Reranker(model, EIGHT, loss)(batch, torch.Generator())
    scores = model.encoder(**batch.model_inputs()).logits.reshape(4, 8)
    if loss == "listwise":
        expected = -scores.log_softmax(1)[:, 0].mean()
    else:
        expected = functional.binary_cross_entropy_with_logits(scores, torch.eye(1, 8).expand(4, 8))
    torch.testing.assert_close(found["loss"], expected)
    assert found["accuracy"] == (scores.argmax(1) == 0).float().mean()
    weights = list(model.parameters())
    slopes, wanted = (torch.autograd.grad(value, weights) for value in (found["loss"], expected))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(slopes, wanted, strict=True))


def test_the_released_gradient_goes_through_the_hardest_negatives_alone(
    batches, encoder, monkeypatch
):
    monkeypatch.setattr(reranker, "KEEP_ONE_IN", 2)
    model, batch = encoder(), batches.batch(0)
    module = Reranker(model, changed(gradient="released"))
    scores = model(batch).reshape(4, 8)
    hardest = scores[:, 1:].sort(1, descending=True).values[:, :3]
    expected = -torch.cat([scores[:, :1], hardest], 1).log_softmax(1)[:, 0].mean()
    torch.testing.assert_close(module(batch, torch.Generator())["loss"], expected)
    chosen = module.hardest(batch, 4).reshape(4, 4)
    assert chosen[:, 0].tolist() == [0, 8, 16, 24]


def test_the_first_scoring_has_no_dropout_and_leaves_the_mode(batches, encoder):
    model, batch = encoder(dropout=0.5).train(), batches.batch(0)
    module = Reranker(model, changed(gradient="released"))
    assert torch.equal(module.hardest(batch, 4), module.hardest(batch, 4))
    assert model.training
    module.eval().hardest(batch, 4)
    assert not model.training


def test_r_drop_adds_the_disagreement_of_two_passes(batches, encoder, monkeypatch):
    monkeypatch.setattr(bert, "GROUPS", 1)  # one call with all pairs
    batch = batches.batch(0)
    plain = Reranker(encoder(), EIGHT)(batch, torch.Generator())["loss"]
    result = Reranker(encoder(), changed(r_drop=True))(batch, torch.Generator())
    torch.testing.assert_close(result["loss"], plain)  # without dropout both passes are one
    assert result["r_drop_loss"].item() == pytest.approx(0, abs=1e-6)
    noisy, lists = encoder(dropout=0.3).train(), []
    module = Reranker(noisy, changed(r_drop=True))
    noisy.register_forward_hook(lambda _, given, scores: lists.append(scores))
    result = module(batch, torch.Generator())
    p, q = (part.reshape(4, 8).log_softmax(1) for part in lists[0].chunk(2))
    apart = 0.5 * ((p.exp() * (p - q)).sum() + (q.exp() * (q - p)).sum()) / 4
    torch.testing.assert_close(result["loss"], -(p[:, 0].mean() + q[:, 0].mean()) / 2 + apart)
    assert result["r_drop_loss"] > 0


@pytest.mark.parametrize("chunk", [None, 5, 24])
def test_r_drop_compares_two_draws_of_dropout_whatever_the_chunks(chunk, batches, encoder):
    noisy, drawn = encoder(dropout=0.3).train(), {}

    def note(_, given, scores):
        for ids, score in zip(given[0].input_ids.tolist(), scores.tolist(), strict=True):
            pair = tuple(piece for piece in ids if piece)  # without padding
            drawn.setdefault(pair, []).append(score)

    noisy.register_forward_hook(note)
    batch = batches.batch(0)
    result = Reranker(noisy, changed(r_drop=True, chunk=chunk))(batch, torch.Generator())
    pairs = [tuple(piece for piece in ids if piece) for ids in batch.input_ids.tolist()]
    scores = np.array([drawn[pair] for pair in pairs])  # [pairs, 2], in the order of the draws
    assert scores.shape == (32, 2) and (scores[:, 0] != scores[:, 1]).all()
    lists = scores.T.reshape(2, 4, 8)
    shares = np.exp(lists) / np.exp(lists).sum(2, keepdims=True)
    p, q = shares
    apart = ((p * np.log(p / q)).sum() + (q * np.log(q / p)).sum()) / 2 / 4
    assert result["r_drop_loss"].item() == pytest.approx(apart, rel=1e-3)
    expected = -np.log(shares[:, :, 0]).mean() + apart
    assert result["loss"].item() == pytest.approx(expected, rel=1e-5)


def test_the_loss_stays_fp32_under_autocast(batches, encoder):
    module, batch = Reranker(encoder(), changed(r_drop=True)), batches.batch(0)
    exact = module(batch, torch.Generator())["loss"]
    with torch.autocast("cpu", torch.bfloat16):
        rough = module(batch, torch.Generator())["loss"]
    assert rough.dtype == torch.float32 and rough.item() == pytest.approx(exact.item(), rel=0.02)


class Overlap(nn.Module):
    """A score that can learn to grow with the number of pieces shared by query and passage."""

    def __init__(self):
        super().__init__()
        self.slope, self.level = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))

    def forward(self, batch):
        first = (batch.input_ids == 3).cumsum(1) == 0  # before the first [SEP]
        same = batch.input_ids[:, :, None] == batch.input_ids[:, None, :]
        shared = (
            (same & first[:, :, None] & ~first[:, None, :] & ~batch.special[:, None, :])
            .any(2)
            .sum(1)
        )
        return self.slope * shared / first.sum(1) + self.level


@pytest.mark.cuda
@pytest.mark.parametrize("loss", ["listwise", "pointwise"])
def test_a_gpu_gives_the_loss_and_the_gradient_of_a_cpu(loss, batches, encoder):
    found = []
    for device in ("cpu", "cuda"):
        module = Reranker(encoder().to(device), EIGHT, loss)
        value = module(to_device(batches.batch(0), device), torch.Generator(device))["loss"]
        value.backward()
        found.append(
            (
                value.item(),
                torch.cat(
                    [w.grad.flatten() for w in module.parameters() if w.grad is not None]
                ).cpu(),
            )
        )
    (expected, slopes), (own, others) = found
    assert own == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(others, slopes, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("loss", "options"),
    [("listwise", {}), ("pointwise", {}), ("listwise", {"gradient": "released", "r_drop": True})],
)
def test_training_learns_to_tell_the_positive(loss, options, batches, tmp_path):
    module = Reranker(Overlap(), changed(**options), loss)
    settings = TrainSettings(steps=40, learning_rate=0.5, precision="fp32", log_every=5)
    log = train(
        module, batches.batch, settings, tmp_path / "run", title="re-ranker", progress=False
    )
    assert log.column("loss")[-1] < 0.5 * log.column("loss")[0]
    assert log.column("accuracy")[-1] > 0.9 and log.tokens > 0


def test_a_context_never_has_a_right_response_beside_it_as_a_wrong_one(
    tiny_bert, tiny_tokenizer, sentences, tmp_path, monkeypatch
):
    """Responses are few, so that most contexts share theirs; equal contexts have each other's
    responses.
    """
    rng, words, room = np.random.default_rng(0), " ".join(sentences).lower().split(), 12
    responses = [f"{word} {word}" for word in words[:7]]
    asked = [" ".join(rng.choice(words, 30)) for _ in range(10)]
    rows = [
        PairRow(asked[row % 10], (Context("", responses[rng.integers(7)]),)) for row in range(16)
    ]
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "base")
    store_pairs(rows, tmp_path, tiny_tokenizer, depth=0)
    seen: list[TokenBatch] = []
    monkeypatch.setattr(
        reranker, "train", lambda module, batch, *rest, **more: seen.extend(map(batch, range(30)))
    )
    read = {
        "training": changed(batch_queries=4, negatives=3, length=28),
        "context_length": room,
        "side": "left",
    }
    dialogue_cross_encoder.body(tmp_path, tmp_path / "base", tmp_path, **read, dropout=None, seed=0)

    def pieces(text):
        return tuple(tiny_tokenizer(text, add_special_tokens=False)["input_ids"])

    right: dict[tuple, set] = {}
    for row in rows:
        right.setdefault(pieces(row.question)[2 - room :], set()).add(pieces(row.positives[0].text))
    told = set()
    for batch in seen:
        for number in range(16):
            ids, types, bare = (
                part[number] for part in (batch.input_ids, batch.token_type_ids, batch.special)
            )
            context, response = (tuple(ids[(types == kind) & ~bare].tolist()) for kind in (0, 1))
            assert (response in right[context]) == (number % 4 == 0)
            told.add(response)
    assert len(seen) == 30 and told == {*map(pieces, responses)}


@pytest.mark.parametrize("kind", [cross_encoder, late_interaction])
def test_head_loop_and_batches_are_drawn_by_the_seed_of_the_stage(
    kind, stores, tiny_bert, tiny_tokenizer, tmp_path, monkeypatch
):
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "base")
    for name, store in zip(("queries", "passages"), stores, strict=True):
        shutil.copytree(store.folder, tmp_path / name / "store")
    Examples.of(np.arange(12), np.arange(12)[:, None], passages=12).save(tmp_path / "examples")
    if kind is cross_encoder:
        how = {"training": changed(batch_queries=4), "loss": "listwise", "title": True}
    else:
        how = {"training": Finetuning(batch_queries=4, negatives=2), "layout": Layout()}
    places, seen = [tmp_path / name for name in ("base", "passages", "queries", "examples")], []

    def train(module, batch, settings, *_, **__):
        weights = torch.cat([part.flatten() for part in module.parameters()])
        seen.append((settings.seed, weights.tolist(), repr(batch(0))))

    monkeypatch.setattr(reranker, "train", train)
    for number, seed in enumerate((3, 3, 4)):
        kind.body(tmp_path / str(number), *places, **how, dropout=None, seed=seed)
    first, again, other = seen
    assert first == again and (first[0], other[0]) == (3, 4)
    assert all(part != another for part, another in zip(first, other, strict=True))
