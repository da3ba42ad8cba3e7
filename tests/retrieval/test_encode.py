"""Encoding to disk: right vectors in the right rows, few shapes, and the same bytes after a
kill.
"""

import sys
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from torch import nn

from dr_lib.errors import InputError
from dr_lib.models import DenseEncoder
from dr_lib.models.dense import DenseSettings
from dr_lib.retrieval import encode, search, vectors_at
from dr_lib.retrieval.encoding import fetching
from dr_lib.tokens import TokenStore, plan_by_length, shards
from dr_lib.training import machine


class ClsEncoder(nn.Module):
    """First hidden state of a BERT; counts shapes, and stops after `stop` batches."""

    def __init__(self, bert, stop: int | None = None):
        super().__init__()
        self.bert, self.stop, self.shapes = bert, stop, []

    def forward(self, batch):
        if len(self.shapes) == self.stop:
            raise KeyboardInterrupt
        self.shapes.append(tuple(batch.input_ids.shape))
        return self.bert(**batch.model_inputs()).last_hidden_state[:, 0]


@pytest.fixture(scope="module")
def store(tmp_path_factory, sentences, tiny_tokenizer) -> TokenStore:
    rng = np.random.default_rng(0)
    words = " ".join(sentences).split()
    bodies = [" ".join(rng.choice(words, rng.integers(1, 30))) for _ in range(150)]
    texts = datasets.Dataset.from_dict({"title": sentences * 30, "text": bodies})
    return TokenStore.build(texts, tiny_tokenizer, tmp_path_factory.mktemp("tokens") / "store")


@pytest.fixture
def encoder(tiny_bert):
    return ClsEncoder(tiny_bert().bert)


def options(**changes):
    return {"max_length": 48, "tokens_per_batch": 400, "precision": "fp32"} | changes


def test_batches_have_few_shapes_and_hold_every_row_once(store, encoder, tmp_path):
    encode(encoder, store, tmp_path / "v.npy", **options())
    assert encoder.shapes == sorted(encoder.shapes, key=lambda shape: -shape[1])
    assert len(set(encoder.shapes)) <= 48 // 8 + 1
    assert all(rows * length <= 400 for rows, length in encoder.shapes)
    batches = plan_by_length(store.lengths(48), 400, 48)
    assert np.sort(np.concatenate(batches)).tolist() == list(range(150))


def test_passage_longer_than_the_budget_is_a_batch_of_its_own():
    assert [batch.tolist() for batch in plan_by_length(np.array([20, 30]), 8, 32)] == [[1], [0]]


def test_float16_is_the_rounded_float32(store, encoder, tmp_path):
    full = encode(encoder, store, tmp_path / "a.npy", **options())
    half = encode(encoder, store, tmp_path / "b.npy", dtype="float16", **options())
    assert half.dtype == np.float16 and (half == full.astype(np.float16)).all()


@pytest.mark.parametrize("precision", ["bf16", "bf16_weights"])
def test_bf16_stays_close_and_leaves_the_encoder_as_it_was(store, encoder, tmp_path, precision):
    encoder.train()
    full = encode(encoder, store, tmp_path / "a.npy", **options())
    fast = encode(encoder, store, tmp_path / "b.npy", **options(precision=precision))
    assert (full * fast).sum(axis=1).min() > 0.999
    assert encoder.training and next(encoder.parameters()).dtype == torch.float32


def test_dropout_is_off_while_encoding(store, tiny_bert, tmp_path):
    dropping = ClsEncoder(tiny_bert(dropout=0.5).bert.train())
    first = np.array(encode(dropping, store, tmp_path / "a.npy", **options()))
    assert (first == encode(dropping, store, tmp_path / "b.npy", **options())).all()
    assert dropping.bert.training


