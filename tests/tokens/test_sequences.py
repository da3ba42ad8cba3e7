"""Sequences of several texts: pairs like those of Hugging Face's tokenizer, joined questions,
halves of a passage, and closed-form truncation against the `tokenizers` library.
"""

import copy
import itertools
from dataclasses import replace

import datasets
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from dr_lib.errors import InputError
from dr_lib.tokens import (
    QueryPassagePairs,
    TokenStore,
    halves,
    join_texts,
    joined_lengths,
    padded_length,
    shortened,
    train_wordpiece,
    truncate,
)


@pytest.fixture(scope="module")
def queries(sentences, tiny_tokenizer, tmp_path_factory) -> tuple[list[str], TokenStore]:
    words = " ".join(sentences).split()
    texts = [
        " ".join(words[5 * row : 5 * row + length])
        for row, length in enumerate([1, 3, 8, 20, 4, 0])
    ]
    rows = datasets.Dataset.from_dict({"text": texts})
    folder = tmp_path_factory.mktemp("queries") / "store"
    return texts, TokenStore.build(rows, tiny_tokenizer, folder, columns=("text",))


@pytest.mark.parametrize("max_length", [8, 17, 40])
@pytest.mark.parametrize("title", [True, False])
def test_pairs_are_those_of_the_tokenizer_itself(
    queries, store, passages, tiny_tokenizer, max_length, title
):
    texts, query_store = queries
    asked = np.repeat(np.arange(len(texts) - 1), len(store))
    rows = np.tile(np.arange(len(store)), len(texts) - 1)
    crossing = QueryPassagePairs(
        query_store, store, tiny_tokenizer, max_length=max_length, title=title
    )
    batch = crossing.batch(asked, rows)
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.split_special_tokens = True
    compared = 0
    for index, (query, row) in enumerate(zip(asked, rows, strict=True)):
        name, body = passages[int(row)]["title"], passages[int(row)]["text"]
        text = f"{name}: {body}" if title and name else body
        if not text.strip():
            continue
        wanted = tokenizer(texts[query], text, truncation="longest_first", max_length=max_length,
                           return_token_type_ids=True)  # fmt: skip
        real = batch.attention_mask[index] == 1
        assert batch.input_ids[index][real].tolist() == wanted["input_ids"]
        assert batch.token_type_ids[index][real].tolist() == wanted["token_type_ids"]
        compared += 1
    assert compared > 250
    assert crossing.lengths(asked, rows).tolist() == batch.attention_mask.sum(1).tolist()
    assert batch.lengths.tolist() == batch.attention_mask.sum(1).tolist()
    assert batch.rows.tolist() == rows.tolist()


@pytest.mark.parametrize(("side", "part"), [("left", slice(-6, None)), ("right", slice(6))])
def test_shortened_texts_lose_the_end_that_is_named(queries, side, part):
    store = queries[1]
    whole = [
        store.text_ids[store.text_offsets[row] : store.text_offsets[row + 1]].tolist()
        for row in range(len(store))
    ]
    cut = shortened(store, 6, side)
    assert [
        cut.text_ids[cut.text_offsets[row] : cut.text_offsets[row + 1]].tolist()
        for row in range(len(cut))
    ] == [text[part] for text in whole]
    # the store itself is as it was
    assert max(map(len, whole)) > 6 and len(store.text_ids) == sum(map(len, whole))


def test_special_positions_are_those_of_no_text(queries, store, tiny_tokenizer):
    batch = QueryPassagePairs(queries[1], store, tiny_tokenizer, max_length=30).batch(
        np.array([1, 2]), np.array([9, 3])
    )
    assert batch.special.sum() == (batch.attention_mask == 0).sum() + 2 * 3
    assert not (batch.word_start & batch.special).any()


def test_a_query_or_passage_without_text_leaves_one_segment(queries, store, tiny_tokenizer):
    crossing = QueryPassagePairs(queries[1], store, tiny_tokenizer, max_length=30, title=False)
    batch = crossing.batch(np.array([5, 1]), np.array([3, 5]))  # an empty query, an empty passage
    assert not batch.token_type_ids.any()
    assert ((batch.input_ids == 3).sum(1) == 1).all()


def test_a_store_of_another_tokenizer_is_refused(queries, store, tiny_tokenizer):
    with pytest.raises(InputError, match="built with tokenizer"):
        QueryPassagePairs(queries[1], store, train_wordpiece(["another one"], 60))


OFFSETS = np.array([0, 3, 3, 4, 9, 9])


