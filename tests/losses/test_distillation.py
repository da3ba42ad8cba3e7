"""Losses of a cross-encoder and of its student against numpy."""

import numpy as np
import pytest
import torch

from dr_lib import losses


def softmax(scores):
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@pytest.fixture
def scores():
    rng = np.random.default_rng(0)
    return rng.normal(size=(4, 6)), rng.normal(size=(4, 6)) * 3


def test_listwise_is_minus_the_log_share_of_the_first(scores):
    found = losses.listwise(torch.tensor(scores[0]))
    np.testing.assert_allclose(found.item(), -np.log(softmax(scores[0])[:, 0]).mean(), rtol=1e-5)


def test_absent_passages_do_not_count(scores):
    present = torch.ones(4, 6, dtype=torch.bool)
    present[:, 4:] = False
    student, teacher = (torch.tensor(s) for s in scores)
    torch.testing.assert_close(
        losses.distillation(student, teacher, present=present),
        losses.distillation(student[:, :4], teacher[:, :4]),
    )


def test_absent_passages_get_no_gradient(scores):
    student, teacher = (torch.tensor(s, requires_grad=True) for s in scores)
    present = torch.rand(4, 6, generator=torch.Generator().manual_seed(0)) < 0.7
    losses.distillation(student, teacher, present=present).backward()
    assert torch.isfinite(student.grad).all()
    assert not student.grad[~present].any()


def test_a_teachers_minus_infinity_is_probability_0_and_a_query_of_nothing_else_adds_0(scores):
    student, teacher = (torch.tensor(s) for s in scores)
    teacher[:, 4:] = -torch.inf
    share = softmax(scores[1][:3, :4])
    terms = share * (np.log(share) - np.log(softmax(scores[0])[:3, :4]))
    teacher[3] = -torch.inf
    student.requires_grad_()
    loss = losses.distillation(student, teacher)
    loss.backward()
    np.testing.assert_allclose(loss.item(), terms.sum() / 4, rtol=1e-5)
    assert not student.grad[3].any()
    expected = softmax(scores[0])[:3] / 4
    expected[:, :4] -= share / 4
    np.testing.assert_allclose(student.grad[:3], expected, atol=1e-6)
    teacher[0, 0] = torch.nan  # values that are not numbers are never ignored
    assert losses.distillation(student, teacher).isnan()


def test_distillation_is_the_divergence_summed_over_passages(scores):
    student, teacher = softmax(scores[0] / 0.02), softmax(scores[1] / 2)
    expected = (teacher * (np.log(teacher) - np.log(student))).sum() / 4
    tensors = (torch.tensor(s) for s in scores)
    found = losses.distillation(*tensors, student_temperature=0.02, teacher_temperature=2.0)
    np.testing.assert_allclose(found.item(), expected, rtol=1e-5)


def test_the_mean_over_elements_divides_by_the_passages_too(scores):
    student, teacher = (torch.tensor(s) for s in scores)
    per_query = losses.distillation(student, teacher)
    torch.testing.assert_close(losses.distillation(student, teacher, mean="element"), per_query / 6)
    # absent passages are counted with the others, so that each query weighs alike
    present = torch.arange(6).expand(4, 6) < torch.tensor([[2], [3], [6], [4]])
    torch.testing.assert_close(
        losses.distillation(student, teacher, mean="element", present=present),
        losses.distillation(student, teacher, present=present) / 6,
    )


def test_gradient_is_the_difference_of_the_distributions_and_spares_the_teacher(scores):
    student, teacher = (torch.tensor(s, dtype=torch.float32, requires_grad=True) for s in scores)
    losses.distillation(student, teacher).backward()
    expected = (softmax(scores[0]) - softmax(scores[1])) / 4
    np.testing.assert_allclose(student.grad, expected, atol=1e-6)
    assert teacher.grad is None


@pytest.mark.parametrize("passages", [2, 20])
def test_equal_scores_give_zero_and_no_gradient_whatever_the_length(passages):
    student = torch.randn(
        3, passages, generator=torch.Generator().manual_seed(0), requires_grad=True
    )
    loss = losses.distillation(student, student.detach() + 5)
    loss.backward()
    assert abs(loss.item()) < 1e-6
    assert student.grad.abs().max() < 1e-6


def test_a_teacher_sure_of_one_passage_stays_finite():
    student = torch.zeros(1, 3, requires_grad=True)
    loss = losses.distillation(student, torch.tensor([[1000.0, 0.0, -1000.0]]))
    loss.backward()
    np.testing.assert_allclose(loss.item(), np.log(3), rtol=1e-5)
    assert torch.isfinite(student.grad).all()


@pytest.fixture
def logits():
    return torch.randn(
        3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ).requires_grad_()


def test_pointwise_is_the_mean_of_the_binary_cross_entropies(logits):
    found = losses.pointwise(logits)
    chance = 1 / (1 + np.exp(-logits.detach().numpy()))
    chance[:, 1:] = 1 - chance[:, 1:]
    assert found.item() == pytest.approx(-np.log(chance).mean(), rel=1e-6)
    assert found.dtype == torch.float32
    (slope,) = torch.autograd.grad(found, logits)
    relevant = np.eye(1, 5)
    expected = (1 / (1 + np.exp(-logits.detach().numpy())) - relevant) / 15
    np.testing.assert_allclose(slope.numpy(), expected, atol=1e-7)


def test_only_the_pointwise_loss_knows_an_absolute_level(logits):
    assert losses.listwise(logits + 3).item() == pytest.approx(
        losses.listwise(logits).item(), rel=1e-6
    )
    assert losses.pointwise(logits + 3).item() != pytest.approx(
        losses.pointwise(logits).item(), rel=0.1
    )


def test_r_drop_is_half_of_both_divergences(logits):
    other = torch.randn(
        3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    ).requires_grad_()
    p, q = (
        np.exp(t.detach().numpy()) / np.exp(t.detach().numpy()).sum(1, keepdims=True)
        for t in (logits, other)
    )
    expected = 0.5 * ((p * np.log(p / q)).sum() + (q * np.log(q / p)).sum()) / 3
    found = losses.r_drop(logits, other)
    assert found.item() == pytest.approx(expected, rel=1e-5)
    assert losses.r_drop(other, logits).item() == pytest.approx(found.item(), rel=1e-6)
    assert all(slope.abs().max() > 0 for slope in torch.autograd.grad(found, [logits, other]))
    assert losses.r_drop(logits, logits + 2).item() == pytest.approx(0, abs=1e-6)
