"""What hidden pieces become."""

import pytest
import torch

from dr_lib import masking


@pytest.fixture
def passages(batch_of):
    return batch_of([[1] * 100] * 300)


def test_mask_policy_writes_mask_at_hidden_positions_only(passages, source):
    mask = masking.uniform(passages, 0.3, source)
    ids = masking.hide(passages, mask, 4, 500, source)
    assert (ids[mask] == 4).all()
    assert torch.equal(ids[~mask], passages.input_ids[~mask])


def test_80_10_10_hits_its_shares_and_leaves_the_rest_alone(passages, source):
    mask = masking.uniform(passages, 0.5, source)
    ids = masking.hide(passages, mask, 4, 500, source, "80_10_10", special_ids=(0, 1, 2, 3, 4))
    assert torch.equal(ids[~mask], passages.input_ids[~mask])
    masked, kept = ids[mask] == 4, ids[mask] == passages.input_ids[mask]
    assert abs(masked.double().mean() - 0.8) < 0.015
    assert abs(kept.double().mean() - 0.1) < 0.015


@pytest.mark.parametrize("special", [(0, 1, 2, 3, 4), (0, 7, 8, 11), ()])
def test_random_ids_are_spread_evenly_over_what_is_not_special(passages, source, special):
    everything = torch.ones_like(passages.special)
    clean = passages.with_ids(torch.full_like(passages.input_ids, -1))
    ids = masking.hide(clean, everything, -2, 12, source, "80_10_10", special_ids=special)
    counts = torch.bincount(ids[ids >= 0], minlength=12).double()
    allowed = [id_ for id_ in range(12) if id_ not in special]
    assert counts[list(special)].sum() == 0
    assert (counts[allowed] / counts.sum() * len(allowed) - 1).abs().max() < 0.25


def test_the_input_is_left_as_it_was(passages, source):
    before = passages.input_ids.clone()
    masking.hide(passages, ~passages.special, 4, 500, source, "80_10_10")
    assert torch.equal(passages.input_ids, before)