@pytest.fixture(scope="module")
def questions(sentences, tiny_tokenizer, tmp_path_factory) -> TokenStore:
    words = " ".join(sentences).split()
    texts = [" ".join(words[7 * row : 7 * row + 1 + row % 4]) for row in range(9)]
    folder = tmp_path_factory.mktemp("questions") / "store"
    rows = datasets.Dataset.from_dict({"text": texts})
    return TokenStore.build(rows, tiny_tokenizer, folder, columns=("text",))


def by_hand(store, rows, special, limit, begin=0):
    pieces = []
    for row in rows:
        pieces += [
            *store.text_ids[store.text_offsets[row] : store.text_offsets[row + 1]].tolist(),
            special["sep"],
        ]
    return [special["cls"], *pieces[:-1][begin : begin + limit - 2], special["sep"]]


def real(batch):
    return [
        ids[mask == 1].tolist()
        for ids, mask in zip(batch.input_ids, batch.attention_mask, strict=True)
    ]


def laid_out(store, groups, **options):
    counts = np.array([len(group) for group in groups])
    rows = np.concatenate([np.zeros(0, int), *groups]).astype(int)
    return join_texts(
        store, rows, counts, np.arange(len(groups)) + 7, **({"max_length": 60} | options)
    )


GROUPS = [
    np.array([2, 0, 1]),
    np.array([], int),
    np.array([3]),
    np.array([8, 4, 4]),
    np.array([], int),
]


def test_each_text_is_followed_by_a_separator(questions):
    batch = laid_out(questions, GROUPS)
    assert real(batch) == [by_hand(questions, group, questions.special, 60) for group in GROUPS]
    assert batch.rows.tolist() == [7, 8, 9, 10, 11]
    assert batch.input_ids.shape[1] % 8 == 0 and not batch.token_type_ids.any()


def test_separators_are_special_and_every_text_starts_a_word(questions):
    batch = laid_out(questions, GROUPS)
    inner = (batch.input_ids == questions.special["sep"]) & (batch.attention_mask == 1)
    assert inner.sum() == 2 + 0 + 0 + 2 + 5
    assert batch.special[inner].all() and not (batch.word_start & batch.special).any()
    after = inner.roll(1, 1) & ~batch.special
    assert batch.word_start[after].all() and after.any()


@pytest.mark.parametrize("lot", [0, 1, 2, 1_000_003])
def test_a_long_sequence_is_cut_to_the_window_that_its_lot_names(questions, lot):
    whole = by_hand(questions, GROUPS[3], questions.special, 99)
    surplus = len(whole) - 7
    assert surplus > 2
    batch = laid_out(questions, GROUPS, max_length=7, random_ints=np.full(5, lot))
    assert real(batch)[3] == by_hand(
        questions, GROUPS[3], questions.special, 7, begin=lot % (surplus + 1)
    )
    assert real(batch)[1] == [questions.special["cls"], questions.special["sep"]]


def test_without_lots_the_beginning_is_kept(questions):
    assert real(laid_out(questions, GROUPS, max_length=8))[0] == by_hand(
        questions, GROUPS[0], questions.special, 8
    )


def test_lengths_are_those_of_the_batch(questions):
    groups = [np.arange(first, last) for first, last in itertools.pairwise(OFFSETS)]
    batch = laid_out(questions, groups)
    assert joined_lengths(questions, OFFSETS).tolist() == batch.attention_mask.sum(1).tolist()
    assert batch.lengths is None or np.array_equal(batch.lengths, batch.attention_mask.sum(1))


def test_texts_may_all_be_missing(questions):
    batch = laid_out(questions, [np.array([], int)] * 3)
    assert real(batch) == [[questions.special["cls"], questions.special["sep"]]] * 3
    assert batch.special.all()


@pytest.fixture
def batch(store):
    batch = store.batch(np.arange(len(store)), max_length=40)
    values = torch.rand(batch.input_ids.shape, generator=torch.Generator().manual_seed(0))
    return replace(batch, values=values.where(~batch.special, 0.0))


def pieces(batch, row, of):
    return getattr(batch, of)[row][~batch.special[row]].tolist()


@pytest.mark.parametrize("of", ["input_ids", "values"])
def test_halves_hold_the_pieces_in_order(batch, of):
    first, second = halves(batch, 0)
    odd = 0
    for row in range(len(batch)):
        whole, left, right = (pieces(part, row, of) for part in (batch, first, second))
        assert left + right == whole
        assert len(left) == len(whole) // 2
        odd += len(whole) % 2
    assert 0 < odd < len(batch)


def test_each_half_is_a_sequence_of_its_own(batch):
    for half in halves(batch, 0):
        lengths = half.attention_mask.sum(1)
        assert half.lengths is None or np.array_equal(half.lengths, lengths)
        assert torch.equal(lengths - 2, (~half.special).sum(1))
        assert (half.input_ids[:, 0] == 2).all()
        assert (half.input_ids.gather(1, lengths[:, None] - 1) == 3).all()
        assert (half.input_ids[half.attention_mask == 0] == 0).all()
        assert not half.token_type_ids.any() and torch.equal(half.rows, batch.rows)
        assert half.input_ids.shape[1] % 8 == 0


