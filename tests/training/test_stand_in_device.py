"""Encoding, search and the loop on a device without values ("meta"): nothing stays on the CPU,
nothing waits unnoticed.

There, reading a number fails (`item`, `bool`, `nonzero`), and so does mixing two devices. The few
places where the host needs numbers are replaced, and counted: results of a search are fetched once
per tile and again for the rest, since its last step, the exact order, is always the host's; losses
are fetched once per row of the log; checkpoints.
"""

import sys
from contextlib import nullcontext

import datasets
import numpy as np
import pytest
import torch
from accelerate import Accelerator

from dr_lib import objectives
from dr_lib.models import DenseEncoder, DenseSettings
from dr_lib.retrieval import encode
from dr_lib.tokens import BatchStream, Layout, TokenStore
from dr_lib.training import (
    BiEncoder,
    Examples,
    RetrievalBatches,
    TrainSettings,
    loop,
    machine,
    train,
)

AWAY = torch.device("meta")


@pytest.fixture(scope="module")
def store(sentences, tiny_tokenizer, tmp_path_factory) -> TokenStore:
    rows = datasets.Dataset.from_dict({"title": [""] * 20, "text": sentences * 4})
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("texts") / "store")


@pytest.fixture
def fetched(monkeypatch) -> list[str]:
    """Each fetch from the device, by the calling function; it returns random numbers."""
    calls, seen = [], {name: getattr(torch.Tensor, name) for name in ("cpu", "tolist")}

    def instead(name: str):
        def fetch(tensor: torch.Tensor):
            if tensor.device != AWAY:
                return seen[name](tensor)
            calls.append(name)
            return seen[name](torch.rand(tensor.shape).to(tensor.dtype))

        return fetch

    for name in seen:
        monkeypatch.setattr(torch.Tensor, name, instead(name))
    return calls


@pytest.mark.parametrize("precision", ["fp32", "bf16_weights"])
def test_encoding_leaves_no_tensor_behind_and_asks_for_no_value(
    store, tiny_bert, tiny_tokenizer, tmp_path, monkeypatch, precision
):
    made = []

    # the real one copies each batch of vectors to a file
    def fill(path, batches, make, key, **options):
        made.extend(make(batches))

    module = sys.modules["dr_lib.retrieval.encoding"]
    monkeypatch.setattr(module, "fill", fill)
    monkeypatch.setattr(module, "fetching", lambda vectors: vectors)
    monkeypatch.setattr(module, "_weights_digest", lambda encoder: "")
    encoder = DenseEncoder(tiny_bert().bert, DenseSettings(), tiny_tokenizer).to(AWAY)
    encode(
        encoder, store, tmp_path / "v.npy", max_length=48, tokens_per_batch=256, precision=precision
    )
    assert sum(map(len, made)) == 20 and len(made) > 1
    assert {(vectors.device, vectors.dtype, vectors.shape[1]) for vectors in made} == {
        (AWAY, torch.float32, 32)
    }


def test_search_fetches_its_lists_once_whatever_the_blocks(fetched, monkeypatch):
    module = sys.modules["dr_lib.retrieval.exact"]
    monkeypatch.setattr(module, "BLOCK_ROWS", 300)
    monkeypatch.setattr(module, "DEVICE_SCORES", 300 * 256)
    random = np.random.default_rng(0)
    queries, passages = (
        random.standard_normal((rows, 16)).astype(np.float32) for rows in (600, 2000)
    )
    lists = module._OnGpu(queries, 42, AWAY)
    for block in module._blocks([passages]):
        lists.add(block)
    assert fetched == []
    scores, rows = lists.finish()
    assert rows.shape == scores.shape == (600, 42)
    assert fetched == ["cpu"] * 2


@pytest.mark.parametrize("name", ["mlm", "simlm", "retromae", "fine-tuning"])
def test_the_loop_fetches_losses_once_a_row_of_the_log(
    name, store, tiny_bert, tiny_tokenizer, tmp_path, monkeypatch, fetched
):
    saved, kept = [], torch.Generator
    monkeypatch.setattr(machine, "device", lambda: AWAY)
    monkeypatch.setattr(machine, "processes", lambda: 1)
    monkeypatch.setattr(Accelerator, "device", property(lambda self: AWAY))
    # there is none of this device
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": kept())
    # nor does autocast know it
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *device: False)
    monkeypatch.setattr(torch, "autocast", lambda *device, **options: nullcontext())
    monkeypatch.setattr(
        loop, "save_checkpoint", lambda folder, step, *rest, **options: saved.append(step)
    )
    if name == "fine-tuning":
        rows = np.arange(20)
        examples = Examples.of(rows, rows[:, None], (rows[:, None] + [1, 2]) % 20, passages=20)
        batches = RetrievalBatches(
            store,
            store,
            examples,
            batch_queries=4,
            passages_per_query=2,
            layout=Layout(passage_length=48),
        )
        module = BiEncoder(
            DenseEncoder(tiny_bert(dropout=0.1).bert, DenseSettings(), tiny_tokenizer)
        )
    else:
        other = (
            {"generator_model": tiny_bert(seed=1)}
            if objectives.method(name).needs_generator
            else {}
        )
        module = objectives.create(name, tiny_bert(dropout=0.1), tiny_tokenizer, **other)
        batches = BatchStream(store, tokens_per_batch=256, max_length=48)
    settings = TrainSettings(
        steps=6, learning_rate=1e-3, precision="fp32", log_every=3, accumulation=2
    )
    log = train(module, batches.batch, settings, tmp_path, title=name, progress=False)
    assert log.finished and len(log.rows) == 2 and saved == [6]
    assert fetched == ["tolist"] * 2
    assert {weight.device for weight in module.parameters()} == {AWAY}
    assert {weight.grad for weight in module.parameters()} == {None}
