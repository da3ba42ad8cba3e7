"""Knowledge distillation: the retriever's scores learn a cross-encoder's distribution (SimLM, section 3.2).

Page: ideas/distillation.
"""

from typing import Literal, get_args

from torch import Tensor

from dr_lib.errors import InputError

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
        student_scores: `[queries, passages]` float: cosines (with temperature 0.02 for SimLM) or inner products.
        teacher_scores: `[queries, passages]` float, the cross-encoder's scores; no gradient goes there.
        student_temperature: student scores are divided by it; above 0.
        teacher_temperature: teacher scores are divided by it; above 0. No factor of its square is applied.
        mean: `"query"` sums over passages and averages over queries (SimLM); `"element"` divides by queries times
            passages (RetroMAE), which makes the loss smaller the longer the lists are.
        present: `[queries, passages]` bool, False where a list is shorter; None where all are full.

    Returns:
        Float32 scalar, computed in float32; 0 where student and teacher agree.

    Raises:
        InputError: shapes that do not fit, a temperature not above 0, or an unknown mean.

    Paper and code: SimLM and RetroMAE take the teacher's raw scores; MASTER's code computes the cross-entropy, which
    differs by a constant.

    Example:
        >>> import torch
        >>> distillation(torch.tensor([[3.0, 1.0]]), torch.tensor([[5.0, 3.0]])).item()
        0.0
    """
    _check(student_scores, teacher_scores, present, mean)
    for name, value in (("student_temperature", student_temperature), ("teacher_temperature", teacher_temperature)):
        if not value > 0:
            raise InputError(f"{value} is not above 0", where=name, fix="SimLM: 0.02 for the student, 1 for the other.")
    student = student_scores.float() / student_temperature
    teacher = teacher_scores.detach().float() / teacher_temperature
    if present is not None:
        # The lowest number instead of -inf: 0 x (-inf - -inf) would be NaN in the sum below.
        lowest = -1e30
        student, teacher = student.masked_fill(~present, lowest), teacher.masked_fill(~present, lowest)
    expected, found = teacher.log_softmax(1), student.log_softmax(1)
    terms = expected.exp() * (expected - found)
    if present is not None:
        terms = terms.where(present, 0.0)
    return terms.sum() / (len(terms) if mean == "query" else terms.numel())


def _check(student: Tensor, teacher: Tensor, present: Tensor | None, mean: str) -> None:
    if mean not in get_args(Mean):
        raise InputError(f"unknown value {mean!r}", where="mean", fix='Choose "query" or "element".')
    shapes = {tuple(t.shape) for t in (student, teacher, present) if t is not None}
    if len(shapes) > 1 or student.ndim != 2 or not student.numel():
        raise InputError(
            f"shapes {sorted(shapes)} do not fit", where="distillation", fix="Give each as [queries, passages]."
        )
