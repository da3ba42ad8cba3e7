"""Late interaction in training: its loss by hand, what is no negative, and that it learns."""

import datasets
import numpy as np
import pytest
import torch

from dr_lib.models import LateInteraction, best_matches, save_masked_lm
from dr_lib.tokens import Layout, TokenStore
from dr_lib.training import Examples, LateInteractionTrainer, RetrievalBatches

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
