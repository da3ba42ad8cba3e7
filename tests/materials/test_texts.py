"""Texts about passages: strings, tokens and owners; a killed run continues where it stopped."""

import json
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from dr_lib.errors import InputError
from dr_lib.materials import Texts
from dr_lib.materials.texts import (
    SCRATCH,
    PassageWriter,
    distinct,
    spelled,
    uniform_numbers,
    write_all,
)
from dr_lib.models import Sampling
from dr_lib.training import machine

texts_module = sys.modules[write_all.__module__]

BLOCKS = [
    [["the vector", "a dense retriever"], []],
    [["masked words"]],
    [[], ["new york", "hard negatives", "new"]],
]


@pytest.fixture
def texts(tmp_path, tiny_tokenizer) -> Texts:
    return Texts.write(tmp_path, BLOCKS, tiny_tokenizer)


def test_each_passage_has_its_texts(texts):
    assert texts.strings["text"][:] == [text for block in BLOCKS for own in block for text in own]
    assert texts.offsets.tolist() == [0, 2, 2, 3, 3, 6] and texts.offsets.dtype == np.int64
    assert texts.owners().tolist() == [0, 0, 2, 4, 4, 4]
    assert len(texts) == 6


def test_tokens_are_those_of_the_strings(texts, tiny_tokenizer):
    for row, text in enumerate(texts.strings["text"]):
        start, end = texts.store.text_offsets[row : row + 2]
        assert (
            texts.store.text_ids[start:end].tolist()
            == tiny_tokenizer(text, add_special_tokens=False)["input_ids"]
        )


def test_not_a_single_text_is_an_error(tmp_path, tiny_tokenizer):
    with pytest.raises(InputError, match="no text was written"):
        Texts.write(tmp_path, [[[], []]], tiny_tokenizer)


LENGTHS = np.array([3, 9, 1, 9, 4, 4, 7, 2, 8, 5, 6])


class Echo:
    """Writes each passage's number; records its calls, and fails at call number `fails`."""

    def __init__(self, fails: int = -1):
        self.asked, self.fails = [], fails

    def __call__(self, rows: np.ndarray) -> list[list[str]]:
        if len(self.asked) == self.fails:
            raise KeyboardInterrupt
        self.asked.append(rows.tolist())
        return [[f"about {row}", f"again {row}"] for row in rows]


def written(folder, write, **rest) -> list[list[str]]:
    options = {"at_once": 2, "title": "test", **rest}
    return [own for block in write_all(folder, LENGTHS, write, **options) for own in block]


EXPECTED = [[f"about {row}", f"again {row}"] for row in range(len(LENGTHS))]


@pytest.mark.parametrize("per_shard", [1, 2, 5, 16])
def test_texts_come_back_in_the_order_of_the_passages(tmp_path, monkeypatch, per_shard):
    monkeypatch.setattr(texts_module, "BATCHES_PER_SHARD", per_shard)
    assert written(tmp_path, Echo()) == EXPECTED


def test_passages_of_like_length_are_written_together(tmp_path):
    echo = Echo()
    written(tmp_path, echo, at_once=3)
    assert max(np.ptp(LENGTHS[batch]) for batch in echo.asked) <= 2
    assert sorted(row for batch in echo.asked for row in batch) == list(range(11))


def test_a_killed_run_writes_only_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(texts_module, "BATCHES_PER_SHARD", 2)
    with pytest.raises(KeyboardInterrupt):
        written(tmp_path, Echo(fails=5))
    second = Echo()
    assert written(tmp_path, second) == EXPECTED
    assert second.asked == [[8, 10], [9]]  # the third shard; the first two were kept


def test_a_damaged_shard_and_one_of_more_passages_are_written_again(tmp_path, monkeypatch):
    monkeypatch.setattr(texts_module, "BATCHES_PER_SHARD", 2)
    written(tmp_path, Echo())
    first, second, _ = sorted((tmp_path / SCRATCH).iterdir())
    first.write_text(first.read_text()[:-20])
    second.write_text(json.dumps([*json.loads(second.read_text()), ["one more"]]))
    again = Echo()
    assert written(tmp_path, again) == EXPECTED
    assert len(again.asked) == 4


@pytest.mark.parametrize("copies", [1, 3])
def test_keys_and_values_of_a_large_writer_fit_a_gpu(tmp_path, monkeypatch, copies):
    asked = []
    monkeypatch.setattr(machine, "device", lambda: torch.device("cuda"))
    monkeypatch.setattr(
        texts_module, "write_all", lambda *given, at_once, title: asked.append(at_once) or []
    )
    monkeypatch.setattr(Texts, "write", lambda *given: None)
    monkeypatch.setattr(texts_module, "load_tokenizer", lambda name: None)
    for size in ({}, {"n_layer": 2, "n_embd": 128, "n_head": 2, "vocab_size": 8192}):
        with torch.device("meta"):
            model = GPT2LMHeadModel(GPT2Config(**size))
        write = PassageWriter(model, None, None, copies, 32, Sampling(), may_end=True)
        texts_module.save_texts(
            tmp_path, write, SimpleNamespace(text_offsets=np.arange(3)), "", title="test"
        )
    a_token = 12 * 2 * 768 * 2  # bytes of GPT-2's keys and values in bfloat16
    assert 2e9 < copies * asked[0] * a_token * 200 < 8e9
    assert asked[1] == 8192 // copies


def test_empty_and_repeated_texts_are_dropped_and_counted():
    counts = Counter()
    assert distinct(["What is it?", "", "what IS it? ", "Why?"], counts) == ["What is it?", "Why?"]
    assert distinct([" ", ""], counts) == []
    assert counts == Counter(passages=2, drawn=6, empty=3, repeated=1, kept=2, without=1)


def test_uniform_numbers_depend_on_seed_passage_copy_and_token_alone():
    rows = np.array([5, 0, 9])
    numbers = uniform_numbers(3, rows, copies=2, steps=4)
    assert numbers.shape == (6, 4) and numbers.dtype == np.float32
    assert np.array_equal(uniform_numbers(3, rows[1:], 2, 4), numbers[2:])
    assert np.array_equal(uniform_numbers(3, rows, 2, 9)[:, :4], numbers)
    assert not (uniform_numbers(4, rows, 2, 4) == numbers).any()


def test_uniform_numbers_are_uniform_below_one():
    numbers = uniform_numbers(0, np.arange(200), copies=5, steps=20)
    assert len(np.unique(numbers)) > 0.99 * numbers.size
    assert numbers.min() >= 0 and numbers.max() < 1
    assert np.abs(np.histogram(numbers, bins=10, range=(0, 1))[0] / numbers.size - 0.1).max() < 0.01


def test_a_first_piece_that_continues_a_word_loses_its_mark(tiny_tokenizer):
    ids = torch.tensor([tiny_tokenizer.convert_tokens_to_ids(["##s", "the", "[SEP]"])])
    assert spelled(tiny_tokenizer, ids) == ["s the"]
