"""Training of dual encoders and of late interaction: losses by hand, excluded negatives, and that
they learn.
"""

from dataclasses import replace

import datasets
import numpy as np
import pytest
import torch
from torch import nn

from dr_lib.models import LateInteraction, best_matches, save_masked_lm
from dr_lib.tokens import Layout, TokenStore
from dr_lib.training import (
    BiEncoder,
    Examples,
    Finetuning,
    LateInteractionTrainer,
    RetrievalBatches,
    TrainSettings,
    train,
)

LAYOUT = Layout(passage_length=24, query_length=12, title="none")


@pytest.fixture
def parts(tmp_path, tiny_bert, tiny_tokenizer, sentences):
    words = " ".join(sentences).split()
    texts = [" ".join(np.random.default_rng(row).choice(words, 8)) for row in range(12)]
    rows = datasets.Dataset.from_dict({"title": [""] * len(texts), "text": texts})
    store = TokenStore.build(rows, tiny_tokenizer, tmp_path / "store")
    count = len(texts) // 2
    queries, negatives = np.arange(count), np.arange(count, 2 * count)[:, None]
    examples = Examples(
        queries, np.arange(count), np.arange(count + 1), negatives.astype(np.int32), len(texts)
    )
    batches = RetrievalBatches(
        store, store, examples, batch_queries=4, passages_per_query=2, layout=LAYOUT
    )
    save_masked_lm(tiny_bert(), tiny_tokenizer, tmp_path / "lm")
    return LateInteraction.from_pretrained(
        tmp_path / "lm", width=8, temperature=0.1, **LAYOUT.model_dump()
    ), batches


def test_loss_is_the_cross_entropy_of_the_positive_among_what_is_not_relevant(parts):
    model, batches = parts
    batch = batches.batch(0)
    # a negative of query 1 is the positive of query 0
    batch.passage_rows[3] = batch.passage_rows[0]
    batch.known_positives[2, 5] = True
    with torch.inference_mode():
        scores = best_matches(model(batch.queries), model(batch.passages)).double().numpy() / 0.1
        found = LateInteractionTrainer(model)(batch, torch.Generator())
    losses = []
    for query, own in enumerate(scores):
        left_out = {(0, 3), (2, 5)}
        kept = [
            np.exp(score) for column, score in enumerate(own) if (query, column) not in left_out
        ]
        losses.append(-np.log(np.exp(own[2 * query]) / sum(kept)))
    assert found["loss"].item() == pytest.approx(np.mean(losses), rel=1e-4)


