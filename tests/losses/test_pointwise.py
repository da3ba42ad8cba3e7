"""Pointwise loss and R-Drop against numpy."""

import numpy as np
import pytest
import torch

from dr_lib import losses
from dr_lib.errors import InputError


@pytest.fixture
def scores():
    return torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()


def test_pointwise_is_the_mean_of_the_binary_cross_entropies(scores):
    found = losses.pointwise(scores)
    chance = 1 / (1 + np.exp(-scores.detach().numpy()))
    chance[:, 1:] = 1 - chance[:, 1:]
    assert found.item() == pytest.approx(-np.log(chance).mean(), rel=1e-6)
    assert found.dtype == torch.float32
    (slope,) = torch.autograd.grad(found, scores)
    relevant = np.eye(1, 5)
    expected = (1 / (1 + np.exp(-scores.detach().numpy())) - relevant) / 15
    np.testing.assert_allclose(slope.numpy(), expected, atol=1e-7)


def test_only_the_pointwise_loss_knows_an_absolute_level(scores):
    assert losses.listwise(scores + 3).item() == pytest.approx(losses.listwise(scores).item(), rel=1e-6)
    assert losses.pointwise(scores + 3).item() != pytest.approx(losses.pointwise(scores).item(), rel=0.1)


def test_r_drop_is_half_of_both_divergences(scores):
    other = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    p, q = (np.exp(t.detach().numpy()) / np.exp(t.detach().numpy()).sum(1, keepdims=True) for t in (scores, other))
    expected = 0.5 * ((p * np.log(p / q)).sum() + (q * np.log(q / p)).sum()) / 3
    found = losses.r_drop(scores, other)
    assert found.item() == pytest.approx(expected, rel=1e-5)
    assert losses.r_drop(other, scores).item() == pytest.approx(found.item(), rel=1e-6)
    assert all(slope.abs().max() > 0 for slope in torch.autograd.grad(found, [scores, other]))
    assert losses.r_drop(scores, scores + 2).item() == pytest.approx(0, abs=1e-6)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="pointwise: scores of shape"):
        losses.pointwise(torch.zeros(3))
    with pytest.raises(InputError, match="r_drop: shapes"):
        losses.r_drop(torch.zeros(2, 3), torch.zeros(3, 2))
