"""Opening tokenizers by name, and what is not fit for a masked language model."""

import copy

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from dr_lib.errors import InputError
from dr_lib.tokens import load_tokenizer, special_ids, tokenizer_digest, train_wordpiece
from dr_lib.tokens import tokenizer as opening


def test_a_local_folder_opens(tiny_tokenizer, sentences, tmp_path):
    tiny_tokenizer.save_pretrained(tmp_path)
    opened = load_tokenizer(tmp_path)
    assert opened(sentences) == tiny_tokenizer(sentences)
    assert tokenizer_digest(opened) == tokenizer_digest(tiny_tokenizer)


def test_embedded_is_the_base_models_tokenizer(tiny_tokenizer, tmp_path, monkeypatch):
    tiny_tokenizer.save_pretrained(tmp_path)
    monkeypatch.setattr(opening, "embedded_base", lambda: tmp_path)
    assert tokenizer_digest(load_tokenizer("embedded")) == tokenizer_digest(tiny_tokenizer)


def test_special_ids_go_by_name(tiny_tokenizer):
    assert special_ids(tiny_tokenizer) == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}


def test_the_digest_ignores_truncation_and_padding(tiny_tokenizer):
    changed = copy.deepcopy(tiny_tokenizer)
    changed.backend_tokenizer.enable_truncation(9)
    changed.backend_tokenizer.enable_padding()
    assert tokenizer_digest(changed) == tokenizer_digest(tiny_tokenizer)


def test_the_digest_follows_vocabulary_and_normaliser(tiny_tokenizer, sentences):
    cased = copy.deepcopy(tiny_tokenizer)
    cased.backend_tokenizer.normalizer = None
    digests = {tokenizer_digest(each) for each in (tiny_tokenizer, cased, train_wordpiece(sentences, 120))}
    assert len(digests) == 3


@pytest.mark.parametrize("name", ["pad", "unk", "cls", "sep", "mask"])
def test_a_missing_special_token_is_named(tiny_tokenizer, tmp_path, name):
    lacking = copy.deepcopy(tiny_tokenizer)
    setattr(lacking, f"{name}_token", None)
    lacking.save_pretrained(tmp_path)
    with pytest.raises(InputError, match=rf"{tmp_path}: no \[{name.upper()}\] token"):
        load_tokenizer(tmp_path)


def test_two_special_tokens_with_one_id_are_refused(tiny_tokenizer):
    shared = copy.deepcopy(tiny_tokenizer)
    shared.pad_token = shared.unk_token
    with pytest.raises(InputError, match="share an id"):
        special_ids(shared)


def test_other_kinds_of_tokenizer_are_refused():
    raw = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    with pytest.raises(InputError, match="not a WordPiece tokenizer"):
        special_ids(raw)


def test_an_empty_folder_an_unknown_path_and_an_unknown_name_are_refused(tmp_path):
    for name in (tmp_path, tmp_path / "nowhere", "./nowhere", "no-such-owner/no-such-model"):
        with pytest.raises(InputError, match='Give "embedded"'):
            load_tokenizer(name)


def test_a_broken_file_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model"')
    with pytest.raises(InputError, match="cannot open this tokenizer"):
        load_tokenizer(tmp_path)