def test_it_learns_its_batch(parts):
    model, batches = parts
    trainer, batch = LateInteractionTrainer(model.train()), batches.batch(0)
    optimizer = torch.optim.AdamW(trainer.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        step = trainer(batch, torch.Generator())
        optimizer.zero_grad()
        step["loss"].backward()
        optimizer.step()
        losses.append(step["loss"].item())
    assert losses[-1] < losses[0] / 2 and step["in_batch_accuracy"] == 1


class Bag(nn.Module):
    """Mean of word vectors: a minimal encoder."""

    def __init__(self, words: int = 64, hidden: int = 16):
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(words, hidden)

    def forward(self, batch):
        mask = batch.attention_mask[..., None].float()
        return (self.table(batch.input_ids) * mask).sum(1) / mask.sum(1)


@pytest.fixture
def batches(counted_store):
    """Query r asks for passage r: the word that encodes a row is the same on both sides."""
    rng = np.random.default_rng(0)
    negatives = np.array(
        [rng.choice(np.delete(np.arange(40), query), 6, replace=False) for query in range(40)]
    )
    examples = Examples.of(np.arange(40), [[query] for query in range(40)], negatives, passages=40)
    return RetrievalBatches(
        counted_store(40, 40),
        counted_store(40, 40),
        examples,
        batch_queries=8,
        passages_per_query=3,
    )


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def first_block_by_hand(queries, passages, rows, temperature):
    """Cross-entropy over all passages of the batch, without repetitions of the query's positive
    (float64).
    """
    scores = unit(queries) @ unit(passages).T / temperature
    total = 0.0
    for i in range(len(queries)):
        own = i * len(passages) // len(queries)
        kept = [j for j in range(len(passages)) if j == own or rows[j] != rows[own]]
        total += np.log(np.exp(scores[i, kept] - scores[i, own]).sum())
    return total / len(queries)


def test_loss_is_the_contrastive_loss_of_both_sides(batches):
    encoder, batch = Bag(), batches.batch(0)
    module = BiEncoder(encoder, Finetuning(temperature=0.5, blocks="query_passage"))
    loss = module(batch, torch.Generator())["loss"]
    queries, passages = (
        encoder(part).detach().double().numpy() for part in (batch.queries, batch.passages)
    )
    expected = first_block_by_hand(queries, passages, batch.passage_rows.tolist(), 0.5)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_the_loss_stays_fp32_under_autocast(batches):
    batch, module = batches.batch(0), BiEncoder(Bag())
    plain = module(batch, torch.Generator())["loss"]
    with torch.autocast("cpu", torch.bfloat16):
        mixed = module(batch, torch.Generator())["loss"]
    assert mixed.dtype == torch.float32
    assert mixed.item() == pytest.approx(plain.item(), rel=1e-5)


def test_a_second_encoder_serves_the_passages(batches):
    shared, separate = Bag(), Bag()
    nn.init.zeros_(separate.table.weight)
    module = BiEncoder(
        shared, Finetuning(blocks="query_passage", temperature=1.0), passage_encoder=separate
    )
    module(batches.batch(0), torch.Generator())["loss"].backward()
    # all passages alike: a query cannot change its loss
    assert shared.table.weight.grad.abs().sum() == 0
    assert separate.table.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("blocks", ["released", "paper", "query_passage"])
def test_fine_tuning_learns_to_find_the_passage(tmp_path, batches, blocks):
    settings = TrainSettings(
        steps=60, learning_rate=0.05, weight_decay=0, log_every=5, precision="fp32"
    )
    module = BiEncoder(Bag(), Finetuning(temperature=0.1, blocks=blocks))
    log = train(module, batches.batch, settings, tmp_path, title="toy", progress=False)
    assert log.column("loss")[-1] < 0.3 * log.column("loss")[0]
    assert log.column("in_batch_accuracy")[-1] > 0.95
    assert log.tokens > 0


@pytest.mark.parametrize("separate", [False, True])
def test_chunks_change_neither_loss_nor_gradient(batches, separate):
    found = []
    for chunk in (None, 3):
        first, second = Bag(), Bag(hidden=16)
        module = BiEncoder(
            first,
            Finetuning(temperature=0.1, chunk=chunk),
            passage_encoder=second if separate else None,
        )
        loss = module(batches.batch(0), torch.Generator())["loss"]
        loss.backward()
        slopes = [
            part.table.weight.grad for part in (first, second) if part.table.weight.grad is not None
        ]
        found.append((loss, torch.cat(slopes)))
    assert found[1][0].item() == pytest.approx(found[0][0].item(), rel=1e-6)
    assert (found[1][1] - found[0][1]).norm() < 1e-5 * found[0][1].norm()
    assert len(found[0][1]) == 64 * (1 + separate)


def test_the_passage_centric_part_is_weighed_in(batches):
    encoder, other, batch = Bag(), Bag(), batches.batch(0)
    nn.init.normal_(
        other.table.weight
    )  # of one encoder a query and its passage have the same vector here, and both parts one value
    plain, whole, mixed = (
        BiEncoder(encoder, Finetuning(blocks="query_passage", temperature=0.5, alpha=alpha), other)(
            batch, torch.Generator()
        )["loss"]
        for alpha in (0.0, 1.0, 0.3)
    )
    assert plain.item() != pytest.approx(whole.item(), rel=0.05)
    assert mixed.item() == pytest.approx(0.7 * plain.item() + 0.3 * whole.item(), rel=1e-6)
    sides = (encoder, batch.queries), (other, batch.passages)
    queries, passages = (unit(by(part).detach().double().numpy()) for by, part in sides)
    rows, anchors = batch.passage_rows.tolist(), passages[::3]
    total = 0.0
    # its own query, the queries about other passages, and all hard negatives
    for i, anchor in enumerate(anchors):
        others = [queries[j] for j in range(len(queries)) if j != i and rows[3 * j] != rows[3 * i]]
        hard = [passages[j] for j in range(len(passages)) if j % 3 and rows[j] != rows[3 * i]]
        scores = np.array([queries[i], *others, *hard]) @ anchor / 0.5
        total += np.log(np.exp(scores - scores[0]).sum())
    assert whole.item() == pytest.approx(total / len(anchors), rel=1e-5)


def test_the_temperature_grows_sharper_over_the_warmup_of_the_rate(batches, tmp_path):
    seen = []

    class Noting(BiEncoder):
        def forward(self, batch, generator):
            seen.append(self.temperature)
            return super().forward(batch, generator)

    settings = TrainSettings(
        steps=6, learning_rate=0.01, warmup=0.5, precision="fp32", accumulation=2
    )
    module = Noting(Bag(), Finetuning(temperature=0.1, temperature_warmup=True))
    train(module, batches.batch, settings, tmp_path, title="toy", progress=False)
    assert seen == pytest.approx(
        [value for value in (0.3, 0.15, 0.1, 0.1, 0.1, 0.1) for _ in range(2)]
    )
    plain = BiEncoder(Bag(), Finetuning(temperature=0.1))
    plain.before_update(settings, 1)
    assert plain.temperature == 0.1


def test_known_positives_count_as_negatives_only_where_that_is_asked_for(batches):
    batch, losses_of = batches.batch(0), {}
    known = torch.zeros(8, 24, dtype=torch.bool)
    known[0, 7] = known[3, 1] = True
    batch = replace(batch, known_positives=known)
    for masked in (True, False):
        module = BiEncoder(
            Bag(), Finetuning(temperature=0.3, blocks="query_passage", mask_positives=masked)
        )
        vectors = module.vectors(batch)
        losses_of[masked] = module(batch, torch.Generator())["loss"].item()
        queries, passages = (unit(part.detach().double().numpy()) for part in vectors)
        scores = queries @ passages.T / 0.3
        own = 3 * np.arange(8)
        hidden = known.numpy() | (
            batch.passage_rows.numpy()[own][:, None] == batch.passage_rows.numpy()
        )
        hidden[np.arange(8), own] = False
        exponents = np.where(hidden & masked, -np.inf, scores)
        expected = (np.log(np.exp(exponents).sum(1)) - scores[np.arange(8), own]).mean()
        assert losses_of[masked] == pytest.approx(expected, rel=1e-4)
    assert losses_of[False] > losses_of[True]
