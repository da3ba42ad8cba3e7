"""A store on disk: built whole, the same every time, and refused when it is not what was written."""

import json
import os

import datasets
import numpy as np
import pytest
from transformers import BertTokenizerFast

from dr_lib.errors import InputError
from dr_lib.tokens import TokenStore, train_wordpiece
from dr_lib.tokens import store as building


@pytest.fixture
def folder(passages, tiny_tokenizer, tmp_path):
    return TokenStore.build(passages, tiny_tokenizer, tmp_path / "tokens", progress=False).folder


def test_ids_are_the_tokenizers_without_special_tokens(store, passages, tiny_tokenizer):
    for column, ids, offsets in (
        ("title", store.title_ids, store.title_offsets),
        ("text", store.text_ids, store.text_offsets),
    ):
        for row, text in enumerate(passages[column]):
            expected = tiny_tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
            assert ids[offsets[row] : offsets[row + 1]].tolist() == expected


def test_an_opened_store_gives_the_same_batches_and_digest(store):
    again = TokenStore.open(store.folder)
    assert (again.digest, len(again), again.special) == (store.digest, len(store), store.special)
    rows = np.arange(len(store))
    assert again.batch(rows, max_length=20).input_ids.equal(store.batch(rows, max_length=20).input_ids)


def test_chunks_and_threads_do_not_change_the_store(store, passages, tiny_tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "CHUNK", 7)
    again = TokenStore.build(passages, tiny_tokenizer, tmp_path / "tokens", workers=1, progress=False)
    assert again.digest == store.digest


def test_the_thread_setting_is_put_back(passages, tiny_tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    TokenStore.build(passages, tiny_tokenizer, tmp_path / "tokens", workers=2, progress=False)
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
    assert "RAYON_NUM_THREADS" not in os.environ


def test_the_tokenizers_own_truncation_is_ignored_and_kept(passages, tiny_tokenizer, tmp_path, store):
    tiny_tokenizer.backend_tokenizer.enable_truncation(5)
    try:
        again = TokenStore.build(passages, tiny_tokenizer, tmp_path / "tokens", progress=False)
        assert tiny_tokenizer.backend_tokenizer.truncation["max_length"] == 5
    finally:
        tiny_tokenizer.backend_tokenizer.no_truncation()
    assert again.digest == store.digest


def test_one_column_is_the_body(passages, tiny_tokenizer, tmp_path, store):
    queries = TokenStore.build(passages, tiny_tokenizer, tmp_path / "queries", columns=("text",), progress=False)
    rows = np.arange(len(store))
    alone, body = queries.batch(rows, max_length=24), store.batch(rows, max_length=24, title="none")
    assert alone.input_ids.equal(body.input_ids)
    assert alone.token_type_ids.equal(body.token_type_ids)


def test_empty_titles_alone_make_a_good_store(tiny_tokenizer, tmp_path):
    texts = datasets.Dataset.from_dict({"title": ["", ""], "text": ["masked words", ""]})
    store = TokenStore.build(texts, tiny_tokenizer, tmp_path / "tokens", progress=False)
    assert store.lengths(16).tolist()[1] == 2


def test_a_large_vocabulary_is_kept_in_four_bytes(tmp_path):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{index}" for index in range(70_000))]
    tokenizer = BertTokenizerFast(vocab={name: index for index, name in enumerate(names)})
    texts = datasets.Dataset.from_dict({"text": ["w69999 w1"]})
    store = TokenStore.build(texts, tokenizer, tmp_path / "tokens", columns=("text",), progress=False)
    assert store.text_ids.dtype == np.int32
    assert store.batch(np.array([0]), max_length=8).input_ids[0, 1:3].tolist() == [70_004, 6]


def test_a_flipped_byte_is_found(folder):
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        with pytest.raises(InputError, match=path.name):
            TokenStore.open(folder)
        path.write_bytes(content)
    TokenStore.open(folder)


def test_a_truncated_file_is_found_without_checksums(folder):
    path = folder / "text_ids.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InputError, match=r"text_ids\.npy"):
        TokenStore.open(folder, verify=False)


def test_a_missing_file_is_named(folder):
    (folder / "title_offsets.npy").unlink()
    with pytest.raises(InputError, match=r"title_offsets\.npy"):
        TokenStore.open(folder)


def test_a_changed_description_is_found(folder):
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"vocab_size": 9}))
    with pytest.raises(InputError, match=r"meta\.json"):
        TokenStore.open(folder)


def test_a_folder_without_store_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"meta\.json"):
        TokenStore.open(tmp_path)


def test_another_tokenizer_is_refused_with_both_digests(store, tiny_tokenizer, sentences):
    store.check_tokenizer(tiny_tokenizer)
    with pytest.raises(InputError, match=f"{store.tokenizer[:16]}.*[0-9a-f]{{16}}"):
        store.check_tokenizer(train_wordpiece(sentences, 120))


def test_a_folder_with_other_things_is_never_replaced(passages, tiny_tokenizer, tmp_path):
    (tmp_path / "letter.txt").write_text("dear reader")
    with pytest.raises(InputError, match="not a token store"):
        TokenStore.build(passages, tiny_tokenizer, tmp_path, progress=False)
    assert (tmp_path / "letter.txt").read_text() == "dear reader"


def test_a_build_that_fails_leaves_the_older_store_and_no_rest(folder, tiny_tokenizer):
    broken = datasets.Dataset.from_dict({"title": ["a", "b"], "text": ["c", None]})
    with pytest.raises(InputError, match="column 'text', row 1"):
        TokenStore.build(broken, tiny_tokenizer, folder, progress=False)
    assert len(TokenStore.open(folder)) == 60
    assert [path.name for path in folder.parent.iterdir()] == ["tokens"]


@pytest.mark.parametrize(
    ("texts", "columns", "named"),
    [
        ({"text": ["a"]}, ("title", "text"), "title"),
        ({"text": ["a"]}, (), "columns"),
        ({"text": []}, ("text",), "no rows"),
    ],
)
def test_wrong_columns_and_empty_data_are_refused(tiny_tokenizer, tmp_path, texts, columns, named):
    with pytest.raises(InputError, match=named):
        TokenStore.build(datasets.Dataset.from_dict(texts), tiny_tokenizer, tmp_path / "tokens", columns=columns)


def test_no_threads_are_refused(passages, tiny_tokenizer, tmp_path):
    with pytest.raises(InputError, match="workers"):
        TokenStore.build(passages, tiny_tokenizer, tmp_path / "tokens", workers=0, progress=False)
