"""MASTER's two masks: keywords and the complement."""

import pytest
import torch

from dr_lib import masking
from dr_lib.errors import InputError


def test_a_word_is_drawn_first_in_proportion_to_its_weight(batch_of, source):
    batch = batch_of([[1, 1, 1, 1]] * 20_000)
    weights = torch.tensor([9.0, 1.0, 2.0, 3.0, 4.0, 9.0]).expand(batch.special.shape)
    share = masking.keyword(batch, weights, 0.25, source)[:, 1:5].double().mean(0)
    assert (share - torch.tensor([0.1, 0.2, 0.3, 0.4])).abs().max() < 0.015


def test_the_second_word_is_drawn_among_those_left(batch_of, source):
    batch = batch_of([[1, 1, 1]] * 20_000)
    weights = torch.tensor([0.0, 1.0, 2.0, 3.0, 0.0]).expand(batch.special.shape)
    mask = masking.keyword(batch, weights, 0.67, source)[:, 1:4]
    left_out = (~mask).double().mean(0)
    # Left out is the last of three, after the other two in either order.
    last = [(2 / 6 * 3 / 4, 3 / 6 * 2 / 3), (1 / 6 * 3 / 5, 3 / 6 * 1 / 3), (1 / 6 * 2 / 5, 2 / 6 * 1 / 4)]
    expected = torch.tensor([sum(orders) for orders in last])
    assert (left_out - expected).abs().max() < 0.015


def test_the_last_word_may_pass_the_budget(batch_of, source):
    batch = batch_of([[3, 3]] * 100)
    weights = torch.ones(batch.special.shape)
    assert (masking.keyword(batch, weights, 0.5, source).sum(1) == 3).all()
    assert (masking.keyword(batch, weights, 0.6, source).sum(1) == 6).all()


def test_words_of_weight_zero_come_last(batch_of, source):
    batch = batch_of([[1] * 10] * 50)
    weights = torch.zeros(batch.special.shape)
    weights[:, 4] = 0.001
    assert masking.keyword(batch, weights, 0.1, source)[:, 4].all()
    assert (masking.keyword(batch, weights, 1.0, source) == ~batch.special).all()


def test_edges(batch_of, source):
    batch = batch_of([[], [1], [1, 1, 2]], length=9)
    weights = torch.ones(batch.special.shape)
    assert not masking.keyword(batch, weights, 0.0, source).any()
    assert masking.keyword(batch, weights, 0.01, source).any(1).tolist() == [False, True, True]
    assert torch.equal(masking.keyword(batch, weights, 1.0, source), ~batch.special)
    with pytest.raises(InputError, match="weights"):
        masking.keyword(batch, weights[:, :4], 0.5, source)


def test_complementary_masks_are_disjoint_and_cover_all_maskable_pieces(batch_of, source):
    batch = batch_of([[1, 2, 3] * 5, [], [1]])
    mask = masking.whole_word(batch, 0.5, source)
    other = masking.complementary(batch, mask)
    assert not (mask & other).any()
    assert torch.equal(mask | other, ~batch.special)