def test_stopped_run_goes_on_and_ends_with_the_same_bytes(store, tiny_bert, tmp_path):
    whole = ClsEncoder(tiny_bert().bert)
    expected = np.array(encode(whole, store, tmp_path / "whole.npy", **options()))
    with pytest.raises(KeyboardInterrupt):
        encode(ClsEncoder(tiny_bert().bert, stop=6), store, tmp_path / "v.npy", **options())
    assert not (tmp_path / "v.npy").exists()
    resumed = ClsEncoder(tiny_bert().bert)
    found = encode(resumed, store, tmp_path / "v.npy", **options())
    assert (found == expected).all()
    assert len(resumed.shapes) < len(whole.shapes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.npy", "whole.npy"]


def test_killed_process_leaves_work_that_the_next_one_uses(store, tiny_bert, tmp_path, monkeypatch):
    """A kill leaves no time for a last note; those written before are enough."""
    module, notes = sys.modules["dr_lib.retrieval.encoding"], []
    write = module.write_json
    with monkeypatch.context() as patch:
        patch.setattr(module, "SAVE_EVERY", 0)
        patch.setattr(
            module, "write_json", lambda *note: len(notes) < 5 and notes.append(write(*note))
        )
        with pytest.raises(KeyboardInterrupt):
            encode(ClsEncoder(tiny_bert().bert, stop=6), store, tmp_path / "v.npy", **options())
    resumed = ClsEncoder(tiny_bert().bert)
    encode(resumed, store, tmp_path / "v.npy", **options())
    assert len(resumed.shapes) == len(plan_by_length(store.lengths(48), 400, 48)) - 5


@pytest.mark.parametrize("seed", range(8))
def test_unfinished_vectors_that_were_altered_are_made_again(store, tiny_bert, tmp_path, seed):
    """A power cut may keep the note and lose its vectors: here one bit of a finished row."""
    with pytest.raises(KeyboardInterrupt):
        encode(ClsEncoder(tiny_bert().bert, stop=6), store, tmp_path / "v.npy", **options())
    left = np.lib.format.open_memmap(tmp_path / ".v.npy.partial", mode="r+")
    # the sixth was made and not yet written
    done = np.concatenate(plan_by_length(store.lengths(48), 400, 48)[:5])
    bits, rng = left.view(np.uint32), np.random.default_rng(seed)
    bits[rng.choice(done), rng.integers(bits.shape[1])] ^= np.uint32(1 << int(rng.integers(32)))
    left.flush()
    del bits, left
    again = ClsEncoder(tiny_bert().bert)
    found = encode(again, store, tmp_path / "v.npy", **options())
    assert (
        found == encode(ClsEncoder(tiny_bert().bert), store, tmp_path / "w.npy", **options())
    ).all()
    assert len(again.shapes) == len(plan_by_length(store.lengths(48), 400, 48))


@pytest.mark.parametrize(
    "change", [{"max_length": 32}, {"normalise": False}, {"dtype": "float16"}, {"title": "none"}]
)
def test_unfinished_work_of_other_settings_is_not_used(store, tiny_bert, tmp_path, change):
    with pytest.raises(KeyboardInterrupt):
        encode(ClsEncoder(tiny_bert().bert, stop=6), store, tmp_path / "v.npy", **options())
    found = encode(ClsEncoder(tiny_bert().bert), store, tmp_path / "v.npy", **options(**change))
    expected = encode(ClsEncoder(tiny_bert().bert), store, tmp_path / "w.npy", **options(**change))
    assert (found == expected).all()


def test_unfinished_work_of_other_weights_is_not_used(store, tiny_bert, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        encode(ClsEncoder(tiny_bert(seed=1).bert, stop=6), store, tmp_path / "v.npy", **options())
    found = encode(ClsEncoder(tiny_bert().bert), store, tmp_path / "v.npy", **options())
    assert (
        found == encode(ClsEncoder(tiny_bert().bert), store, tmp_path / "w.npy", **options())
    ).all()


def test_vector_that_is_not_finite_is_refused_with_its_row(store, tiny_bert, tmp_path):
    broken = ClsEncoder(tiny_bert().bert)
    with torch.no_grad():
        broken.bert.embeddings.LayerNorm.weight.fill_(float("nan"))
    with pytest.raises(InputError, match="passage row"):
        encode(broken, store, tmp_path / "v.npy", **options())
    assert not (tmp_path / "v.npy").exists()


def test_sorted_batches_give_the_vectors_of_one_by_one_over_random_stores(
    encoder, sentences, tiny_tokenizer, tmp_path_factory
):
    words = " ".join(sentences).split()
    for seed in range(8):
        rng, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("random")
        count = int(rng.integers(1, 25))
        texts = [
            [" ".join(rng.choice(words, rng.integers(0, most))) for _ in range(count)]
            for most in (6, 40)
        ]
        rows = datasets.Dataset.from_dict(
            {"title": texts[0], "text": [text or "a" for text in texts[1]]}
        )
        store = TokenStore.build(rows, tiny_tokenizer, folder / "store")
        for turn in range(10):
            layout = {
                "max_length": int(rng.integers(8, 60)),
                "title": str(rng.choice(["pair", "joined", "none"])),
            }
            layout["side"] = "left" if layout["title"] == "none" and rng.random() < 0.5 else "right"
            normalise, dtype = bool(rng.integers(2)), str(rng.choice(["float32", "float16"]))
            how = options(
                **layout,
                tokens_per_batch=int(rng.integers(1, 700)),
                normalise=normalise,
                dtype=dtype,
            )
            found = encode(encoder, store, folder / f"{turn}.npy", **how)
            with torch.inference_mode():
                alone = torch.cat(
                    [encoder(store.batch(np.array([row]), **layout)) for row in range(count)]
                )
            alone = nn.functional.normalize(alone, dim=1) if normalise else alone
            np.testing.assert_allclose(
                found, alone.numpy(), atol=2e-5 if dtype == "float32" else 4e-3
            )
            assert found.dtype == dtype and not found.flags.writeable


def test_a_gpu_copies_vectors_before_it_begins_the_next_batch_and_is_waited_for_when_they_are_read(
    monkeypatch,
):
    happened = []

    class OnGpu(SimpleNamespace):
        def to(self, where, *, non_blocking):
            happened.append(f"copy to {where}, {'waiting' if not non_blocking else 'not waiting'}")
            return torch.ones(1, 2)

    event = SimpleNamespace(
        record=lambda: happened.append("record"), synchronize=lambda: happened.append("wait")
    )
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    fetch = fetching(OnGpu(device=torch.device("cuda")))
    happened.append("next batch")
    assert fetch().tolist() == [[1.0, 1.0]]
    assert happened == ["copy to cpu, not waiting", "record", "next batch", "wait"]


@pytest.mark.cuda
def test_a_gpu_gives_the_vectors_of_a_cpu(store, encoder, tmp_path):
    expected = encode(encoder, store, tmp_path / "cpu.npy", **options())
    np.testing.assert_allclose(
        encode(encoder.cuda(), store, tmp_path / "gpu.npy", **options()), expected, atol=2e-5
    )


@pytest.fixture
def small_blocks(monkeypatch) -> int:
    """Blocks so small that the store has several, the last of them incomplete."""
    monkeypatch.setattr(sys.modules["dr_lib.tokens.store"], "BLOCK", 16)
    return 16


def test_however_a_store_is_cut_its_vectors_and_rankings_are_the_same(
    store, encoder, tmp_path, monkeypatch, small_blocks
):
    whole = encode(encoder, store, tmp_path / "whole.npy", **options())
    asked, rng = np.array(whole[:9]), np.random.default_rng(0)
    expected = search(asked, whole, 7)
    for size in rng.integers(1, 10, 6) * small_blocks:
        monkeypatch.setattr(sys.modules["dr_lib.tokens.store"], "SHARD", int(size))
        parts = shards(len(store))
        assert [first for first, _ in parts] == list(range(0, 150, size)) and parts[-1][1] == 150
        made = [
            encode(encoder, store, tmp_path / f"{size}-{part[0]}.npy", **options(rows=part))
            for part in parts
        ]
        assert np.concatenate(made).tobytes() == whole.tobytes()
        assert all(
            (found == wanted).all()
            for found, wanted in zip(search(asked, made, 7), expected, strict=True)
        )
        rows = rng.integers(0, 150, 40)
        assert (vectors_at(made, rows) == whole[rows]).all()


def test_a_collection_of_one_block_is_sorted_as_a_whole(store, encoder, tmp_path):
    """Then its vectors are the same as before blocks were introduced."""
    assert shards(len(store)) == [(0, len(store))]
    encode(encoder, store, tmp_path / "v.npy", **options())
    lengths = store.lengths(48)
    plan = plan_by_length(lengths, 400, 48)
    assert encoder.shapes == [(len(rows), -(-lengths[rows].max() // 8) * 8) for rows in plan]


@pytest.mark.parametrize("precision", ["fp32", "bf16_weights"])
def test_several_devices_make_the_vectors_of_one_bit_for_bit(
    store, tiny_bert, tiny_tokenizer, tmp_path, precision
):
    encoder = DenseEncoder(tiny_bert(dropout=0.3).bert, DenseSettings(), tiny_tokenizer)
    how, two = options(precision=precision), [torch.device("cpu")] * 2
    one = encode(encoder, store, tmp_path / "one.npy", **how)
    both = encode(encoder, store, tmp_path / "two.npy", **how, devices=two)
    assert (np.array(both) == np.array(one)).all()


def test_on_a_gpu_a_model_that_does_not_learn_has_weights_in_bfloat16(
    store, tiny_bert, tiny_tokenizer, tmp_path, monkeypatch
):
    encoder = DenseEncoder(tiny_bert().bert, DenseSettings(projection=True), tiny_tokenizer)
    full = encode(encoder, store, tmp_path / "full.npy", **options(precision="fp32"))
    monkeypatch.setattr(machine, "FROZEN", ("cpu",))
    monkeypatch.setattr(machine, "has_bf16", lambda where: True)
    assert machine.frozen_precision("auto", torch.device("cpu")) == "bf16_weights"
    assert machine.frozen_precision("fp32", torch.device("cpu")) == "fp32"
    rounded = encode(encoder, store, tmp_path / "rounded.npy", **options(precision="auto"))
    assert (full * rounded).sum(axis=1).min() > 0.999 and not (full == rounded).all()
    with machine.evaluating(encoder, "bf16_weights") as model:
        assert model.encoder.dtype == torch.bfloat16
        assert model.projection.linear.weight.dtype == torch.float32
    assert encoder.encoder.dtype == torch.float32
