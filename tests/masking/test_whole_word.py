"""Whole-word masks against the rule carried out one word at a time."""

import numpy as np
import pytest
import torch

from dr_lib import masking
from dr_lib.errors import InputError
from dr_lib.masking.words import random_keys, ranked_keys, take_on_device, take_words, words_of


def take_one_by_one(priorities, words, special, budget):
    """The rule in plain Python: words by rising priority, one that would overshoot is skipped."""
    mask = np.zeros(special.shape, bool)
    for row in range(len(special)):
        columns: dict[int, list[int]] = {}
        for column in np.flatnonzero(~special[row]):
            columns.setdefault(int(words[row, column]), []).append(int(column))
        left = int(budget[row])
        for word in sorted(columns, key=lambda w: (priorities[row, columns[w][0]], w)):
            if len(columns[word]) <= left:
                mask[row, columns[word]] = True
                left -= len(columns[word])
    return mask


def random_words(rows, longest, words, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, longest + 1, rng.integers(0, words + 1)).tolist() for _ in range(rows)]


def compare_all_ways(batch, scores, budget):
    words = words_of(batch)
    keys = ranked_keys(scores.gather(1, words), words, batch.special)
    expected = take_one_by_one(-scores.gather(1, words).numpy(), words.numpy(), batch.special.numpy(), budget.numpy())
    np.testing.assert_array_equal(take_words(keys, budget).numpy(), expected)
    np.testing.assert_array_equal(take_on_device(keys, budget).numpy(), expected)
    return expected


@pytest.mark.parametrize("longest", [1, 2, 5, 17])
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8, 1.0])
def test_words_are_taken_as_one_by_one(batch_of, longest, rate):
    batch = batch_of(random_words(200, longest, 30, seed=longest))
    scores = torch.randn(batch.special.shape, generator=torch.Generator().manual_seed(1)).round(decimals=1)
    budget = ((~batch.special).sum(1) * rate).round().long().clamp(min=1)
    compare_all_ways(batch, scores, budget)


def test_a_staircase_of_overshooting_words_is_resolved_to_the_last_step(batch_of):
    # 10 overshoots what 1 leaves of 10, 9 what the next 1 leaves, and so on: one round a step.
    batch = batch_of([[length for step in range(10, 0, -1) for length in (1, step)]])
    scores = -torch.arange(batch.special.shape[1], dtype=torch.float32)[None]
    mask = compare_all_ways(batch, scores, torch.tensor([10]))
    assert mask.sum() == 10


@pytest.mark.parametrize("length", [130, 300])
def test_random_order_is_taken_as_one_by_one(batch_of, source, length):
    batch = batch_of(random_words(60, 6, 30, seed=9), length=length)
    words, budget = words_of(batch), ((~batch.special).sum(1) * 0.4).round().long()
    keys = random_keys(batch.special, source, words)
    expected = take_one_by_one(keys.numpy(), words.numpy(), batch.special.numpy(), budget.numpy())
    np.testing.assert_array_equal(take_words(keys, budget).numpy(), expected)
    np.testing.assert_array_equal(take_on_device(keys, budget).numpy(), expected)


def test_words_stay_whole_and_special_positions_visible(batch_of, source):
    batch = batch_of(random_words(100, 6, 40, seed=3))
    mask, words = masking.whole_word(batch, 0.4, source), words_of(batch)
    assert not (mask & batch.special).any()
    for row in range(len(batch)):
        hidden = set(words[row][mask[row]].tolist())
        assert hidden.isdisjoint(words[row][~mask[row] & ~batch.special[row]].tolist())


def test_the_count_is_the_budget_where_single_pieces_are_about(batch_of, source):
    batch = batch_of([[3, 1] * 20] * 50)
    assert set(masking.whole_word(batch, 0.3, source).sum(1).tolist()) == {24}
    assert set(masking.whole_word(batch, 0.3, source, budget="all").sum(1).tolist()) == {25}


@pytest.mark.parametrize(("pieces", "budget"), [(141, 43), (77, 24), (37, 12)])
def test_budget_of_all_tokens_matches_the_table_of_effective_rates(batch_of, source, pieces, budget):
    batch = batch_of([[1] * pieces])
    batch.attention_mask[:, : pieces + 3] = 1
    padded = torch.nn.functional.pad(batch.attention_mask, (0, 1), value=1)  # the second [SEP] of a pair
    object.__setattr__(batch, "attention_mask", padded)
    assert masking.whole_word(batch, 0.3, source, budget="all").sum() == budget


def test_every_word_is_equally_likely(batch_of, source):
    batch = batch_of([[1] * 10] * 4000)
    share = masking.whole_word(batch, 0.3, source)[:, 1:11].double().mean(0)
    assert (share - 0.3).abs().max() < 0.04


def test_the_same_seed_gives_the_same_mask_and_the_next_draw_another(batch_of):
    batch = batch_of([[1, 2, 1] * 10] * 8)
    one, two = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    first = masking.whole_word(batch, 0.3, one)
    assert torch.equal(first, masking.whole_word(batch, 0.3, two))
    assert not torch.equal(first, masking.whole_word(batch, 0.3, one))


@pytest.mark.parametrize("draw", [masking.whole_word, masking.uniform])
def test_edges_of_rate_and_length(batch_of, source, draw):
    batch = batch_of([[], [1], [1, 2, 3]], length=9)
    assert not draw(batch, 0.0, source).any()
    assert torch.equal(draw(batch, 1.0, source), ~batch.special)
    assert torch.equal(draw(batch, 1.0, source, budget="all"), ~batch.special)
    small = draw(batch, 0.01, source).sum(1)
    assert small.tolist() == [0, 1, 1]


@pytest.mark.parametrize("draw", [masking.whole_word, masking.uniform])
def test_sequences_without_special_positions_are_fine(batch_of, source, draw):
    batch = batch_of([[1] * 8])
    object.__setattr__(batch, "special", torch.zeros_like(batch.special))
    assert draw(batch, 1.0, source).all()
    assert draw(batch, 0.5, source).sum() == 5


def test_a_single_word_longer_than_its_budget_stays_visible(batch_of, source):
    assert not masking.whole_word(batch_of([[6]]), 0.3, source).any()


@pytest.mark.parametrize("draw", [masking.whole_word, masking.uniform])
@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan")])
def test_a_rate_outside_its_range_is_refused(batch_of, source, draw, rate):
    with pytest.raises(InputError, match="rate"):
        draw(batch_of([[1, 1]]), rate, source)


def test_an_unknown_budget_is_refused(batch_of, source):
    with pytest.raises(InputError, match="maskable, all"):
        masking.uniform(batch_of([[1]]), 0.3, source, budget="some")
