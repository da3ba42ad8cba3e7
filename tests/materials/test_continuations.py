"""Continuations: the loss against plain torch, prompts in their place, and what is written."""

import datasets
import numpy as np
import pytest
import torch

from dr_lib.errors import InputError
from dr_lib.materials import continuations
from dr_lib.materials.continuations import (
    ContinuationTraining,
    ContinuationWriter,
    check_room,
    stored_prompts,
    tokenised_prompts,
)
from dr_lib.materials.packed_text import PackedText
from dr_lib.models import new_causal_lm, writers
from dr_lib.tokens import TokenStore, special_ids


@pytest.fixture(scope="module")
def rows(sentences) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"title": ["no prompt"] * 6, "text": [*sentences, ""]})


@pytest.fixture(scope="module")
def store(rows, tiny_tokenizer, tmp_path_factory) -> TokenStore:
    return TokenStore.build(rows, tiny_tokenizer, tmp_path_factory.mktemp("p") / "store", progress=False)


@pytest.fixture
def model(tiny_bert, tiny_tokenizer):
    return new_causal_lm(tiny_bert(), special_ids(tiny_tokenizer), positions=64)


@pytest.fixture
def writer(model, tiny_tokenizer, store):
    def make(**rest) -> ContinuationWriter:
        return ContinuationWriter(model, tiny_tokenizer, stored_prompts(store, 30), **{"new_tokens": 7, **rest})

    return make


def test_loss_is_the_mean_over_all_tokens_but_the_first_of_each_row(model, store):
    batch = PackedText(store, np.arange(6), np.zeros(6, np.int64), length=9, tokens_per_batch=36).batch(0)
    logits = model(input_ids=batch.input_ids).logits[:, :-1]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.input_ids[:, 1:].flatten())
    (slope,) = torch.autograd.grad(expected, [model.transformer.wte.weight])
    parts = ContinuationTraining(model)(batch, torch.Generator())
    torch.testing.assert_close(parts["loss"], expected, atol=1e-5, rtol=1e-5)
    (found,) = torch.autograd.grad(parts["loss"], [model.transformer.wte.weight])
    torch.testing.assert_close(found, slope, atol=1e-6, rtol=1e-4)
    right = (logits.argmax(-1) == batch.input_ids[:, 1:]).float().mean()
    assert float(parts["accuracy"]) == pytest.approx(float(right))


@pytest.mark.parametrize("longest", [4, 30])
def test_prompts_are_the_beginnings_of_the_bodies_after_an_end(rows, store, tiny_tokenizer, longest):
    wanted = np.array([3, 0, 5])
    for prompts in (stored_prompts(store, longest), tokenised_prompts(rows, tiny_tokenizer, longest)):
        ids, mask = prompts(wanted)
        for row, passage in enumerate(wanted):
            body = tiny_tokenizer(rows[int(passage)]["text"], add_special_tokens=False)["input_ids"][:longest]
            assert ids[row][mask[row] == 1].tolist() == [3, *body]
            assert mask[row].tolist() == sorted(mask[row].tolist())


def test_texts_do_not_depend_on_what_is_written_beside_them(writer):
    together = writer()(np.arange(6))
    assert together == [own for rows in ([0], [1, 2, 3], [4], [5]) for own in writer()(np.array(rows))]
    assert together != writer(seed=1)(np.arange(6))


def test_a_text_has_its_full_length_and_no_special_token(writer, monkeypatch):
    seen = []

    def spy(*args, **options) -> torch.Tensor:
        seen.append(writers.write_texts(*args, **options))
        return seen[-1]

    monkeypatch.setattr(continuations, "write_texts", spy)
    assert [len(own) for own in writer(new_tokens=25)(np.arange(6))] == [1] * 6
    assert seen[0].shape == (6, 25)
    assert not torch.isin(seen[0], torch.arange(5)).any()


def test_a_model_without_room_is_refused(model):
    check_room(model, 40, 23)
    with pytest.raises(InputError, match="reads 64"):
        check_room(model, 40, 24)
