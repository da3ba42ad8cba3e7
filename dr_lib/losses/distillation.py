"""Losses of cross-encoders, as re-rankers or teachers, and of distillation from their scores
(SimLM, 3.2).

SimLM and MASTER train the cross-encoder listwise, RocketQA and PAIR pointwise. Page:
ideas/distillation.
"""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from dr_lib.losses.checks import check_lists, check_mask, check_name, check_temperature

Mean = Literal["query", "element"]


def distillation(
    student_scores: Tensor,
    teacher_scores: Tensor,
    *,
    student_temperature: float = 1.0,
    teacher_temperature: float = 1.0,
    mean: Mean = "query",
    present: Tensor | None = None,
) -> Tensor:
    """KL divergence of the student's softmax from the teacher's over the passages of each query.

    Args:
        student_scores: `[queries, passages]` float: cosines (with temperature 0.02 for SimLM) or
            inner products.
        teacher_scores: `[queries, passages]` float, the cross-encoder's scores, without gradient.
            -inf is probability 0; a query whose passages all have it contributes 0.
        student_temperature: divides the student's scores; above 0.
        teacher_temperature: divides the teacher's scores; above 0. The loss is not scaled by its
            square.
        mean: `"query"` sums over passages and averages over queries (SimLM); `"element"` divides by
            queries times passages (RetroMAE), so that the loss shrinks with the length of the
            lists.
        present: `[queries, passages]` bool, False where a list is shorter; None if all are full.

    Returns:
        Float32 scalar, computed in float32; 0 if student and teacher agree.

    Raises:
        InputError: shapes differ, a temperature is not above 0, or `mean` is unknown.

    Paper and code: SimLM and RetroMAE take the teacher's raw scores; MASTER's code computes the
    cross-entropy, which differs by a constant.

    Example:
        >>> import torch
        >>> distillation(torch.tensor([[3.0, 1.0]]), torch.tensor([[5.0, 3.0]])).item()
        0.0
    """
    check_lists(student_scores=student_scores, teacher_scores=teacher_scores, present=present)
    check_mask(present=present)
    check_temperature(student_temperature, "student_temperature")
    check_temperature(teacher_temperature, "teacher_temperature")
    check_name("mean", mean, get_args(Mean))
    student = student_scores.float() / student_temperature
    teacher = teacher_scores.detach().float() / teacher_temperature
    # A very low number instead of -inf: 0 x (-inf - -inf) would be NaN in the sum below.
    lowest = -1e30
    if present is not None:
        student = student.masked_fill(~present, lowest)
        teacher = teacher.masked_fill(~present, lowest)
    expected, predicted = teacher.clamp(min=lowest).log_softmax(1), student.log_softmax(1)
    terms = expected.exp() * (expected - predicted)
    terms = terms.masked_fill(teacher <= lowest, 0.0)  # a NaN stays one
    return terms.sum() / (len(terms) if mean == "query" else terms.numel())


def listwise(scores: Tensor) -> Tensor:
    """Mean over queries of the cross-entropy of the first passage among the passages of its query
    (SimLM, MASTER).

    Args:
        scores: `[queries, passages]` float, the positive in column 0.

    Returns:
        Float32 scalar, computed in float32.

    Raises:
        InputError: scores are not lists.

    Example:
        >>> import torch
        >>> round(listwise(torch.tensor([[1.0, 0.0]])).item(), 4)
        0.3133
    """
    check_lists(scores=scores)
    first = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
    return functional.cross_entropy(scores.float(), first)


def pointwise(scores: Tensor) -> Tensor:
    """Mean over all pairs of the binary cross-entropy, the first passage of each query being the
    relevant one (RocketQA, PAIR's teacher).

    Its logits have an absolute meaning: their sigmoid is a probability (given the share of relevant
    pairs in training). Those of a listwise loss do not, since adding a constant to a list does not
    change the loss.

    Args:
        scores: `[queries, passages]` float, the positive in column 0.

    Returns:
        Float32 scalar, computed in float32.

    Raises:
        InputError: scores are not lists.

    Example:
        >>> round(pointwise(torch.tensor([[0.0, 0.0]])).item(), 4)
        0.6931
    """
    check_lists(scores=scores)
    relevant = torch.zeros(scores.shape, device=scores.device)
    relevant[:, 0] = 1.0
    return functional.binary_cross_entropy_with_logits(scores.float(), relevant)


def r_drop(first: Tensor, second: Tensor) -> Tensor:
    """Half the sum of both KL divergences between the softmax of two score lists, averaged over
    queries.

    R-Drop (Liang et al. 2021): two passes with different dropout should agree, as in SimLM's
    released cross-encoder. Unlike in distillation both sides have a gradient.

    Args:
        first, second: `[queries, passages]` float scores of the same pairs.

    Returns:
        Float32 scalar, computed in float32; 0 if both agree.

    Raises:
        InputError: shapes differ.

    Example:
        >>> import torch
        >>> r_drop(torch.tensor([[3.0, 1.0]]), torch.tensor([[5.0, 3.0]])).item()
        0.0
    """
    check_lists(first=first, second=second)
    log_first, log_second = first.float().log_softmax(1), second.float().log_softmax(1)
    # p log(p / q) + q log(q / p) = (p - q) (log p - log q)
    return (
        0.5
        * ((log_first.exp() - log_second.exp()) * (log_first - log_second)).sum()
        / len(log_first)
    )
