"""The head that asks of each token whether it was replaced."""

import numpy as np
import pytest
import torch
from scipy.special import erf

from dr_lib.models import ReplacedTokenHead


def test_logits_are_those_of_the_formula():
    head = ReplacedTokenHead(6, seed=1).requires_grad_(False)
    for weight in head.parameters():
        weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(2)))
    states = torch.randn(2, 3, 6)
    inner = states.numpy() @ head.dense.weight.numpy().T + head.dense.bias.numpy()
    inner = inner * 0.5 * (1 + erf(inner / np.sqrt(2)))
    expected = inner @ head.replaced.weight.numpy()[0] + head.replaced.bias.numpy()
    assert np.allclose(head(states).numpy(), expected, atol=1e-5)


def test_weights_follow_their_seed_are_small_and_leave_the_global_state_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first, again, other = (ReplacedTokenHead(64, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["dense.weight"], other["dense.weight"])
    assert first["dense.weight"].std() == pytest.approx(0.02, rel=0.1)
    assert not first["dense.bias"].any() and not first["replaced.bias"].any()