def test_words_begin_where_they_did_and_where_a_half_begins(batch):
    first, second = halves(batch, 0)
    for row in range(len(batch)):
        whole = pieces(batch, row, "word_start")
        left, right = pieces(first, row, "word_start"), pieces(second, row, "word_start")
        middle = len(whole) // 2
        assert left == whole[:middle]
        assert right[1:] == whole[middle + 1 :] and right[:1] in ([True], [])
        assert not (first.word_start & first.special).any()


def test_one_piece_goes_to_the_second_half_and_none_to_neither(batch):
    one = batch.take(torch.tensor([3]))
    only = torch.zeros_like(one.special)
    only[0, 1] = True
    first, second = halves(replace(one, special=~only), 0)
    assert first.special.all() and (~second.special).sum() == 1
    empty = halves(replace(one, special=torch.ones_like(one.special)), 9)
    assert all(half.special.all() and half.attention_mask.sum() == 2 for half in empty)
    assert empty[0].input_ids[0].tolist() == [2, 3, *[9] * 14]


def test_halves_are_never_wider_than_the_passages(store):
    batch = store.batch(np.array([0]), max_length=6)
    assert all(half.input_ids.shape[1] <= 6 for half in halves(batch, 0))


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    """A tokenizer of one piece per word, with the pair template of BERT."""
    tokenizer = Tokenizer(
        models.WordLevel({"[CLS]": 0, "[SEP]": 1, "t": 2, "b": 3}, unk_token="[SEP]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 0), ("[SEP]", 1)],
    )
    return tokenizer


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(4, 50))
@example(9, 9, 20)
@example(9, 9, 14)
@example(10, 9, 14)
@example(9, 10, 15)
@example(1, 40, 4)
@example(40, 1, 4)
def test_pairs_are_cut_as_the_library_cuts_them(words, title, body, max_length):
    words.enable_truncation(max_length, strategy="longest_first")
    ids = words.encode("t " * title, "b " * body).ids
    kept = truncate(np.array([title]), np.array([body]), max_length=max_length, mode="pair")
    assert (kept.title[0], kept.body[0], kept.lengths[0]) == (ids.count(2), ids.count(3), len(ids))


def test_many_pairs_at_once_are_cut_like_each_alone():
    random = np.random.default_rng(0)
    titles, bodies = random.integers(0, 30, 200), random.integers(0, 30, 200)
    together = truncate(titles, bodies, max_length=21, mode="pair")
    for index in range(200):
        alone = truncate(titles[[index]], bodies[[index]], max_length=21, mode="pair")
        assert (together.title[index], together.body[index]) == (alone.title[0], alone.body[0])


def test_one_segment_loses_its_end_on_the_right_and_its_beginning_on_the_left():
    right = truncate(np.array([6]), np.array([6]), max_length=10, mode="joined", side="right")
    left = truncate(np.array([6]), np.array([6]), max_length=10, mode="joined", side="left")
    assert (right.title[0], right.body[0], right.title_start[0], right.body_start[0]) == (
        6,
        2,
        0,
        0,
    )
    assert (left.title[0], left.body[0], left.title_start[0], left.body_start[0]) == (2, 6, 4, 0)


def test_a_passage_that_lacks_title_or_body_is_one_segment():
    kept = truncate(np.array([6, 0]), np.array([0, 6]), max_length=7, mode="pair")
    assert (kept.separate.any(), kept.lengths.tolist()) == (False, [7, 7])


def test_mode_none_ignores_the_title():
    kept = truncate(np.array([6]), np.array([3]), max_length=10, mode="none")
    assert (kept.title[0], kept.body[0], kept.lengths[0]) == (0, 3, 5)


def test_padded_length_is_the_next_multiple_within_the_limit():
    assert padded_length(np.array([1, 16, 17, 31]), 16, 100).tolist() == [16, 16, 32, 32]
    assert padded_length(np.array([1, 16, 17, 31]), 16, 31).tolist() == [16, 16, 31, 31]


def test_a_random_window_may_be_the_first_and_the_last_one():
    body, title = np.full(4, 30), np.zeros(4, np.int64)
    room, surplus = 10, 20
    random_ints = np.array([0, surplus, surplus + 1, 2 * surplus + 1], np.uint64)
    left = truncate(title, body, max_length=room + 2, mode="pair", random_ints=random_ints)
    assert left.body.tolist() == [room] * 4
    assert left.body_start.tolist() == [0, surplus, 0, surplus]
