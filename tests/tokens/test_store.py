"""A store on disk and its batches: those of Hugging Face's own tokenizer, with a number for each
piece.
"""

import copy

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast

from dr_lib.errors import InputError
from dr_lib.tokens import TokenStore, TokenValues, train_wordpiece
from dr_lib.tokens import store as building


@pytest.fixture
def folder(passages, tiny_tokenizer, tmp_path):
    return TokenStore.build(passages, tiny_tokenizer, tmp_path / "tokens").folder


def test_ids_are_the_tokenizers_without_special_tokens(store, passages, tiny_tokenizer):
    for column, ids, offsets in (
        ("title", store.title_ids, store.title_offsets),
        ("text", store.text_ids, store.text_offsets),
    ):
        for row, text in enumerate(passages[column]):
            expected = tiny_tokenizer(text, add_special_tokens=False, split_special_tokens=True)[
                "input_ids"
            ]
            assert ids[offsets[row] : offsets[row + 1]].tolist() == expected


def test_an_opened_store_gives_the_same_batches_and_digest(store):
    again = TokenStore.open(store.folder)
    assert (again.digest, len(again), again.special) == (store.digest, len(store), store.special)
    rows = np.arange(len(store))
    assert again.batch(rows, max_length=20).input_ids.equal(
        store.batch(rows, max_length=20).input_ids
    )


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_store_in_memory_gives_the_batches_of_its_slow_twin_on_disk(
    store, passages, tiny_tokenizer, data
):
    rows = data.draw(st.lists(st.integers(0, len(passages) - 1), min_size=1, max_size=9))
    titled = data.draw(st.booleans())
    texts, titles = passages[rows]["text"], passages[rows]["title"]
    few = TokenStore.of(texts, tiny_tokenizer, titles if titled else None)
    layout = {
        "max_length": data.draw(st.integers(4, 40)),
        "title": data.draw(st.sampled_from(["pair", "joined", "none"])) if titled else "none",
        "side": data.draw(st.sampled_from(["right", "left"])),
    }
    assert len(few) == len(rows) and few.lengths(**layout).tolist() == [
        store.lengths(**layout)[row] for row in rows
    ]
    batch = few.batch(np.arange(len(rows)), **layout)
    twin = store.batch(np.array(rows), **layout)
    for name in ("input_ids", "attention_mask", "token_type_ids", "special", "word_start"):
        assert getattr(batch, name).equal(getattr(twin, name)), name
    few.check_tokenizer(tiny_tokenizer)
    assert len(TokenStore.of([], tiny_tokenizer)) == 0


def test_tokens_added_to_a_tokenizer_are_read_in_memory_too(tiny_tokenizer, tmp_path):
    grown = copy.deepcopy(tiny_tokenizer)
    before = TokenStore.of(["zyxwv vectors"], grown)
    grown.add_tokens(["zyxwv"])
    rows = datasets.Dataset.from_dict({"text": ["zyxwv vectors"]})
    twin = TokenStore.build(rows, grown, tmp_path / "tokens", columns=("text",))
    after = TokenStore.of(["zyxwv vectors"], grown)
    assert after.text_ids.tolist() == twin.text_ids.tolist() != before.text_ids.tolist()
    assert (after.tokenizer, after.vocab_size) == (twin.tokenizer, twin.vocab_size)


def test_chunks_do_not_change_the_store(store, passages, tiny_tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "CHUNK", 7)
    again = TokenStore.build(passages, tiny_tokenizer, tmp_path / "tokens")
    assert again.digest == store.digest


def test_the_tokenizers_own_truncation_is_ignored_and_kept(
    passages, tiny_tokenizer, tmp_path, store
):
    tiny_tokenizer.backend_tokenizer.enable_truncation(5)
    try:
        again = TokenStore.build(passages, tiny_tokenizer, tmp_path / "tokens")
        assert tiny_tokenizer.backend_tokenizer.truncation["max_length"] == 5
    finally:
        tiny_tokenizer.backend_tokenizer.no_truncation()
    assert again.digest == store.digest


def test_one_column_is_the_body(passages, tiny_tokenizer, tmp_path, store):
    queries = TokenStore.build(passages, tiny_tokenizer, tmp_path / "queries", columns=("text",))
    rows = np.arange(len(store))
    alone, body = queries.batch(rows, max_length=24), store.batch(rows, max_length=24, title="none")
    assert alone.input_ids.equal(body.input_ids)
    assert alone.token_type_ids.equal(body.token_type_ids)


def test_empty_titles_alone_make_a_good_store(tiny_tokenizer, tmp_path):
    texts = datasets.Dataset.from_dict({"title": ["", ""], "text": ["masked words", ""]})
    store = TokenStore.build(texts, tiny_tokenizer, tmp_path / "tokens")
    assert store.lengths(16).tolist()[1] == 2


