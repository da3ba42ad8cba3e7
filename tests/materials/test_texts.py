"""Texts about passages on disk: strings, tokens and whose they are."""

import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.materials.texts import Texts

BLOCKS = [[["the vector", "a dense retriever"], []], [["masked words"]], [[], ["new york", "hard negatives", "new"]]]


@pytest.fixture
def texts(tmp_path, tiny_tokenizer) -> Texts:
    return Texts.write(tmp_path, BLOCKS, tiny_tokenizer, progress=False)


def test_each_passage_has_its_texts(texts):
    flat = [own for block in BLOCKS for own in block]
    assert [texts.of(passage) for passage in range(5)] == flat
    assert texts.offsets.tolist() == [0, 2, 2, 3, 3, 6] and texts.offsets.dtype == np.int64
    assert texts.owners().tolist() == [0, 0, 2, 4, 4, 4]
    assert len(texts) == 6


def test_tokens_are_those_of_the_strings(texts, tiny_tokenizer):
    for row, text in enumerate(texts.strings["text"]):
        start, end = texts.store.text_offsets[row : row + 2]
        assert texts.store.text_ids[start:end].tolist() == tiny_tokenizer(text, add_special_tokens=False)["input_ids"]


def test_not_a_single_text_is_an_error(tmp_path, tiny_tokenizer):
    with pytest.raises(InputError, match="no text was written"):
        Texts.write(tmp_path, [[[], []]], tiny_tokenizer, progress=False)


@pytest.mark.parametrize("file", ["offsets.npy", "texts.arrow"])
def test_files_that_do_not_fit_are_refused(tmp_path, texts, file):
    path = tmp_path / file
    if file == "offsets.npy":
        np.save(path, texts.offsets[:-1])
    else:
        path.unlink()
    with pytest.raises(InputError, match="Make it again"):
        Texts.open(tmp_path)
