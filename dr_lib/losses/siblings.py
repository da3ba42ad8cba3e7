"""coCondenser's contrastive loss: of all spans in the batch, find the one from the same document (Gao and Callan 2022).

Page: ideas/pairs.
"""

import torch
from torch import Tensor
from torch.nn import functional

from dr_lib.errors import InputError


def siblings(vectors: Tensor, documents: Tensor | None = None) -> Tensor:
    """Mean over spans of the cross-entropy of the sibling among all other spans, by raw inner product.

    Args:
        vectors: `[2 * pairs, hidden]` float; the spans 2 i and 2 i + 1 are siblings.
        documents: `[2 * pairs]` int64; a span of the same document that is not the sibling is no negative.

    Returns:
        Float32 scalar, computed in float32. There is no temperature, in the paper and in the code.

    Raises:
        InputError: an odd number of spans, fewer than two pairs, or documents of another shape.

    Example:
        >>> vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> round(siblings(vectors).item(), 4)
        0.5514
    """
    spans = len(vectors)
    if spans % 2 or spans < 4 or vectors.ndim != 2 or (documents is not None and documents.shape != (spans,)):
        shapes = [tuple(one.shape) for one in (vectors, documents) if one is not None]
        raise InputError(
            f"shapes {shapes} do not fit", where="siblings", fix="Give [2 * pairs, hidden] of two pairs or more."
        )
    with torch.autocast(vectors.device.type, enabled=False):
        vectors = vectors.float()
        scores, number = vectors @ vectors.T, torch.arange(spans, device=vectors.device)
        target = number ^ 1
        related = number[:, None] == number
        if documents is not None:
            related = related | ((documents[:, None] == documents) & (target[:, None] != number))
        return functional.cross_entropy(scores.masked_fill(related, -torch.inf), target)