def test_a_large_vocabulary_is_kept_in_four_bytes(tmp_path):
    names = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *(f"w{index}" for index in range(70_000)),
    ]
    tokenizer = BertTokenizerFast(vocab={name: index for index, name in enumerate(names)})
    texts = datasets.Dataset.from_dict({"text": ["w69999 w1"]})
    store = TokenStore.build(texts, tokenizer, tmp_path / "tokens", columns=("text",))
    assert store.text_ids.dtype == np.int32
    assert store.batch(np.array([0]), max_length=8).input_ids[0, 1:3].tolist() == [70_004, 6]


def test_a_folder_without_store_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"meta\.json"):
        TokenStore.open(tmp_path)


def test_another_tokenizer_is_refused_with_both_digests(store, tiny_tokenizer, sentences):
    store.check_tokenizer(tiny_tokenizer)
    with pytest.raises(InputError, match=f"{store.tokenizer[:16]}.*[0-9a-f]{{16}}"):
        store.check_tokenizer(train_wordpiece(sentences, 120))


def test_a_folder_with_other_things_is_never_replaced(passages, tiny_tokenizer, tmp_path):
    (tmp_path / "letter.txt").write_text("dear reader")
    with pytest.raises(InputError, match=r"holds letter\.txt, which is not part of an"):
        TokenStore.build(passages, tiny_tokenizer, tmp_path)
    assert (tmp_path / "letter.txt").read_text() == "dear reader"


def test_a_build_that_fails_leaves_the_older_store_and_no_rest(folder, tiny_tokenizer):
    broken = datasets.Dataset.from_dict({"title": ["a", "b"], "text": ["c", None]})
    with pytest.raises(TypeError):
        TokenStore.build(broken, tiny_tokenizer, folder)
    assert len(TokenStore.open(folder)) == 60
    assert [path.name for path in folder.parent.iterdir()] == ["tokens"]


