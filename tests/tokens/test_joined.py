"""Several texts in one sequence: laid out as by hand, windows of long ones, and sequences without texts."""

import itertools

import datasets
import numpy as np
import pytest

from dr_lib.errors import InputError
from dr_lib.tokens import TokenStore, join_texts, joined_lengths

OFFSETS = np.array([0, 3, 3, 4, 9, 9])


@pytest.fixture(scope="module")
def questions(sentences, tiny_tokenizer, tmp_path_factory) -> TokenStore:
    words = " ".join(sentences).split()
    texts = [" ".join(words[7 * row : 7 * row + 1 + row % 4]) for row in range(9)]
    folder = tmp_path_factory.mktemp("questions") / "store"
    rows = datasets.Dataset.from_dict({"text": texts})
    return TokenStore.build(rows, tiny_tokenizer, folder, columns=("text",), progress=False)


def by_hand(store, rows, special, limit, begin=0):
    pieces = []
    for row in rows:
        pieces += [*store.text_ids[store.text_offsets[row] : store.text_offsets[row + 1]].tolist(), special["sep"]]
    return [special["cls"], *pieces[:-1][begin : begin + limit - 2], special["sep"]]


def real(batch):
    return [ids[mask == 1].tolist() for ids, mask in zip(batch.input_ids, batch.attention_mask, strict=True)]


def laid_out(store, groups, **options):
    counts = np.array([len(group) for group in groups])
    rows = np.concatenate([np.zeros(0, int), *groups]).astype(int)
    return join_texts(store, rows, counts, np.arange(len(groups)) + 7, **({"max_length": 60} | options))


GROUPS = [np.array([2, 0, 1]), np.array([], int), np.array([3]), np.array([8, 4, 4]), np.array([], int)]


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
    batch = laid_out(questions, GROUPS, max_length=7, lots=np.full(5, lot))
    assert real(batch)[3] == by_hand(questions, GROUPS[3], questions.special, 7, begin=lot % (surplus + 1))
    assert real(batch)[1] == [questions.special["cls"], questions.special["sep"]]


def test_without_lots_the_beginning_is_kept(questions):
    assert real(laid_out(questions, GROUPS, max_length=8))[0] == by_hand(questions, GROUPS[0], questions.special, 8)


def test_lengths_are_those_of_the_batch(questions):
    groups = [np.arange(first, last) for first, last in itertools.pairwise(OFFSETS)]
    batch = laid_out(questions, groups)
    assert joined_lengths(questions, OFFSETS).tolist() == batch.attention_mask.sum(1).tolist()


def test_texts_may_all_be_missing(questions):
    batch = laid_out(questions, [np.array([], int)] * 3)
    assert real(batch) == [[questions.special["cls"], questions.special["sep"]]] * 3
    assert batch.special.all()


def test_counts_that_do_not_fit_are_refused(questions):
    with pytest.raises(InputError, match="counts: 2 rows, counts that sum to 3"):
        join_texts(questions, np.array([0, 1]), np.array([3]), np.array([0]), max_length=20)
    with pytest.raises(InputError, match="row 9 of 9"):
        join_texts(questions, np.array([9]), np.array([1]), np.array([0]), max_length=20)
