"""Batches of the store against the Hugging Face tokenizer's own output, row by row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_lib.errors import InputError


def check_against(huggingface, store, rows, title, max_length, side="right", multiple=8):
    batch = store.batch(rows, max_length=max_length, title=title, side=side, pad_to_multiple=multiple)
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
    rows = np.arange(len(store) if max_length > 7 else 16)  # the library is slow where it drops nearly everything
    check_against(huggingface, store, rows, title, max_length, side)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_rows_and_lengths_equal_the_tokenizers_own_batch(data, store, passages, tiny_tokenizer):
    rows = np.array(data.draw(st.lists(st.integers(0, len(store) - 1), min_size=1, max_size=6)))
    max_length = data.draw(st.integers(4, 90))
    multiple = data.draw(st.sampled_from([1, 8, 64]))
    bodies = [passages[int(row)]["text"] for row in rows]
    kept = [tiny_tokenizer(body, truncation=True, max_length=max_length, split_special_tokens=True) for body in bodies]
    batch = store.batch(rows, max_length=max_length, title="none", pad_to_multiple=multiple)
    real = [ids[mask.bool()].tolist() for ids, mask in zip(batch.input_ids, batch.attention_mask, strict=True)]
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
        for ids, special, starts in zip(batch.input_ids, batch.special, batch.word_start, strict=True):
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


def test_padding_never_passes_the_longest_length(store):
    assert store.batch(np.arange(len(store)), max_length=30, pad_to_multiple=8).input_ids.shape[1] == 30


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"rows": np.array([60])}, "row 60 of 60"),
        ({"rows": np.array([-1])}, "row -1 of 60"),
        ({"rows": np.array([], int)}, "rows"),
        ({"rows": np.array([0.5])}, "rows"),
        ({"max_length": 3}, "max_length"),
        ({"title": "both"}, "pair, joined, none"),
        ({"side": "middle"}, "right, left"),
        ({"pad_to_multiple": 0}, "pad_to_multiple"),
    ],
)
def test_arguments_outside_their_range_are_refused(store, arguments, named):
    with pytest.raises(InputError, match=named):
        store.batch(**({"rows": np.array([0]), "max_length": 16} | arguments))
