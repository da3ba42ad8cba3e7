"""Share of queries whose own positive wins in the batch: what a contrastive training logs beside its loss.

Page: ideas/negatives.
"""

import torch
from torch import Tensor

from dr_lib.losses.pairs import relevant_passages, unit


@torch.no_grad()
def in_batch_accuracy(
    queries: Tensor,
    passages: Tensor,
    *,
    normalise: bool,
    passage_ids: Tensor | None = None,
    known_positives: Tensor | None = None,
) -> Tensor:
    """Share of queries whose own positive scores above every passage of the batch that is not known to be positive.

    Args:
        queries: `[batch, hidden]`.
        passages: `[batch * n, hidden]`, query i's positive in row i * n.
        normalise: compare by cosine instead of inner product.
        passage_ids: `[batch * n]` int64; copies of a positive do not count.
        known_positives: `[batch, batch * n]` bool, columns that do not count.

    Returns:
        Scalar in [0, 1]; a tie with another passage counts as a miss, so that equal vectors score 0.

    Example:
        >>> in_batch_accuracy(torch.eye(2), torch.eye(2), normalise=True).item()
        1.0
    """
    n = len(passages) // len(queries)
    with torch.autocast(queries.device.type, enabled=False):
        queries, passages = queries.float(), passages.float()
        scores = unit(queries) @ unit(passages).T if normalise else queries @ passages.T
    positive = scores[:, ::n].diagonal()
    relevant = relevant_passages(len(queries), n, passage_ids, known_positives, scores.device)
    return (positive > scores.masked_fill(relevant, float("-inf")).amax(1)).float().mean()
