"""Continuations: the loss against plain torch, the long text, prompts' positions, and output."""

import sys

import datasets
import numpy as np
import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.materials.continuations import ContinuationTraining, PackedText, check_room, prompts
from dr_lib.materials.texts import PassageWriter
from dr_lib.models import CausalDecoding, Sampling, new_causal_lm, writers
from dr_lib.tokens import TokenStore, special_ids


@pytest.fixture(scope="module")
def rows(sentences) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"title": ["no prompt"] * 6, "text": [*sentences, ""]})


@pytest.fixture(scope="module")
def store(rows, tiny_tokenizer, tmp_path_factory) -> TokenStore:
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("p") / "store")


@pytest.fixture
def model(tiny_bert, tiny_tokenizer):
    return new_causal_lm(tiny_bert(), special_ids(tiny_tokenizer), positions=64)


@pytest.fixture
def writer(model, tiny_tokenizer, rows):
    def begin(chosen) -> CausalDecoding:
        return CausalDecoding(model, *prompts(rows[chosen]["text"], tiny_tokenizer, 30))

    def make(**rest) -> PassageWriter:
        options = {
            "copies": 1,
            "longest": 7,
            "choice": Sampling(top_p=0.9),
            "may_end": False,
            **rest,
        }
        return PassageWriter(model, tiny_tokenizer, begin, **options)

    return make


def test_loss_is_the_mean_over_all_tokens_but_the_first_of_each_row(model, store):
    batch = PackedText(
        store, np.arange(6), np.zeros(6, np.int64), length=9, tokens_per_batch=36
    ).batch(0)
    logits = model(input_ids=batch.input_ids).logits[:, :-1]
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.input_ids[:, 1:].flatten()
    )
    (slope,) = torch.autograd.grad(expected, [model.transformer.wte.weight])
    parts = ContinuationTraining(model)(batch, torch.Generator())
    torch.testing.assert_close(parts["loss"], expected, atol=1e-5, rtol=1e-5)
    (found,) = torch.autograd.grad(parts["loss"], [model.transformer.wte.weight])
    torch.testing.assert_close(found, slope, atol=1e-6, rtol=1e-4)
    right = (logits.argmax(-1) == batch.input_ids[:, 1:]).float().mean()
    assert float(parts["accuracy"]) == pytest.approx(float(right))


@pytest.mark.parametrize("longest", [4, 30])
def test_prompts_are_the_beginnings_of_the_bodies_after_an_end(
    rows, store, tiny_tokenizer, longest
):
    wanted = np.array([3, 0, 5])
    ids, mask = prompts(rows[wanted]["text"], tiny_tokenizer, longest)
    for row, passage in enumerate(wanted):
        body = store.text_ids[store.text_offsets[passage] :][
            : min(longest, np.diff(store.text_offsets)[passage])
        ]
        assert ids[row][mask[row] == 1].tolist() == [3, *body.tolist()]
        assert mask[row].tolist() == sorted(mask[row].tolist())


def test_texts_do_not_depend_on_what_is_written_beside_them(writer):
    together = writer()(np.arange(6))
    assert together == [
        own for rows in ([0], [1, 2, 3], [4], [5]) for own in writer()(np.array(rows))
    ]
    assert together != writer(seed=1)(np.arange(6))


def test_a_text_has_its_full_length_and_no_special_token(writer, monkeypatch):
    seen = []

    def spy(*args, **options) -> torch.Tensor:
        seen.append(writers.write_texts(*args, **options))
        return seen[-1]

    monkeypatch.setattr(sys.modules[PassageWriter.__module__], "write_texts", spy)
    assert [len(own) for own in writer(longest=25)(np.arange(6))] == [1] * 6
    assert seen[0].shape == (6, 25)
    assert not torch.isin(seen[0], torch.arange(5)).any()


def test_a_model_without_room_is_refused(model):
    check_room(model, 40, 23)
    with pytest.raises(InputError, match="reads 64"):
        check_room(model, 40, 24)


DOCUMENTS = np.array([1, 0, 1, 2, 0, 1])
POSITIONS = np.array([2, 1, 0, 0, 0, 1])
ORDER = [4, 1, 2, 5, 0, 3]  # by document, then position
ENDS = {1, 0, 3}  # last passages of their documents


@pytest.fixture
def documents_store(tmp_path, sentences, tiny_tokenizer) -> TokenStore:
    rows = {"title": ["no part of it"] * 6, "text": [*sentences, ""]}
    return TokenStore.build(datasets.Dataset.from_dict(rows), tiny_tokenizer, tmp_path / "s")


@pytest.fixture
def reference(sentences, tiny_tokenizer) -> list[int]:
    """The long text, put together passage by passage."""
    bodies, text = [*sentences, ""], []
    for row in ORDER:
        text += tiny_tokenizer(bodies[row], add_special_tokens=False)["input_ids"] + [3] * (
            row in ENDS
        )
    return text


def packed(store, **rest) -> PackedText:
    return PackedText(store, DOCUMENTS, POSITIONS, **{"length": 8, "tokens_per_batch": 24, **rest})


def test_documents_follow_each_other_with_an_end_between(documents_store, reference):
    text = packed(documents_store)
    assert text.read(np.arange(len(reference))).tolist() == reference


def test_rows_of_an_epoch_are_neighbouring_pieces_each_once(documents_store, reference):
    text = packed(documents_store)
    for epoch in range(3):
        steps = range(epoch * text.steps_per_epoch, (epoch + 1) * text.steps_per_epoch)
        batches = [text.batch(step) for step in steps]
        rows = torch.cat([batch.rows for batch in batches]).tolist()
        ids = torch.cat([batch.input_ids for batch in batches]).tolist()
        assert len(set(rows)) == len(rows) == text.steps_per_epoch * 3

        assert any([reference[shift + 8 * row :][:8] for row in rows] == ids for shift in range(8))


def test_the_same_step_is_the_same_batch(documents_store):
    first, second = (
        packed(documents_store, seed=1).batch(7),
        packed(documents_store, seed=1).batch(7),
    )
    assert torch.equal(first.input_ids, second.input_ids)
    other = [packed(documents_store, seed=seed).batch(7).input_ids for seed in range(2, 6)]
    assert any(not torch.equal(ids, first.input_ids) for ids in other)


def test_a_batch_has_no_padding_and_knows_its_words(documents_store, tiny_tokenizer):
    batch = packed(documents_store, length=16, tokens_per_batch=64).batch(0)
    assert batch.attention_mask.all() and batch.input_ids.shape == (4, 16)
    assert torch.equal(batch.special, batch.input_ids == 3)
    pieces = [tiny_tokenizer.convert_ids_to_tokens(row) for row in batch.input_ids.tolist()]
    starts = [[not piece.startswith("##") and piece != "[SEP]" for piece in row] for row in pieces]
    assert batch.word_start.tolist() == starts


def test_less_text_than_a_row_gives_one_short_row(documents_store, reference):
    text = packed(documents_store, length=10_000, tokens_per_batch=64)
    assert text.batch(3).input_ids.tolist() == [reference]
