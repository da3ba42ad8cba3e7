"""The collection as one long text: every token in its place, every row once an epoch."""

import datasets
import numpy as np
import pytest
import torch

from dr_lib.materials.packed_text import PackedText
from dr_lib.tokens import TokenStore

DOCUMENTS = np.array([1, 0, 1, 2, 0, 1])
POSITIONS = np.array([2, 1, 0, 0, 0, 1])
ORDER = [4, 1, 2, 5, 0, 3]  # by document, then position
ENDS = {1, 0, 3}  # last passages of their documents


@pytest.fixture
def store(tmp_path, sentences, tiny_tokenizer) -> TokenStore:
    rows = {"title": ["no part of it"] * 6, "text": [*sentences, ""]}
    return TokenStore.build(datasets.Dataset.from_dict(rows), tiny_tokenizer, tmp_path / "s", progress=False)


@pytest.fixture
def reference(sentences, tiny_tokenizer) -> list[int]:
    """The long text, put together passage by passage."""
    bodies, text = [*sentences, ""], []
    for row in ORDER:
        text += tiny_tokenizer(bodies[row], add_special_tokens=False)["input_ids"] + [3] * (row in ENDS)
    return text


def packed(store, **rest) -> PackedText:
    return PackedText(store, DOCUMENTS, POSITIONS, **{"length": 8, "tokens_per_batch": 24, **rest})


def test_documents_follow_each_other_with_an_end_between(store, reference):
    text = packed(store)
    assert text.read(np.arange(len(reference))).tolist() == reference


def test_rows_of_an_epoch_are_neighbouring_pieces_each_once(store, reference):
    text = packed(store)
    for epoch in range(3):
        steps = range(epoch * text.steps_per_epoch, (epoch + 1) * text.steps_per_epoch)
        batches = [text.batch(step) for step in steps]
        rows = torch.cat([batch.rows for batch in batches]).tolist()
        ids = torch.cat([batch.input_ids for batch in batches]).tolist()
        assert len(set(rows)) == len(rows) == text.steps_per_epoch * 3

        assert any([reference[shift + 8 * row :][:8] for row in rows] == ids for shift in range(8))


def test_the_same_step_is_the_same_batch(store):
    first, second = packed(store, seed=1).batch(7), packed(store, seed=1).batch(7)
    assert torch.equal(first.input_ids, second.input_ids)
    other = [packed(store, seed=seed).batch(7).input_ids for seed in range(2, 6)]
    assert any(not torch.equal(ids, first.input_ids) for ids in other)


def test_a_batch_has_no_padding_and_knows_its_words(store, tiny_tokenizer):
    batch = packed(store, length=16, tokens_per_batch=64).batch(0)
    assert batch.attention_mask.all() and batch.input_ids.shape == (4, 16)
    assert torch.equal(batch.special, batch.input_ids == 3)
    pieces = [tiny_tokenizer.convert_ids_to_tokens(row) for row in batch.input_ids.tolist()]
    starts = [[not piece.startswith("##") and piece != "[SEP]" for piece in row] for row in pieces]
    assert batch.word_start.tolist() == starts


def test_less_text_than_a_row_gives_one_short_row(store, reference):
    text = packed(store, length=10_000, tokens_per_batch=64)
    assert text.batch(3).input_ids.tolist() == [reference]
