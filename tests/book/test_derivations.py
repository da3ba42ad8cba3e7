"""Derivations on the idea pages, checked numerically: the optimum of the contrastive loss, of an
auto-encoder without word order, the example of a floor, and sampling by sorted noise.
"""

import math
from itertools import product

import numpy as np
import torch

from dr_lib import masking
from dr_lib.tokens import TokenBatch


def test_contrastive_loss_is_smallest_at_the_log_ratio():
    """ideas/dual-encoders: the expectation over all right and wrong passages, minimised exactly."""
    torch.manual_seed(0)
    passages, negatives = 5, 2
    right = torch.rand(passages, dtype=torch.float64).softmax(0)
    wrong = torch.rand(passages, dtype=torch.float64).mul(3).softmax(0)
    draws = torch.tensor([*product(range(passages), repeat=1 + negatives)])
    weights = right[draws[:, 0]] * wrong[draws[:, 1:]].prod(1)
    scores = torch.zeros(passages, dtype=torch.float64, requires_grad=True)
    steps = torch.optim.LBFGS([scores], lr=1, max_iter=500, tolerance_grad=1e-12)

    def loss() -> torch.Tensor:
        steps.zero_grad()
        value = -(weights * scores[draws].log_softmax(1)[:, 0]).sum()
        value.backward()
        return value

    steps.step(loss)
    apart = scores.detach() - (right / wrong).log()
    assert (apart - apart.mean()).abs().max() < 1e-4
    # it is not only the probability of the passage
    assert (scores.detach() - right.log()).std() > 0.1


def test_gradient_of_a_row_is_probability_minus_label():
    scores = torch.tensor([0.8, 0.75, 0.2], requires_grad=True)
    (-(scores / 0.02).log_softmax(0)[0]).backward()
    p = (scores.detach() / 0.02).softmax(0)
    torch.testing.assert_close(scores.grad, (p - torch.tensor([1.0, 0, 0])) / 0.02)
    assert abs(scores.grad.sum()) < 1e-4 and scores.grad[1] > 100 * scores.grad[2]


def test_without_order_the_best_prediction_is_the_bag_and_its_entropy_is_left():
    """ideas/bottleneck."""
    passage = torch.tensor([0, 1, 0, 2, 3, 0, 1])
    logits = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    steps = torch.optim.LBFGS([logits], max_iter=500, tolerance_grad=1e-10)

    def loss() -> torch.Tensor:
        steps.zero_grad()
        value = -logits.log_softmax(0)[passage].mean()
        value.backward()
        return value

    steps.step(loss)
    shares = np.array([3, 2, 1, 1]) / 7
    assert abs(loss().item() + (shares * np.log(shares)).sum()) < 1e-3
    assert np.allclose(logits.softmax(0)[:4].detach(), shares, atol=1e-3)


def test_a_vector_has_room_for_words_and_order():
    order, words = math.log2(math.factorial(60)), 60 * math.log2(8192)
    assert round(order) == 272 and round(words) == 780 and max(order, words) < 128 * 32


def test_floor_puts_the_rare_pair_above_the_function_words():
    """ideas/masking, the table of the example."""
    of_the = math.log(0.009 / (0.03 * 0.06))
    instrument = math.log(1e-6 / (5e-5 * 1e-5))
    assert (round(of_the, 1), round(instrument, 1)) == (1.6, 7.6)
    assert 0 < of_the < instrument


def test_sorted_log_weight_plus_gumbel_noise_draws_without_replacement():
    rng = np.random.default_rng(0)
    weights = np.array([3.0, 2.0, 1.0])
    noise = -np.log(rng.exponential(size=(60_000, 3)))
    order = np.argsort(-(np.log(weights) + noise), axis=1)
    for first, second in ((0, 1), (1, 0), (0, 2), (2, 1)):
        rest = weights.sum() - weights[first]
        exact = weights[first] / weights.sum() * weights[second] / rest
        drawn = np.mean((order[:, 0] == first) & (order[:, 1] == second))
        assert abs(drawn - exact) < 4 * math.sqrt(exact * (1 - exact) / len(order))
    assert abs(weights[0] / 6 * weights[1] / 3 - 1 / 3) < 1e-12


def test_keyword_masks_hide_words_as_often_as_drawing_does():
    ids = torch.ones(20_000, 3, dtype=torch.long)
    special = torch.zeros_like(ids, dtype=torch.bool)
    batch = TokenBatch(ids, ids, 0 * ids, special, ~special, torch.arange(len(ids)))
    weights = torch.tensor([3.0, 2.0, 1.0]).expand(len(ids), -1)
    hidden = masking.keyword(batch, weights, 0.67, torch.Generator().manual_seed(0))
    assert (hidden.sum(1) == 2).all()
    # two of three are drawn: the one left out is 0 with p(1, 2) + p(2, 1)
    out = {
        0: 2 / 6 * 1 / 4 + 1 / 6 * 2 / 5,
        1: 3 / 6 * 1 / 3 + 1 / 6 * 3 / 5,
        2: 1 / 3 + 2 / 6 * 3 / 4,
    }
    for word, exact in out.items():
        assert abs((~hidden[:, word]).float().mean().item() - exact) < 0.015
