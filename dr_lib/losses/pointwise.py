"""Loss of a cross-encoder that judges one pair at a time: is this passage relevant? (RocketQA, PAIR's teacher.)

Page: ideas/distillation.
"""

import torch
from torch import Tensor
from torch.nn import functional

from dr_lib.errors import InputError


def pointwise(scores: Tensor) -> Tensor:
    """Mean over all pairs of the binary cross-entropy, the first passage of each query being the relevant one.

    Its logits have an absolute meaning: their sigmoid is a probability (under the share of relevant pairs seen in
    training), which those of a listwise loss are not, since adding a number to a whole list leaves that loss as it is.

    Args:
        scores: `[queries, passages]` float, the positive in column 0.

    Returns:
        Float32 scalar, computed in float32.

    Raises:
        InputError: scores of another shape.

    Example:
        >>> round(pointwise(torch.tensor([[0.0, 0.0]])).item(), 4)
        0.6931
    """
    if scores.ndim != 2 or not scores.numel():
        problem = f"scores of shape {tuple(scores.shape)}"
        raise InputError(problem, where="pointwise", fix="Give scores as [queries, passages].")
    relevant = torch.zeros(scores.shape, device=scores.device)
    relevant[:, 0] = 1.0
    return functional.binary_cross_entropy_with_logits(scores.float(), relevant)