def check_against(huggingface, store, rows, title, max_length, side="right", multiple=8):
    batch = store.batch(
        rows, max_length=max_length, title=title, side=side, pad_to_multiple=multiple
    )
    expected = [huggingface(int(row), title, max_length, side) for row in rows]
    longest = max(len(encoding["input_ids"]) for encoding in expected)
    width = min(-(-longest // multiple) * multiple, max_length)
    assert batch.input_ids.shape == (len(rows), width)
    for index, encoding in enumerate(expected):
        padding = [0] * (width - len(encoding["input_ids"]))
        assert batch.input_ids[index].tolist() == encoding["input_ids"] + padding
        assert batch.attention_mask[index].tolist() == encoding["attention_mask"] + padding
        assert batch.token_type_ids[index].tolist() == encoding["token_type_ids"] + padding


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("title", ["pair", "joined", "none"])
@pytest.mark.parametrize("max_length", [4, 5, 6, 7, 16, 33, 64, 500])
def test_every_row_equals_the_tokenizers_own_sequence(huggingface, store, title, max_length, side):
    # the library is slow if it drops nearly everything
    rows = np.arange(len(store) if max_length > 7 else 16)
    check_against(huggingface, store, rows, title, max_length, side)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_rows_and_lengths_equal_the_tokenizers_own_batch(data, store, passages, tiny_tokenizer):
    rows = np.array(data.draw(st.lists(st.integers(0, len(store) - 1), min_size=1, max_size=6)))
    max_length = data.draw(st.integers(4, 90))
    multiple = data.draw(st.sampled_from([1, 8, 64]))
    bodies = [passages[int(row)]["text"] for row in rows]
    kept = [
        tiny_tokenizer(body, truncation=True, max_length=max_length, split_special_tokens=True)
        for body in bodies
    ]
    batch = store.batch(rows, max_length=max_length, title="none", pad_to_multiple=multiple)
    real = [
        ids[mask.bool()].tolist()
        for ids, mask in zip(batch.input_ids, batch.attention_mask, strict=True)
    ]
    assert real == [encoding["input_ids"] for encoding in kept]
    assert batch.input_ids.shape[1] % multiple == 0 or batch.input_ids.shape[1] == max_length


def test_a_passage_without_title_has_one_segment(store, passages):
    row = passages["title"].index("")
    batch = store.batch(np.array([row]), max_length=32, title="pair")
    assert batch.token_type_ids.sum() == 0
    assert (batch.input_ids[0] == store.special["sep"]).sum() == 1


def test_special_marks_exactly_cls_sep_and_padding(store):
    batch = store.batch(np.arange(len(store)), max_length=40)
    ids = [store.special[name] for name in ("cls", "sep", "pad")]
    assert np.array_equal(batch.special.numpy(), np.isin(batch.input_ids.numpy(), ids))


def test_word_start_marks_pieces_without_prefix_and_first_pieces_of_segments(store, tiny_tokenizer):
    for side in ("right", "left"):
        batch = store.batch(np.arange(len(store)), max_length=19, side=side)
        for ids, special, starts in zip(
            batch.input_ids, batch.special, batch.word_start, strict=True
        ):
            pieces = tiny_tokenizer.convert_ids_to_tokens(ids.tolist())
            expected = [
                not special[at] and (not piece.startswith("##") or bool(special[at - 1]))
                for at, piece in enumerate(pieces)
            ]
            assert starts.tolist() == expected


def test_the_literal_text_of_a_special_token_stays_text(store, tiny_tokenizer):
    ids = np.concatenate([store.title_ids, store.text_ids])
    assert not np.isin(ids, [store.special[name] for name in ("pad", "cls", "sep", "mask")]).any()


def test_rows_come_in_the_order_asked_for_and_may_repeat(store):
    rows = np.array([9, 3, 9])
    batch = store.batch(rows, max_length=32)
    assert batch.rows.tolist() == rows.tolist()
    assert batch.input_ids[0].tolist() == batch.input_ids[2].tolist()


@pytest.mark.parametrize("title", ["pair", "joined", "none"])
def test_lengths_are_those_of_the_batches(store, title):
    for max_length in (4, 17, 200):
        batch = store.batch(np.arange(len(store)), max_length=max_length, title=title)
        assert store.lengths(max_length, title).tolist() == batch.attention_mask.sum(1).tolist()
        assert batch.lengths.tolist() == batch.attention_mask.sum(1).tolist()


def test_padding_never_passes_the_longest_length(store):
    assert (
        store.batch(np.arange(len(store)), max_length=30, pad_to_multiple=8).input_ids.shape[1]
        == 30
    )


@pytest.fixture(scope="module")
def ids_as_values(store, tmp_path_factory) -> TokenValues:
    """Each piece's own id as its value."""
    return TokenValues.write(
        store, tmp_path_factory.mktemp("v") / "values", [(store.title_ids, store.text_ids)]
    )


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("title", ["pair", "joined", "none"])
@pytest.mark.parametrize("max_length", [4, 5, 7, 16, 33, 500])
def test_values_lie_where_their_pieces_lie(store, ids_as_values, title, side, max_length):
    rows = np.random.default_rng(0).permutation(len(store))
    for multiple in (1, 8):
        layout = {
            "max_length": max_length,
            "title": title,
            "side": side,
            "pad_to_multiple": multiple,
        }
        batch = store.batch(rows, **layout)
        values = ids_as_values.batch(rows, **layout)
        assert values.dtype == torch.float32
        assert torch.equal(values.long(), batch.input_ids.masked_fill(batch.special, 0))
        assert torch.equal(ids_as_values.attach(batch, **layout).values, values)


def test_a_store_without_titles_has_values_too(passages, tiny_tokenizer, tmp_path):
    store = TokenStore.build(passages, tiny_tokenizer, tmp_path / "tokens", columns=("text",))
    values = TokenValues.write(store, tmp_path / "values", [(store.title_ids, store.text_ids)])
    batch, laid_out = (
        store.batch(np.arange(9), max_length=20),
        values.batch(np.arange(9), max_length=20),
    )
    assert torch.equal(laid_out.long(), batch.input_ids.masked_fill(batch.special, 0))


def test_blocks_do_not_change_what_is_written(store, ids_as_values, tmp_path):
    def pieces(first, last):
        title, text = store.title_offsets[[first, last]], store.text_offsets[[first, last]]
        return store.title_ids[slice(*title)], store.text_ids[slice(*text)]

    blocks = [pieces(first, first + 15) for first in range(0, 60, 15)]
    again = TokenValues.write(store, tmp_path / "values", blocks)
    assert np.array_equal(again.title, ids_as_values.title) and np.array_equal(
        again.text, ids_as_values.text
    )


def test_half_precision_keeps_three_digits(store, tmp_path):
    exact = [np.linspace(-20, 20, len(ids)) for ids in (store.title_ids, store.text_ids)]
    values = TokenValues.write(store, tmp_path / "values", [tuple(exact)], dtype="float16")
    assert values.text.dtype == np.float16
    assert np.allclose(values.text, exact[1], rtol=1e-3)


def test_wrong_values_are_refused_and_leave_nothing(store, tmp_path):
    title, text = (np.zeros(len(ids)) for ids in (store.title_ids, store.text_ids))
    for blocks, dtype, message in [
        ([(title, np.full(len(text), np.nan))], "float32", "not a finite"),
        ([(title, text + 70_000)], "float16", "not a finite float16"),
    ]:
        with pytest.raises(InputError, match=message):
            TokenValues.write(store, tmp_path / "values", blocks, dtype=dtype)
        assert not (tmp_path / "values").exists()
