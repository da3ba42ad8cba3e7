"""Halves of a passage: nothing lost, nothing invented, in both halves the values of their pieces."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dr_lib.tokens import halves


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
    assert empty[0].input_ids[0].tolist() == [2, 3, 9, 9, 9, 9, 9, 9]


def test_halves_are_never_wider_than_the_passages(store):
    batch = store.batch(np.array([0]), max_length=6)
    assert all(half.input_ids.shape[1] <= 6 for half in halves(batch, 0, pad_to_multiple=16))
