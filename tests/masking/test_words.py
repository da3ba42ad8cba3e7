"""Masks of pieces and words against the rule applied word by word; SimLM's nested masks; the
replacement of hidden pieces.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dr_lib import masking
from dr_lib.errors import InputError
from dr_lib.masking.words import words_of


def random_words(rows, longest, words, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, longest + 1, rng.integers(0, words + 1)).tolist() for _ in range(rows)]


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
def test_budget_of_all_tokens_matches_the_table_of_effective_rates(
    batch_of, source, pieces, budget
):
    batch = batch_of([[1] * pieces])
    batch.attention_mask[:, : pieces + 3] = 1
    # the second [SEP] of a pair
    padded = torch.nn.functional.pad(batch.attention_mask, (0, 1), value=1)
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


@pytest.mark.parametrize("rate", [15, 1.01, -0.1, float("nan")])
def test_a_rate_that_is_not_a_share_is_refused(batch_of, source, rate):
    batch = batch_of([[1, 2, 3]], length=9)
    values = torch.ones(batch.special.shape)
    plain = (masking.whole_word, masking.uniform, masking.per_row)
    weighted = (masking.importance, masking.keyword)
    for draw, given in [*((one, ()) for one in plain), *((one, (values,)) for one in weighted)]:
        with pytest.raises(InputError, match=f"rate: {rate} is not between 0 and 1"):
            draw(batch, *given, rate, source)


def test_names_and_shapes_that_do_not_fit_are_refused(batch_of, source):
    batch = batch_of([[1, 2, 3]], length=9)
    values = torch.ones(batch.special.shape)
    for where, draw in {
        "budget": lambda: masking.whole_word(batch, 0.3, source, budget="some"),
        "policy": lambda: masking.hide(batch, batch.special, 4, 20, source, "80-10-10"),
        "unit": lambda: masking.importance(batch, values, 0.3, source, unit="words"),
        "noise_scale": lambda: masking.importance(batch, values, 0.3, source, noise_scale="x"),
        "importances": lambda: masking.importance(batch, values[:, :8], 0.3, source),
        "weights": lambda: masking.keyword(batch, values[0], 0.3, source),
        "rate": lambda: masking.nested(batch, 0.3, 1.5, source),
        "encoder_rate": lambda: masking.extra_rate(1.5, 0.5),
    }.items():
        with pytest.raises(InputError, match=f"^{where}: "):
            draw()


@pytest.mark.parametrize("draw", [masking.whole_word, masking.uniform])
def test_sequences_without_special_positions_are_fine(batch_of, source, draw):
    batch = batch_of([[1] * 8])
    object.__setattr__(batch, "special", torch.zeros_like(batch.special))
    assert draw(batch, 1.0, source).all()
    assert draw(batch, 0.5, source).sum() == 5


def test_a_single_word_longer_than_its_budget_stays_visible(batch_of, source):
    assert not masking.whole_word(batch_of([[6]]), 0.3, source).any()


@pytest.fixture
def passages(batch_of):
    rng = torch.Generator().manual_seed(2)
    return batch_of([torch.randint(1, 4, (70,), generator=rng).tolist() for _ in range(300)])


def test_decoder_mask_contains_encoder_mask(passages, source):
    for _ in range(5):
        encoder = masking.whole_word(passages, 0.3, source)
        assert (masking.superset(passages, encoder, 0.5, source, encoder_rate=0.3) >= encoder).all()


@pytest.mark.parametrize(
    ("encoder_rate", "rate"), [(0.3, 0.5), (0.15, 0.9), (0.0, 0.4), (0.3, 1.0)]
)
def test_the_union_hides_the_decoder_rate_on_average(passages, source, encoder_rate, rate):
    encoder = masking.whole_word(passages, encoder_rate, source)
    decoder = masking.superset(passages, encoder, rate, source, encoder_rate=encoder_rate)
    assert abs(decoder.sum() / (~passages.special).sum() - rate) < 0.02


@pytest.mark.parametrize(("pieces", "rate"), [(141, 0.507), (77, 0.517), (37, 0.525)])
def test_where_special_tokens_count_more_than_the_rate_is_hidden(batch_of, source, pieces, rate):
    batch = batch_of([[1] * pieces] * 4000)
    # the second [SEP] of a pair
    attention = torch.nn.functional.pad(batch.attention_mask, (0, 1), value=1)
    batch = replace(batch, attention_mask=attention)
    encoder = masking.whole_word(batch, 0.3, source, budget="all")
    decoder = masking.superset(batch, encoder, 0.5, source, encoder_rate=0.3, budget="all")
    assert decoder.sum() / (4000 * pieces) == pytest.approx(rate, abs=0.002)


def test_the_second_draw_may_take_words_already_hidden(passages, source):
    encoder = masking.whole_word(passages, 0.3, source)
    both = masking.superset(passages, encoder, 0.5, source, encoder_rate=0.3)
    assert (both.sum(1) < encoder.sum(1) + (~passages.special).sum(1) * 0.2857).all()


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.30005])
def test_a_rate_not_above_the_encoders_gives_its_mask_back(passages, source, rate):
    encoder = masking.whole_word(passages, 0.3, source)
    before = source.get_state()
    assert torch.equal(masking.superset(passages, encoder, rate, source, encoder_rate=0.3), encoder)
    assert torch.equal(source.get_state(), before)


def test_an_encoder_rate_of_one_leaves_nothing_to_add(passages, source):
    everything = ~passages.special
    assert torch.equal(
        masking.superset(passages, everything, 1.0, source, encoder_rate=1.0), everything
    )


@pytest.fixture
def alike(batch_of):
    return batch_of([[1] * 100] * 300)


def test_mask_policy_writes_mask_at_hidden_positions_only(alike, source):
    mask = masking.uniform(alike, 0.3, source)
    ids = masking.hide(alike, mask, 4, 500, source)
    assert (ids[mask] == 4).all()
    assert torch.equal(ids[~mask], alike.input_ids[~mask])


def test_80_10_10_hits_its_shares_and_leaves_the_rest_alone(alike, source):
    mask = masking.uniform(alike, 0.5, source)
    ids = masking.hide(alike, mask, 4, 500, source, "80_10_10", special_ids=(0, 1, 2, 3, 4))
    assert torch.equal(ids[~mask], alike.input_ids[~mask])
    masked, kept = ids[mask] == 4, ids[mask] == alike.input_ids[mask]
    assert abs(masked.double().mean() - 0.8) < 0.015
    assert abs(kept.double().mean() - 0.1) < 0.015


@pytest.mark.parametrize("special", [(0, 1, 2, 3, 4), (0, 7, 8, 11), ()])
def test_random_ids_are_spread_evenly_over_what_is_not_special(alike, source, special):
    everything = torch.ones_like(alike.special)
    clean = alike.with_ids(torch.full_like(alike.input_ids, -1))
    ids = masking.hide(clean, everything, -2, 12, source, "80_10_10", special_ids=special)
    counts = torch.bincount(ids[ids >= 0], minlength=12).double()
    allowed = [id_ for id_ in range(12) if id_ not in special]
    assert counts[list(special)].sum() == 0
    assert (counts[allowed] / counts.sum() * len(allowed) - 1).abs().max() < 0.25


def test_the_input_is_left_as_it_was(alike, source):
    before = alike.input_ids.clone()
    masking.hide(alike, ~alike.special, 4, 500, source, "80_10_10")
    assert torch.equal(alike.input_ids, before)
