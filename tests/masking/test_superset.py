"""SimLM's nested masks."""

from dataclasses import replace

import pytest
import torch

from dr_lib import masking
from dr_lib.errors import InputError


@pytest.fixture
def passages(batch_of):
    rng = torch.Generator().manual_seed(2)
    return batch_of([torch.randint(1, 4, (70,), generator=rng).tolist() for _ in range(300)])


def test_decoder_mask_contains_encoder_mask(passages, source):
    for _ in range(5):
        encoder = masking.whole_word(passages, 0.3, source)
        assert (masking.superset(passages, encoder, 0.5, source, encoder_rate=0.3) >= encoder).all()


@pytest.mark.parametrize(("encoder_rate", "rate"), [(0.3, 0.5), (0.15, 0.9), (0.0, 0.4), (0.3, 1.0)])
def test_the_union_hides_the_decoder_rate_on_average(passages, source, encoder_rate, rate):
    encoder = masking.whole_word(passages, encoder_rate, source)
    decoder = masking.superset(passages, encoder, rate, source, encoder_rate=encoder_rate)
    assert abs(decoder.sum() / (~passages.special).sum() - rate) < 0.02


@pytest.mark.parametrize(("pieces", "rate"), [(141, 0.507), (77, 0.517), (37, 0.525)])
def test_where_special_tokens_count_more_than_the_rate_is_hidden(batch_of, source, pieces, rate):
    batch = batch_of([[1] * pieces] * 4000)
    attention = torch.nn.functional.pad(batch.attention_mask, (0, 1), value=1)  # the second [SEP] of a pair
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
    assert torch.equal(masking.superset(passages, everything, 1.0, source, encoder_rate=1.0), everything)


@pytest.mark.parametrize(("rate", "encoder_rate"), [(1.2, 0.3), (0.5, -0.3)])
def test_rates_outside_their_range_are_refused(passages, source, rate, encoder_rate):
    with pytest.raises(InputError, match="outside"):
        masking.superset(passages, passages.special, rate, source, encoder_rate=encoder_rate)
