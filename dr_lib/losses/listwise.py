"""Loss of a cross-encoder over the passages of a query (SimLM, PAIR and MASTER: the re-ranker that teaches).

Page: ideas/distillation.
"""

import torch
from torch import Tensor
from torch.nn import functional

from dr_lib.errors import InputError


def listwise(scores: Tensor, *, present: Tensor | None = None, temperature: float = 1.0) -> Tensor:
    """Mean over queries of the cross-entropy of the first passage among the passages of its query.

    Args:
        scores: `[queries, passages]` float, the positive in column 0.
        present: `[queries, passages]` bool, False where a list is shorter; None where all are full.
        temperature: scores are divided by it; above 0.

    Returns:
        Float32 scalar, computed in float32.

    Raises:
        InputError: shapes that do not fit, or a temperature not above 0.

    Example:
        >>> import torch
        >>> round(listwise(torch.tensor([[1.0, 0.0]])).item(), 4)
        0.3133
    """
    if scores.ndim != 2 or not scores.numel() or (present is not None and present.shape != scores.shape):
        raise InputError(
            f"shapes {tuple(scores.shape)} and {None if present is None else tuple(present.shape)} do not fit",
            where="listwise",
            fix="Give scores and, if any, present as [queries, passages].",
        )
    if not temperature > 0:
        raise InputError(f"{temperature} is not above 0", where="temperature", fix="The papers use 1.")
    logits = scores.float() / temperature
    if present is not None:
        logits = logits.masked_fill(~present, -torch.inf)
    return functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64, device=logits.device))
