"""The loop with the book's own token stores, objectives and encoder, in miniature."""

import datasets
import numpy as np
import pytest
import torch

from dr_lib import objectives
from dr_lib.models import DenseEncoder, DenseSettings
from dr_lib.tokens import BatchStream, Layout, TokenStore
from dr_lib.training import BiEncoder, Examples, RetrievalBatches, TrainSettings, train


@pytest.fixture
def store(tmp_path, sentences, tiny_tokenizer) -> TokenStore:
    texts = [" ".join((sentences * 2)[start : start + 2]) for start in range(5)] + sentences
    rows = {"title": ["" for _ in texts], "text": texts}
    return TokenStore.build(datasets.Dataset.from_dict(rows), tiny_tokenizer, tmp_path / "store")


def pretrain(store, tiny_bert, tokenizer, folder, **rest):
    objective = objectives.create(
        "simlm",
        tiny_bert(seed=0, dropout=0.1),
        tokenizer,
        generator_model=tiny_bert(seed=1, dropout=0.1),
    )
    stream = BatchStream(store, tokens_per_batch=256, max_length=48, seed=0)
    settings = TrainSettings(steps=12, learning_rate=2e-3, checkpoint_every=4, log_every=2)
    log = train(objective, stream.batch, settings, folder, title="simlm", progress=False, **rest)
    return objective, log


def test_simlm_pre_training_resumes_bit_for_bit(tmp_path, store, tiny_bert, tiny_tokenizer):
    whole, log = pretrain(store, tiny_bert, tiny_tokenizer, tmp_path / "whole")
    pretrain(store, tiny_bert, tiny_tokenizer, tmp_path / "pieces", stop_after=7)
    pieces, _ = pretrain(store, tiny_bert, tiny_tokenizer, tmp_path / "pieces")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, pieces.state_dict()[name]), name
    assert log.column("loss")[-1] < log.column("loss")[0]


def test_fine_tuning_with_hard_negatives_lowers_the_loss(
    tmp_path, store, tiny_bert, tiny_tokenizer
):
    encoder = DenseEncoder(tiny_bert(dropout=0.1).bert, DenseSettings(), tiny_tokenizer)
    negatives = (np.arange(10)[:, None] + np.arange(1, 4)) % 10
    examples = Examples.of(np.arange(10), np.arange(10)[:, None], negatives, passages=10)
    batches = RetrievalBatches(
        store,
        store,
        examples,
        batch_queries=4,
        passages_per_query=3,
        layout=Layout(passage_length=48),
    )
    settings = TrainSettings(steps=30, learning_rate=2e-3, weight_decay=0, log_every=6)
    log = train(
        BiEncoder(encoder),
        batches.batch,
        settings,
        tmp_path / "tuned",
        title="tune",
        progress=False,
    )
    assert log.column("loss")[-1] < log.column("loss")[0]
    assert log.tokens > 0
