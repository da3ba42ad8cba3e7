"""R-Drop: two passes with different dropout should agree (Wu et al. 2021; SimLM's released cross-encoder).

Page: ideas/distillation.
"""

from torch import Tensor

from dr_lib.errors import InputError


def r_drop(first: Tensor, second: Tensor) -> Tensor:
    """Half the sum of both KL divergences between the softmax of two score lists, mean over queries.

    Unlike in distillation both sides have a gradient.

    Args:
        first, second: `[queries, passages]` float scores of the same pairs.

    Returns:
        Float32 scalar, computed in float32; 0 where both agree.

    Raises:
        InputError: shapes that do not fit.

    Example:
        >>> import torch
        >>> r_drop(torch.tensor([[3.0, 1.0]]), torch.tensor([[5.0, 3.0]])).item()
        0.0
    """
    if first.shape != second.shape or first.ndim != 2 or not first.numel():
        problem = f"shapes {tuple(first.shape)} and {tuple(second.shape)} do not fit"
        raise InputError(problem, where="r_drop", fix="Give both as [queries, passages].")
    one, other = first.float().log_softmax(1), second.float().log_softmax(1)
    # p log(p / q) + q log(q / p) = (p - q) (log p - log q)
    return 0.5 * ((one.exp() - other.exp()) * (one - other)).sum() / len(one)
